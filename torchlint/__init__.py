"""torchlint finds what makes a PyTorch training script slow, rewrites it, and proves it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchlint.engine.texts import check, fix

__version__ = "0.1.0"

__all__ = ["__version__", "check", "fix"]


def __getattr__(name: str) -> Any:
    """Import the Python API when it is first asked for: `import torchlint` alone stays cheap."""
    if name in ("check", "fix"):
        return getattr(import_module("torchlint.engine.texts"), name)
    raise AttributeError(f"module 'torchlint' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
