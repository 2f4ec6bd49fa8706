"""Reading a trace of any kind."""

from __future__ import annotations

import gzip
import io
import json
import re
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TextIO

from torchlint.profiles.recording import Call, ProfileError, Recording

_SQLITE: Final = b"SQLite format 3\0"
_GZIP: Final = b"\x1f\x8b"
_REPORTS: Final = (".nsys-rep", ".qdrep")
"""Reports of Nsight Systems that were not exported."""
_WORK: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
_CALLS: Final = ("_runtime", "_driver", "runtime")
_RANGES: Final = frozenset({"python_function", "cpu_op", "user_annotation", "operator"})
_PIECE: Final = 1 << 20
_LONGEST: Final = 1 << 24
"""The most characters of one event, and of what stands before the first."""
_KEY: Final = '"traceEvents"'
_BROKEN: Final = "it is not JSON as torch.profiler writes it"
_BETWEEN: Final = re.compile(r"[\s,]*")
"""What stands between two events."""
_ACTIVITIES: Final = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET"))
_RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_PROCESS: Final = 24
"""Bits of a thread's number below those of its process."""
_MASK: Final = 0xFFFFFF
_PYTHON: Final = re.compile(r"([^\s\[\]()\"':;,]+\.py)\s*[(:\]]+\s*(\d+)")


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


def read_kineto(file: TextIO) -> Recording:
    """Read a trace of torch.profiler; raises `ProfileError` for anything else."""
    recording = Recording()
    try:
        for event in events(file):
            if event.get("ph") == "X":
                _add(recording, event)
    except (TypeError, ValueError, KeyError, OverflowError):
        raise ProfileError("an event is not as torch.profiler writes it") from None
    except (EOFError, OSError, zlib.error):
        raise ProfileError("it ends early or is damaged") from None
    return recording


def _add(recording: Recording, event: dict[str, Any]) -> None:
    """Add an event with a start and a duration."""
    kind = str(event.get("cat", "")).lower()
    if kind in _WORK or kind in _RANGES or kind.endswith(_CALLS):
        start = float(event["ts"])
        end = start + float(event.get("dur", 0.0))
        args = event.get("args") or {}
        if kind in _RANGES:
            recording.add_range(_number(event.get("tid")), start, end, str(event["name"]))
            return
        correlation = int(args.get("correlation", 0))
        if kind in _WORK:
            device = _number(args.get("device", event.get("pid")))
            recording.add_work(device, start, end, correlation)
        else:
            thread = _number(event.get("tid"))
            recording.add_call(Call(start, end, thread, str(event["name"])), correlation)


def _number(value: Any) -> int:
    """Return a number for a thread or a device, which some versions name by text."""
    return value if isinstance(value, int) else abs(hash(value)) % (1 << 60)


def events(file: TextIO) -> Iterator[dict[str, Any]]:
    """Yield the items of the list `traceEvents`, or of a document that is a list."""
    text = _start(file)
    decode = json.JSONDecoder().raw_decode
    at = 0
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        if at < len(text) and text[at] == "]":
            return
        try:
            if at >= len(text):
                raise ValueError
            event, at = decode(text, at)
        except (ValueError, RecursionError):
            more = file.read(max(_PIECE, len(text) - at))
            if not more or len(text) - at > _LONGEST:
                raise ProfileError(_BROKEN) from None
            text, at = text[at:] + more, 0
            continue
        if isinstance(event, dict):
            yield event


def _start(file: TextIO) -> str:
    """Read up to the first event, and return what was read beyond."""
    text = file.read(_PIECE)
    if text.lstrip().startswith("["):
        return text.lstrip()[1:]
    if not text.lstrip().startswith("{"):
        raise ProfileError(_BROKEN)
    while True:
        at = text.find(_KEY)
        opened = text.find("[", at) if at >= 0 else -1
        if opened >= 0:
            return text[opened + 1 :]
        more = file.read(_PIECE)
        if not more or len(text) > _LONGEST:
            raise ProfileError("it has no list `traceEvents`, so no profiler of torch wrote it")
        text += more


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
        if not self._tables & {*_ACTIVITIES, _RUNTIME}:
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
        for table in _ACTIVITIES:
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
