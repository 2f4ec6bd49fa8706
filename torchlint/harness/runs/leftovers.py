"""Folders of runs whose torchlint was killed before it could remove them."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from torchlint.harness.plan import TEMPORARY

PREFIX: Final = "torchlint-"
"""How the folder of a verification begins."""
_CLAIM: Final = "claimed"
"""A file that is locked for as long as the process lives to which the folder belongs."""


def claim(folder: Path) -> TextIO:
    """Mark a folder as this process's own, until it ends or closes the file."""
    file = (folder / _CLAIM).open("w", encoding="utf-8")
    _lock(file)
    return file


def remove_made(folder: Path) -> None:
    """Remove the temporary folders of multiprocessing that runs in a folder have left."""
    for named in folder.rglob("made"):
        with suppress(OSError):
            for made in map(Path, named.read_text(encoding="utf-8").splitlines()):
                if made.name.startswith(TEMPORARY):
                    shutil.rmtree(made, ignore_errors=True)


def sweep() -> None:
    """Remove the folders whose processes have ended, and what their runs have left."""
    for claimed in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{_CLAIM}"):
        # It may be another user's, or removed by now.
        with suppress(OSError), claimed.open("r+", encoding="utf-8") as file:
            if _lock(file):
                remove_made(claimed.parent)
                shutil.rmtree(claimed.parent, ignore_errors=True)


def _lock(file: TextIO) -> bool:
    """Lock a file for this process; return whether no other has it, False where none can lock."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
