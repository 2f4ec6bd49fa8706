"""Reading a trace of any kind."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Final

from torchlint.profiles.kineto import read_kineto
from torchlint.profiles.nsight import read_nsight
from torchlint.profiles.recording import ProfileError, Recording

_SQLITE: Final = b"SQLite format 3\0"
_GZIP: Final = b"\x1f\x8b"
_REPORTS: Final = (".nsys-rep", ".qdrep")
"""Reports of Nsight Systems that were not exported."""


def read_trace(file: Path) -> Recording:
    """Read a trace of torch.profiler or Nsight Systems; raises `ProfileError` for others."""
    try:
        with file.open("rb") as opened:
            head = opened.read(len(_SQLITE))
        if file.suffix in _REPORTS and head != _SQLITE:
            raise ProfileError(f"export it first: `nsys export --type sqlite {file.name}`")
        if head == _SQLITE:
            recording = read_nsight(file)
        else:
            packed = head.startswith(_GZIP)
            with (
                gzip.open(file, "rb") if packed else file.open("rb") as binary,
                io.TextIOWrapper(binary, "utf-8", errors="replace") as text,
            ):
                recording = read_kineto(text)
    except ProfileError as error:
        raise ProfileError(f"{file} is not a trace that can be read: {error}") from None
    except OSError as error:
        raise ProfileError(f"{file}: cannot be read: {error.strerror or error}") from None
    if not recording.work and not recording.ranges:
        raise ProfileError(f"{file} is a trace without events")
    return recording
