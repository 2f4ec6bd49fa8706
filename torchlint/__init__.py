"""torchlint finds what makes a PyTorch training script slow, rewrites it, and proves it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchlint.config import ConfigError
    from torchlint.engine.diagnostics import (
        AppliedFix,
        CheckError,
        Diagnostic,
        DiagnosticFix,
        DiagnosticNote,
        FixedSource,
        TextEdit,
    )
    from torchlint.engine.texts import check, fix
    from torchlint.source import Position

__version__ = "0.1.0"

__all__ = [
    "AppliedFix",
    "CheckError",
    "ConfigError",
    "Diagnostic",
    "DiagnosticFix",
    "DiagnosticNote",
    "FixedSource",
    "Position",
    "TextEdit",
    "__version__",
    "check",
    "fix",
]

_HOMES = {
    "ConfigError": "torchlint.config",
    "Position": "torchlint.source",
    "check": "torchlint.engine.texts",
    "fix": "torchlint.engine.texts",
}


def __getattr__(name: str) -> Any:
    """Import the Python API on first use, so that `import torchlint` stays fast."""
    if name in __all__:
        return getattr(import_module(_HOMES.get(name, "torchlint.engine.diagnostics")), name)
    raise AttributeError(f"module 'torchlint' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Register `%torchlint` and `%%torchlint`, for `%load_ext torchlint`."""
    from torchlint.magics import load

    load(shell)
