"""Writing a file so that it is either the old one or the new one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from torchlint.source import Source, SourceError

__all__ = ["WriteError", "write_atomic"]

_PREFIX: Final = 40
"""How much of a name the new file bears: with an ending, a long one would be too long."""


class WriteError(Exception):
    """A file that was not written and is as it was; the message says why in one line."""


def write_atomic(path: Path, source: Source, expected: bytes) -> None:
    """Put `source` in the place of a file that still holds `expected`; raises `WriteError`.

    The text goes to a new file beside the target, which then takes its name; a link stays a link
    and its target is written.
    """
    from tempfile import mkstemp

    target = Path(os.path.realpath(path))
    try:
        data = source.to_bytes()
    except SourceError as error:
        raise WriteError(f"{path} was not written: {error.message}") from None
    temporary: Path | None = None
    try:
        _refuse_read_only(target)
        prefix = f".{target.name[:_PREFIX]}."
        handle, name = mkstemp(prefix=prefix, suffix=".tmp", dir=target.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _take_after(temporary, target)
        if target.read_bytes() != expected:
            raise WriteError(f"{path} was not written: it has changed since it was read")
        os.replace(temporary, target)  # noqa: PTH105
        temporary = None
    except OSError as error:
        raise WriteError(f"{path} was not written: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()


def _refuse_read_only(target: Path) -> None:
    if not os.access(target, os.W_OK):
        with target.open("rb"):
            raise PermissionError(13, "Permission denied")


def _take_after(temporary: Path, target: Path) -> None:
    """Give the new file the mode of the old one, and its owner where that is allowed."""
    status = target.stat()
    if hasattr(os, "chown"):
        with contextlib.suppress(OSError):
            os.chown(temporary, status.st_uid, status.st_gid)
    temporary.chmod(status.st_mode & 0o7777)
