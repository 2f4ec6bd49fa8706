"""The engine: rules over files, fixes to a fixed point, and distrust of itself."""

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
