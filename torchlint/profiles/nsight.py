"""Exports of Nsight Systems, as SQLite."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from torchlint.profiles.recording import Call, ProfileError, Recording

_WORK: Final = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET"))
_RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_PROCESS: Final = 24
"""Bits of a thread's number below those of its process."""
_MASK: Final = 0xFFFFFF
_PYTHON: Final = re.compile(r"([^\s\[\]()\"':;,]+\.py)\s*[(:\]]+\s*(\d+)")


def read_nsight(file: Path) -> Recording:
    """Read what `nsys export --type sqlite` wrote; raises `ProfileError` for anything else."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as base:
            return _Export(base).recording()
    except sqlite3.Error as error:
        raise ProfileError(f"it cannot be read as SQLite: {error}") from None


class _Export:
    """The tables of an export, which has only those for which there were events."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base
        asked = base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._tables = {name for (name,) in asked}
        if not self._tables & {*_WORK, _RUNTIME}:
            raise ProfileError(
                "it has no table of CUDA events, so Nsight Systems did not export it, "
                "or recorded without `--trace=cuda,nvtx`"
            )
        self._texts: dict[Any, str] = {}
        if "StringIds" in self._tables:
            self._texts = dict(base.execute("SELECT id, value FROM StringIds"))

    def recording(self) -> Recording:
        """Return the events, in microseconds."""
        found = Recording()
        for table in _WORK:
            for start, end, device, of, process in self._rows(
                table, ("start", "end", "deviceId", "correlationId", "globalPid")
            ):
                number = (process or 0) >> _PROCESS & _MASK
                found.add_work(device or 0, start / 1e3, end / 1e3, _unique(number, of))
        for start, end, thread, of, name, chain in self._rows(
            _RUNTIME, ("start", "end", "globalTid", "correlationId", "nameId", "callchainId")
        ):
            call = Call(start / 1e3, end / 1e3, thread or 0, self._text(name), chain or 0)
            found.add_call(call, _unique((thread or 0) >> _PROCESS & _MASK, of))
        for start, end, thread, text, number in self._rows(
            "NVTX_EVENTS", ("start", "end", "globalTid", "text", "textId")
        ):
            if end is not None:
                name = text or self._text(number)
                found.add_range(thread or 0, start / 1e3, end / 1e3, name.partition(",")[0])
        found.frames = self._frames()
        return found

    def _frames(self) -> dict[int, tuple[str, ...]]:
        """Return the Python frames of call chains, innermost first."""
        chains: dict[int, list[str]] = {}
        columns = ("id", "stackDepth", "symbol", "module")
        for chain, _, symbol, module in sorted(
            self._rows("CUDA_CALLCHAINS", columns), key=lambda row: (row[0] or 0, row[1] or 0)
        ):
            place = _PYTHON.search(f"{self._text(symbol)} {self._text(module)}")
            if place:
                chains.setdefault(chain, []).append(f"{place[1]}:{place[2]}")
        return {chain: tuple(frames) for chain, frames in chains.items()}

    def _rows(self, table: str, wanted: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield columns of a table, None for one that this version does not have."""
        if table not in self._tables:
            return
        present = {row[1] for row in self._base.execute(f'PRAGMA table_info("{table}")')}
        columns = ", ".join(f'"{name}"' if name in present else "NULL" for name in wanted)
        for row in self._base.execute(f'SELECT {columns} FROM "{table}"'):
            if not isinstance(row[0], int) or not isinstance(row[1], int | None):
                raise ProfileError(f"`{table}` is not as Nsight Systems writes it")
            yield row

    def _text(self, number: Any) -> str:
        return str(self._texts.get(number, ""))


def _unique(process: int, correlation: Any) -> int:
    """Return a correlation that is unique over processes."""
    return process << 40 | (correlation or 0) & 0xFFFFFFFFFF
