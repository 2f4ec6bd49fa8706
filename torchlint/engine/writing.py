"""Replacing a file atomically."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from torchlint.source import Source, SourceError

_KEPT: Final = ("user.", "system.")
"""How attributes begin without which a file would not be the same to its users."""
_PREFIX: Final = 40
"""How much of a name the new file bears: with an ending, a long one would be too long."""


class WriteError(Exception):
    """A file that was left unchanged; the message says why in one line."""


def write_atomic(path: Path, source: Source, expected: bytes) -> None:
    """Replace a file that still contains `expected` by `source`; raises `WriteError`.

    The text goes to a new file beside the target, which is then renamed; a link stays a link and
    its target is replaced. A file that would lose its owner, mode or access list is not written.
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
    """Copy owner, mode and extended attributes to the new file; raises `OSError`."""
    old, new = target.stat(), temporary.stat()
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        try:
            os.chown(temporary, old.st_uid, old.st_gid)
        except OSError as error:
            whose = f"it belongs to user {old.st_uid} and group {old.st_gid}"
            said = f"{whose}, and would no longer: run torchlint as that user"
            raise PermissionError(error.errno, said) from None
    temporary.chmod(old.st_mode & 0o7777)
    if hasattr(os, "listxattr"):
        for name in _attributes(target):
            _take_attribute(temporary, target, name)


def _attributes(target: Path) -> list[str]:
    """Return the names of the extended attributes of a file, including access control lists."""
    with contextlib.suppress(OSError):
        return os.listxattr(target)
    return []


def _take_attribute(temporary: Path, target: Path, name: str) -> None:
    """Copy one extended attribute to the new file; skip system attributes that cannot be set."""
    try:
        os.setxattr(temporary, name, os.getxattr(target, name))
    except OSError as error:
        if name.startswith(_KEPT):
            said = f"its attribute {name} cannot be kept: {error.strerror}"
            raise OSError(error.errno, said) from None
