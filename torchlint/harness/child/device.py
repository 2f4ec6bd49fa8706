"""The device that a script trains on: waiting for it, its clock and its memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final

import torch

Mark = Any
"""A moment: seconds of the host's clock, or an event on each device of the network."""

_OLD_KINDS: Final = ("cuda", "xpu", "mps")
"""Accelerators of torch before 2.6, which has no name for the one at hand."""


class Device:
    """The devices that hold the network, and all others that this process uses.

    On an accelerator that has events, times are those of its own clock: the host runs ahead of
    it. On a CPU they are the host's.
    """

    def __init__(self) -> None:
        self.kind = "cpu"
        self.has_clock = False
        """Whether times come from the device, not from the host."""
        self.indices: list[int] = []
        """The devices of the network."""
        self._backend: Backend | None = None
        self._streams: dict[int, Any] = {}

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count the devices of these tensors among those of the network."""
        for tensor in tensors:
            device = tensor.device
            if device.type in ("cpu", "meta") or self.kind not in ("cpu", device.type):
                continue
            if self._backend is None:
                self.kind = device.type
                self._backend = Backend(device.type)
                self.has_clock = self._backend.has_events(device.index or 0)
            index = device.index or 0
            if index not in self.indices:
                self.indices.append(index)
                self.follow()

    def follow(self) -> None:
        """Time the streams from now on that are the current ones."""
        if self._backend is not None and self.has_clock:
            self._streams = {index: self._backend.stream(index) for index in self.indices}

    def wait(self) -> None:
        """Wait until every device that this process uses has finished its work."""
        backend = self._backend or Backend.at_hand()
        if backend is not None and not backend.is_capturing():
            for index in sorted({*self.indices, *backend.used()}):
                backend.wait(index)

    def is_capturing(self) -> bool:
        """Return whether the device records its work into a graph."""
        backend = self._backend or Backend.at_hand()
        return backend is not None and backend.is_capturing()

    def settle(self) -> None:
        """Wait at an end of a window, where the device itself cannot tell when it got there."""
        if not self.has_clock:
            self.wait()

    def mark(self) -> Mark:
        """Return this moment, on a device when it gets there."""
        if self._backend is None or not self.has_clock:
            return time.perf_counter()
        return [self._backend.event(index, stream) for index, stream in self._streams.items()]

    def between(self, first: Mark, second: Mark, at: int = 0) -> float:
        """Return the seconds between two moments that have passed, on one of the devices."""
        if isinstance(first, float):
            return float(second - first)
        return float(first[at].elapsed_time(second[at])) / 1e3

    def spans(self, marks: Sequence[Mark]) -> list[float]:
        """Return the seconds between marks, with `settle` before the first and the last.

        Of several devices the one that took longest counts. Without a clock of its own, only
        the whole time of an accelerator is known, so each span gets an equal part.
        """
        pairs = list(pairwise(marks))
        if not pairs:
            return []
        if self.has_clock:
            devices = range(len(marks[0]))
            each = [[self.between(*pair, at) for pair in pairs] for at in devices]
            return max(each, key=sum)
        if self.kind != "cpu":
            return [(marks[-1] - marks[0]) / len(pairs)] * len(pairs)
        return [self.between(*pair) for pair in pairs]

    def forget_peak(self) -> None:
        """Count peaks of memory from here on."""
        backend = self._backend or Backend.at_hand()
        if backend is not None:
            for index in backend.used():
                backend.memory("reset_peak_memory_stats", index)

    def peak_memory(self) -> list[tuple[int, int]]:
        """Return the peaks of each device in use in bytes: what tensors took, and was reserved.

        It is empty where they are unknown.
        """
        backend = self._backend or Backend.at_hand()
        peaks: list[tuple[int, int]] = []
        if backend is None:
            return []
        for index in backend.used():
            allocated = backend.memory("max_memory_allocated", index)
            if allocated is not None:
                reserved = backend.memory("max_memory_reserved", index)
                peaks.append((allocated, allocated if reserved is None else reserved))
        return peaks

    def held_by_others(self) -> tuple[int, int] | None:
        """Return the bytes that other programs have of the fullest device, and those it has.

        None where that is unknown.
        """
        backend = self._backend or Backend.at_hand()
        found = []
        if backend is None:
            return None
        for index in backend.used():
            free, whole = backend.free(index) or (0, 0)
            own = backend.memory("memory_reserved", index) or 0
            found.append((whole - free - own, whole))
        return max(found, default=None)


class Backend:
    """The functions of one kind of accelerator, under the names that this torch has for them."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        common = getattr(torch, "accelerator", None)
        if common is not None and str(common.current_accelerator()) != kind:
            common = None
        self.own = getattr(torch, kind, None)
        self._homes = [home for home in (common, self.own) if home is not None]

    @classmethod
    def at_hand(cls) -> Backend | None:
        """Return the accelerator that this process uses already; none is started for it."""
        for kind in _kinds():
            module = getattr(torch, kind, None)
            started = getattr(module, "is_initialized", None)
            if module is not None and (started() if started else module.is_available()):
                return cls(kind)
        return None

    def used(self) -> list[int]:
        """Return the devices on which this process has memory, or may have."""
        count = self._find("device_count")
        return [
            index
            for index in range(count() if count else 0)
            if self.memory("memory_reserved", index) != 0
        ]

    def wait(self, index: int) -> None:
        """Wait until the device has finished its work."""
        if self.kind == "mps":
            torch.mps.synchronize()
        elif (synchronize := self._find("synchronize")) is not None:
            synchronize(index)

    def has_events(self, index: int) -> bool:
        """Return whether events of the device can tell time."""
        try:
            event = self.event(index, self.stream(index))
            self.wait(index)
            return float(event.elapsed_time(event)) == 0.0
        except (AttributeError, NotImplementedError, RuntimeError, TypeError):
            return False

    def stream(self, index: int) -> Any:
        """Return the stream in which this thread launches work on the device."""
        current = self._find("current_stream")
        assert current is not None
        return current(index)

    def event(self, index: int, stream: Any) -> Any:
        """Return an event that the stream reaches after the work it already has."""
        if hasattr(torch, "Event"):
            event = torch.Event(torch.device(self.kind, index), enable_timing=True)
        else:
            event = getattr(torch, self.kind).Event(enable_timing=True)
        event.record(stream)
        return event

    def is_capturing(self) -> bool:
        """Return whether the current stream records its work into a graph."""
        ask = getattr(self.own, "is_current_stream_capturing", None)
        return bool(ask()) if ask else False

    def memory(self, name: str, index: int) -> int | None:
        """Call a function of the allocator; return None where no such figure is known."""
        for home in self._homes:
            if hasattr(home, name):
                with suppress(NotImplementedError, RuntimeError, TypeError):
                    return int(getattr(home, name)(index) or 0)
        return None

    def free(self, index: int) -> tuple[int, int] | None:
        """Return the free and the whole memory of a device, None where that is unknown."""
        for name in ("get_memory_info", "mem_get_info"):
            ask = self._find(name)
            if ask is not None:
                with suppress(NotImplementedError, RuntimeError, TypeError):
                    free, whole = ask(index)
                    return int(free), int(whole)
        return None

    def _find(self, name: str) -> Callable[..., Any] | None:
        return next((getattr(home, name) for home in self._homes if hasattr(home, name)), None)


def _kinds() -> tuple[str, ...]:
    common = getattr(torch, "accelerator", None)
    if common is None:
        return _OLD_KINDS
    accelerator = common.current_accelerator()
    return () if accelerator is None else (accelerator.type,)
