"""The scripts of the workspace as they are on the disk."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torchlint.engine import discover
from torchlint.engine.layout import SettingsOf
from torchlint.notebook import read_source
from torchlint.server.subject import Document, Subject
from torchlint.source import SourceError


def scripts_in(folders: Iterable[Path], settings_of: SettingsOf) -> list[Path]:
    """Return the scripts below folders; notebooks are left out, because their cells have no URI."""
    found = discover((each for each in folders if each.is_dir()), settings_of)
    return [path for path in found.files if path.suffix == ".py"]


def stamp_of(path: Path) -> tuple[int, int]:
    """Return what differs between two versions of a file, zeros where there is none."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def subject_of(path: Path) -> Subject | None:
    """Return what to check for a file, None if it cannot be read."""
    try:
        text = read_source(path.read_bytes(), str(path)).text
    except (OSError, SourceError):
        return None
    return Subject(path.as_uri(), path, (Document(path.as_uri(), None, text),))
