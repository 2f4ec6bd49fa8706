"""Traces of torch.profiler, in Chrome's JSON."""

from __future__ import annotations

import zlib
from typing import Any, Final, TextIO

from torchlint.profiles.jsonevents import events
from torchlint.profiles.recording import Call, ProfileError, Recording

_WORK: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
_CALLS: Final = ("_runtime", "_driver", "runtime")
_RANGES: Final = frozenset({"python_function", "cpu_op", "user_annotation", "operator"})


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
