"""Hooks that watch loaders: which one feeds the training, how fast, and at what cost."""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import islice, starmap
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import torch
from torch.utils.data import DataLoader

from torchlint.harness.child.device import Mark
from torchlint.harness.child.privates import LoaderIterator
from torchlint.harness.child.probes import Probe
from torchlint.harness.pace import LoaderSeen, Place
from torchlint.harness.plan import Task

_TORCH: Final = str(Path(torch.__file__).parent) + os.sep
_OURS: Final = str(Path(__file__).parents[2]) + os.sep
_INSTALLED: Final = tuple(
    sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")
)
_FEWEST: Final = 8
_PATIENCE: Final = 4
"""The most that a window may last to complete its steps, as a multiple of its seconds."""


class _Step(NamedTuple):
    began: Mark
    ended: Mark
    samples: int
    aside: bool
    waits: list[tuple[Mark, Mark]]


class _Watched:
    """A loader of the script, watched from its creation."""

    def __init__(self, loader: Any, place: Place | None, maker: str) -> None:
        self.place = place
        self.maker = maker
        self.dataset = type(loader.dataset).__name__
        self.data = id(loader.dataset)
        self.length = _length(loader.dataset)
        self.passes = _length(loader)
        self.options = {
            "num_workers": loader.num_workers,
            "prefetch_factor": loader.prefetch_factor,
            "pin_memory": bool(loader.pin_memory),
            "batch_size": loader.batch_size,
            "persistent_workers": bool(loader.persistent_workers),
        }
        self.draws = 0
        self.steps = 0
        self.opened: float | None = None
        self.opening: list[float] = []


class Pacer(Probe):
    """Times each step and counts its samples, until the window is long enough."""

    def __init__(self, task: Task, finish: Callable[[], None]) -> None:
        from torchlint.harness.child.cost import Cost

        super().__init__(task, finish)
        self._root = os.path.realpath(task.root) + os.sep
        self._loaders: list[_Watched] = []
        self._drawn_last: _Watched | None = None
        self._steps: list[_Step] = []
        self._settled = 0
        """The steps before the window."""
        self._last: Mark = None
        self._begin = 0.0
        self._samples = 0
        self._waits: list[tuple[Mark, Mark]] = []
        self._aside = False
        self._cpu = 0.0
        self._cost = (0.0, 0)
        self._loading = 0.0
        self._loading_share = 0.0
        self._costs = Cost()
        self._watch_making()
        self._watch_drawing()

    def at_step(self) -> bool:
        """End a step, and return whether the window is full."""
        full = self._is_full(time.perf_counter())
        if full or self.taken == self.task.warmup:
            self.device.settle()
        mark = self.device.mark()
        if self._last is not None:
            step = _Step(self._last, mark, self._samples, self._aside, self._waits)
            self._steps.append(step)
        self._last, self._samples, self._waits, self._aside = mark, 0, [], False
        if self._drawn_last is not None:
            self._drawn_last.steps += 1
        if self.taken == self.task.warmup:
            self._cpu = self._costs.cpu_seconds()
            self._begin = time.perf_counter()
            self._loading = 0.0
            self._last = self.device.mark()
            self._settled = len(self._steps)
        if full:
            self._take_stock(time.perf_counter())
        return full

    def _is_full(self, now: float) -> bool:
        steps = self.taken - self.task.warmup
        length = now - self._begin
        if not self._begin or steps < _FEWEST or length < self.task.seconds:
            return False
        return steps >= self.task.steps or length > _PATIENCE * self.task.seconds

    def _take_stock(self, now: float) -> None:
        length = now - self._begin if self._begin else 0.0
        self._loading_share = self._loading / length if length else 0.0
        spent = self._costs.cpu_seconds() - self._cpu
        self._cost = (spent / length if length else 0.0, self._costs.memory())

    def close(self) -> dict[str, Any]:
        """Return the steps and the loaders."""
        if not self._cost[1]:
            self._take_stock(time.perf_counter())
        self.device.wait()
        optimizer = self.optimizers.get(self.leader) if self.leader is not None else None
        trained = max(self._loaders, key=lambda each: each.steps, default=None)
        pace = {
            "seconds": self._seconds(),
            "samples": [step.samples for step in self._steps],
            "aside": [step.aside for step in self._steps],
            "waits": [sum(starmap(self.device.between, it.waits)) for it in self._steps],
            "opening": trained.opening if trained else [],
            "cpu": self._cost[0],
            "memory": self._cost[1],
            "optimizer": type(optimizer).__name__ if optimizer else "",
            "learning_rate": float(optimizer.param_groups[0]["lr"]) if optimizer else 0.0,
            "loading": self._loading_share,
            "loaders": [asdict(self._seen(each)) for each in self._loaders],
        }
        return {"pace": pace}

    def _seconds(self) -> list[float]:
        """Return the seconds of each step, those before the window first."""
        parts = self._steps[: self._settled], self._steps[self._settled :]
        marks = [[part[0].began, *(step.ended for step in part)] for part in parts if part]
        return [seconds for part in marks for seconds in self.device.spans(part)]

    def _seen(self, watched: _Watched) -> LoaderSeen:
        return LoaderSeen(
            place=watched.place,
            maker=watched.maker,
            dataset=watched.dataset,
            same_data=watched.data,
            length=watched.length,
            passes=watched.passes,
            draws=watched.draws,
            steps=watched.steps,
            **watched.options,
        )

    # -- loaders --------------------------------------------------------------

    def _watch_making(self) -> None:
        make = DataLoader.__init__

        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            make(loader, *args, **kwargs)
            place, maker = self._place(sys._getframe(1))
            watched = _Watched(loader, place, maker)
            self._loaders.append(watched)
            loader.__dict__["_torchlint"] = watched

        __init__.__wrapped__ = make  # type: ignore[attr-defined]
        DataLoader.__init__ = __init__

    def _watch_drawing(self) -> None:
        begin, ask = LoaderIterator.__init__, LoaderIterator.__next__
        reset = DataLoader.__iter__
        clock = time.perf_counter

        def __iter__(loader: Any) -> Any:  # noqa: N807 - takes the method's place
            watched = loader.__dict__.get("_torchlint")
            if watched is not None:
                watched.opened = clock()
                self._aside = True
            return reset(loader)

        def __init__(iterator: Any, loader: Any) -> None:  # noqa: N807
            iterator.__dict__["_torchlint"] = loader.__dict__.get("_torchlint")
            begin(iterator, loader)

        def __next__(iterator: Any) -> Any:  # noqa: N807
            asked, began = self.device.mark(), clock()
            batch = ask(iterator)
            if self._last is not None:
                self._waits.append((asked, self.device.mark()))
            now = clock()
            self._loading += now - began
            watched = iterator.__dict__.get("_torchlint")
            if watched is not None:
                self._note(watched, batch, now)
            return batch

        DataLoader.__iter__ = __iter__
        LoaderIterator.__init__ = __init__
        LoaderIterator.__next__ = __next__

    def _note(self, watched: _Watched, batch: Any, now: float) -> None:
        watched.draws += 1
        self._drawn_last = watched
        if watched.opened is not None:
            watched.opening.append(now - watched.opened)
            watched.opened = None
        self._samples += _size(batch) or watched.options["batch_size"] or 1

    def _place(self, frame: FrameType | None) -> tuple[Place | None, str]:
        """Return the innermost call of the project, and the package that called on its behalf."""
        maker = ""
        while frame is not None:
            file = frame.f_code.co_filename
            if self._is_projects(file):
                return _call_of(frame), maker
            if not maker and not file.startswith((_TORCH, _OURS)):
                maker = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            frame = frame.f_back
        return None, maker

    def _is_projects(self, file: str) -> bool:
        path = os.path.realpath(file)
        return path.startswith(self._root) and not path.startswith((*_INSTALLED, _OURS))


def _call_of(frame: FrameType) -> Place:
    """Return the call that a frame is executing."""
    file, line = os.path.realpath(frame.f_code.co_filename), frame.f_lineno
    if not hasattr(frame.f_code, "co_positions"):
        return Place(file, line)
    positions = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    if positions is None or positions[1] is None or positions[3] is None:
        return Place(file, line)
    return Place(file, positions[0] or line, positions[1], positions[3])


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def _size(batch: Any, depth: int = 4) -> int | None:
    """Return the number of samples in a batch: the first dimension of its first tensor."""
    if isinstance(batch, torch.Tensor):
        return int(batch.shape[0]) if batch.dim() else None
    parts: Any = ()
    if isinstance(batch, Mapping):
        parts = batch.values()
    elif isinstance(batch, list | tuple):
        parts = batch
    if depth:
        for part in parts:
            found = _size(part, depth - 1)
            if found is not None:
                return found
    return None
