"""The engine: run rules over files, apply fixes until none is left, and check every result."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torchlint.engine.answers import Accept
    from torchlint.engine.checking import check_bytes, check_source
    from torchlint.engine.files import Discovery, discover
    from torchlint.engine.fixing import fix_bytes, fix_source
    from torchlint.engine.grading import applies
    from torchlint.engine.project import Project
    from torchlint.engine.results import FileResult, FixResult
    from torchlint.engine.running import check_paths, fix_paths
    from torchlint.engine.writing import WriteError, write_atomic

__all__ = [
    "Accept",
    "Discovery",
    "FileResult",
    "FixResult",
    "Project",
    "WriteError",
    "applies",
    "check_bytes",
    "check_paths",
    "check_source",
    "discover",
    "fix_bytes",
    "fix_paths",
    "fix_source",
    "write_atomic",
]

_HOMES: Final = {
    "Accept": "answers",
    "Discovery": "files",
    "FileResult": "results",
    "FixResult": "results",
    "Project": "project",
    "WriteError": "writing",
    "applies": "grading",
    "check_bytes": "checking",
    "check_paths": "running",
    "check_source": "checking",
    "discover": "files",
    "fix_bytes": "fixing",
    "fix_paths": "running",
    "fix_source": "fixing",
    "write_atomic": "writing",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that a run imports only what it needs."""
    if name in _HOMES:
        return getattr(import_module(f"torchlint.engine.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'torchlint.engine' has no attribute {name!r}")
