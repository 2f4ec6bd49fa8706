"""Hooks on torch in the process of the user's script: its steps, times and numbers."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

import torch
import torch.utils.data
from torch import distributed
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from torchlint.harness.child.cost import Cost, Load, seconds_at_rest
from torchlint.harness.child.device import Device, Mark
from torchlint.harness.child.graphs import Graphs
from torchlint.harness.child.identity import Precision, Rounding, identity, joules, states
from torchlint.harness.child.privates import (
    LoaderIterator,
    compiled_graphs,
    group_store,
    in_backward,
)
from torchlint.harness.child.weights import (
    buffers,
    digest,
    has_batch_norm,
    layers_of,
    match,
    trained,
)
from torchlint.harness.plan import BY_HAND, Task
from torchlint.harness.trace import ParameterMatch

SAVE: Final = torch.save
LOAD: Final = torch.load
"""The originals, kept before the script's own saving is diverted."""

_RECENT: Final = 40
"""An optimizer that missed this many steps of others belongs to an earlier phase."""

_PATIENCE: Final = 100
"""After this many `backward()` without an optimizer step, the script counts as using none."""

_FEWEST: Final = 4
"""The least number of steps to watch, however slow they are."""
_KEY: Final = "torchlint-last-step"


class Stop(BaseException):
    """Ends the script when enough was seen; no `except Exception` of the user catches it."""


class Probe:
    """Counts the steps of a script; subclasses decide what to do at each."""

    def __init__(self, task: Task, finish: Callable[[], None]) -> None:
        self.task = task
        self.taken = 0
        self.device = Device()
        self._finish = finish
        self._done = False
        self.graphs = Graphs(self.device)
        self._roles: dict[int, int] = {}
        self._counts: Counter[int] = Counter()
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._leader = task.leader
        self.optimizers: dict[int, torch.optim.Optimizer] = {}
        self._backwards = 0
        register_optimizer_step_post_hook(self._stepped)
        if self._leader in (None, BY_HAND):
            self._watch_ends()

    @property
    def leader(self) -> int | None:
        """The optimizer that counts: among those in use, the last that steps least often."""
        if self._leader is not None or not self._recent:
            return self._leader
        return min(set(self._recent), key=lambda role: (self._counts[role], -role))

    def at_step(self) -> bool:
        """Record one more step, and return whether enough was seen."""
        raise NotImplementedError

    def close(self) -> dict[str, Any]:
        """Return the observations, by field of the trace."""
        raise NotImplementedError

    def common(self) -> dict[str, Any]:
        """Return the fields that every run reports."""
        memories = self.device.peak_memory()
        return {
            "taken": self.taken,
            "leader": self.leader,
            "device": self.device.kind,
            "device_clock": self.device.has_clock,
            "machine": identity(self.device),
            "torch": torch.__version__,
            "device_memory": sum(taken for taken, _ in memories) if memories else None,
            "memories": memories,
        }

    def _stepped(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.graphs.now_or_replayed(lambda: self._count(optimizer))

    def _count(self, optimizer: torch.optim.Optimizer) -> None:
        """Count a step of an optimizer."""
        if self._done:
            os._exit(0)
        first = optimizer.param_groups[0]["params"][0]
        role = self._roles.get(id(first))
        if role is None:
            role = self._roles[id(first)] = len(self._roles)
            self.device.add(it for group in optimizer.param_groups for it in group["params"])
        self.optimizers[role] = optimizer
        self._counts[role] += 1
        self._recent.append(role)
        if self._leader is None or role == self._leader:
            self.taken = self._counts[self.leader]  # type: ignore[index]
            self.device.follow()
            if self.at_step() and self.task.steps:
                self._end()

    def _end(self) -> None:
        self._done = True
        self._finish()
        raise Stop

    def _watch_ends(self) -> None:
        """Call `_sent` after each outermost `backward()`."""
        backward = torch.autograd.backward

        def watched(tensors: Any, *args: Any, **kwargs: Any) -> None:
            outermost = not in_backward()
            backward(tensors, *args, **kwargs)
            if outermost:
                loss = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors))
                self.graphs.now_or_replayed(lambda: self._sent(loss))

        torch.autograd.backward = watched

    def _sent(self, loss: torch.Tensor) -> None:
        """Count a `backward()` as a step where the script updates its weights itself."""
        if self._done:
            os._exit(0)
        if self._leader == BY_HAND:
            self.taken += 1
            self.device.add([loss])
            self.device.follow()
            if self.at_step() and self.task.steps:
                self._end()
        elif not self._counts:
            self._backwards += 1
            if self._backwards == _PATIENCE and self.task.steps:
                self._leader, self.taken = BY_HAND, _PATIENCE
                self._end()


class Timer(Probe):
    """Times each step of the window, and its share of waiting for loaders."""

    def __init__(self, task: Task, finish: Callable[[], None]) -> None:
        super().__init__(task, finish)
        self._marks: list[Mark] = []
        self._waits: list[tuple[Mark, Mark]] = []
        self._asked: Mark = 0.0
        self._workers = 0
        self._work: list[float] = []
        self._helped = 0.0
        self._helpers = 0
        self._cost = Cost()
        self._load = Load()
        self._crowd: tuple[float, float] | None = None
        self._rest: list[float | None] = []
        self._joules: list[float | None] = []
        self._states: list[list[dict[str, Any]]] = []
        self._graphs: list[int] = []
        self._drained: float | None = None
        _around_loading(self._ask, self._get)

    def at_step(self) -> bool:
        """End a step."""
        if self.taken < self.task.warmup:
            return False
        full = self.taken >= self.task.warmup + self.task.steps
        if full or self.taken == self.task.warmup:
            self.device.settle()
            self._rest.append(seconds_at_rest())
            self._joules.append(joules(self.device))
            self._states.append(states(self.device))
            self._graphs.append(compiled_graphs())
        if self.taken == self.task.warmup:
            self.device.forget_peak()
            self._helped = -self._cost.helpers_seconds()
        self._marks.append(self.device.mark())
        self._work.append(time.process_time())
        if full:
            self._drain()
            self._look_around()
        return full

    def _drain(self) -> None:
        """Measure how far the device is behind the host."""
        if self.device.has_clock:
            launched = time.perf_counter()
            self.device.wait()
            self._drained = time.perf_counter() - launched

    def _look_around(self) -> None:
        """Note what other processes did during the window."""
        self._crowd = self._load.since()
        self._helped += self._cost.helpers_seconds()
        self._helpers = self._cost.helpers()
        self._workers = self._cost.workers_memory()

    def close(self) -> dict[str, Any]:
        """Return the window's times; it waited for data while the device had nothing to do."""
        self.device.wait()
        waited = [self.device.between(*pair) for pair in self._waits]
        energy = _grown(self._joules)
        return {
            "durations": self.device.spans(self._marks),
            "waited": sum(waited) if waited else None,
            "worker_memory": self._workers,
            "work": self._works(),
            "threads": torch.get_num_threads(),
            "helpers": self._helpers,
            "drained": self._drained,
            "at_rest": _grown(self._rest),
            "energy": None if energy is None else energy / max(1, self.task.steps),
            "states": self._states,
            "compiles": self._graphs[-1] - self._graphs[0] if self._graphs else 0,
            "others": self._crowd[0] if self._crowd else None,
            "free": self._crowd[1] if self._crowd else None,
        }

    def _works(self) -> tuple[float, ...]:
        """Return the processor time of each step, that of other processes spread evenly."""
        steps = max(1, len(self._work) - 1)
        pairs = itertools.pairwise(self._work)
        return tuple(after - before + self._helped / steps for before, after in pairs)

    def _ask(self) -> None:
        self._asked = self.device.mark()

    def _get(self) -> None:
        if self._marks:
            self._waits.append((self._asked, self.device.mark()))


class Numbers(Probe):
    """Records the loss of every `backward()`, and compares the final parameters.

    For an optimizer that calls a closure, only the first loss of a step counts, since rounding
    decides how often LBFGS calls it.
    """

    def __init__(self, task: Task, finish: Callable[[], None]) -> None:
        super().__init__(task, finish)
        self._losses: list[torch.Tensor] = []
        self._steps: list[int] = []
        self._begin = time.perf_counter()
        self._marks: list[Mark] = []
        self._end_together = CommonEnd()
        self._asks = False
        self._answered = False
        self._precision = Precision(self._coarser)
        self._passes = Passes()
        register_optimizer_step_pre_hook(self._stepping)
        self._watch_backward()
        _be_deterministic(task.lenient)

    def at_step(self) -> bool:
        """Return whether the agreed number of steps was taken, or time ran out after a few."""
        if self.taken > len(self._marks):
            self._marks.append(self.device.mark())
            self._passes.stepped()
        gone = time.perf_counter() - self._begin
        late = self.taken >= _FEWEST and gone > self.task.seconds
        if self.task.seconds and self._end_together.reached(self.taken, late):
            return True
        return self.taken >= self.task.warmup + self.task.steps

    def close(self) -> dict[str, Any]:
        """Return the losses, and how the parameters compare with the reference."""
        self.device.wait()
        self._precision.look_at(self._trained())
        return {
            "losses": [float(loss) for loss in self._losses],
            "loss_steps": self._steps,
            "durations": self.device.spans(self._marks),
            "parameters": self._match(),
            "batch_norm": has_batch_norm(self._layers),
            "precision": self._precision.coarsest,
            "compiled": bool(compiled_graphs()),
            "epoch": self._passes.longest,
            "epoch_steps": self._passes.steps,
            "weights": digest(_copies(self._trained())) if self.task.launched else "",
        }

    def _coarser(self, precision: str) -> None:
        """Notice a precision coarser than that of ordinary numbers."""

    def _stepping(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._asks = any(map(callable, (*args[1:], *kwargs.values())))
        self._answered = False

    def _stepped(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._asks = False
        super()._stepped(optimizer, args, kwargs)

    def _watch_backward(self) -> None:
        backward = torch.autograd.backward

        def recorded(tensors: Any, *args: Any, **kwargs: Any) -> None:
            # Activation checkpointing calls backward from inside another backward.
            outermost = not in_backward()
            counts = outermost and not (self._asks and self._answered)
            self._answered = self._answered or counts
            started = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            if counts:
                losses = [tensor.detach() for tensor in started]
                self.graphs.now_or_replayed(lambda: self._record(losses))
            backward(tensors, *args, **kwargs)

        torch.autograd.backward = recorded

    def _record(self, losses: list[torch.Tensor]) -> None:
        self._losses += map(_as_number, losses)
        self._steps += [self.taken] * len(losses)

    def _match(self) -> ParameterMatch | None:
        parameters = self._trained()
        if not self.task.reference or not parameters:
            return None
        state = _copies(parameters), _copies(buffers(self._layers))
        if not Path(self.task.reference).exists():
            SAVE(state, self.task.reference)
        return match(LOAD(self.task.reference, weights_only=True), *state)

    @cached_property
    def _layers(self) -> list[torch.nn.Module]:
        return layers_of(self._trained())

    def _trained(self) -> list[torch.Tensor]:
        return trained(optimizer for _, optimizer in sorted(self.optimizers.items()))


class Nudged(Numbers):
    """Moves each parameter by about one rounding before every step.

    The drift that results shows how far another order of the same sums may lead. Where a script
    computes in a coarser precision, the results of operators are rounded otherwise, too.
    """

    def __init__(self, task: Task, finish: Callable[[], None]) -> None:
        super().__init__(task, finish)
        self._rounding: Rounding | None = None

    def at_step(self) -> bool:
        """Look at the precision of the network once it exists."""
        if self.taken == 1:
            self._precision.look_at(self._trained())
        return super().at_step()

    def _coarser(self, precision: str) -> None:
        if self._rounding is None:
            self._rounding = Rounding(self.task.seed)
            self._rounding.__enter__()

    def _count(self, optimizer: torch.optim.Optimizer) -> None:
        with torch.no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._nudge(parameter)
        super()._count(optimizer)

    def _nudge(self, parameter: torch.Tensor) -> None:
        """Move a parameter by noise from our own generator, the same on every rank."""
        dice = torch.Generator(parameter.device).manual_seed(self.taken)
        size = torch.finfo(parameter.dtype).eps
        real = torch.view_as_real(parameter) if parameter.is_complex() else parameter
        real.addcmul_(real, torch.empty_like(real).uniform_(-size, size, generator=dice))


def _grown(counted: list[float | None]) -> float | None:
    """Return by how much a count grew over the window, None where it was not read twice."""
    if len(counted) < 2 or counted[0] is None or counted[1] is None:
        return None
    return max(0.0, counted[1] - counted[0])


def _around_loading(before: Callable[[], None], after: Callable[[], None]) -> None:
    """Call functions before and after every batch that a loader yields."""
    ask = LoaderIterator.__next__

    def __next__(loader: Any) -> Any:  # noqa: N807 - takes the method's place
        before()
        try:
            return ask(loader)
        finally:
            after()

    LoaderIterator.__next__ = __next__


def _as_number(loss: torch.Tensor) -> torch.Tensor:
    """Return a copy of a loss, of several values their sum; some devices have no doubles."""
    return loss.clone() if loss.numel() == 1 else loss.to("cpu").double().sum()


def _copies(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().to("cpu", copy=True) for tensor in tensors]


class _Fixed:
    """An attribute that keeps its value, whatever a script sets."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self._value

    def __set__(self, owner: Any, value: Any) -> None:
        """Keep the value."""


def _be_deterministic(lenient: bool) -> None:
    """Request deterministic kernels, and refuse others unless `lenient`.

    Attention and some more have a deterministic backward only where others are refused. The
    choice of convolutions by their speed would differ from run to run.
    """
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.use_deterministic_algorithms(True, warn_only=lenient)
    torch.backends.cudnn.benchmark = False
    type(torch.backends.cudnn).benchmark = _Fixed(False)


class CommonEnd:
    """Ends all ranks of a process group after the same step, which the first rank chooses.

    A rank that went on alone would wait for gradients of the others until it fails.
    """

    def __init__(self) -> None:
        self._last: int | None = None

    def reached(self, taken: int, late: bool) -> bool:
        """Return whether this was the last step.

        A process outside of any group ends as soon as it is late. In a group, the first
        rank announces the next step as the last one before taking it; no other rank can
        have taken that step without its gradients.
        """
        if not distributed.is_available() or not distributed.is_initialized():
            return late
        store = group_store()
        if store is None:
            return False
        if distributed.get_rank() == 0 and late and self._last is None:
            self._last = taken + 1
            store.set(_KEY, str(self._last))
        elif self._last is None and store.check([_KEY]):
            self._last = int(store.get(_KEY))
        return self._last is not None and taken >= self._last


class Passes:
    """Watches the loaders of a script, and which of them feeds its steps."""

    def __init__(self) -> None:
        self._lengths: dict[int, int] = {}
        self._draws = Counter[int]()
        self._fed = defaultdict[int, list[int]](list)
        self._last: int | None = None
        begin, ask = LoaderIterator.__init__, LoaderIterator.__next__

        def __init__(iterator: Any, loader: Any) -> None:  # noqa: N807 - takes the method's place
            begin(iterator, loader)
            iterator.__dict__["_torchlint_loader"] = id(loader)
            with suppress(TypeError, NotImplementedError):
                self._lengths[id(loader)] = len(loader)

        def __next__(iterator: Any) -> Any:  # noqa: N807 - takes the method's place
            batch = ask(iterator)
            self._last = iterator.__dict__.get("_torchlint_loader")
            if self._last is not None:
                self._draws[self._last] += 1
            return batch

        LoaderIterator.__init__ = __init__
        LoaderIterator.__next__ = __next__

    def stepped(self) -> None:
        """Count the batches of a step, for the loader that gave the last one."""
        if self._last is not None:
            self._fed[self._last].append(self._draws.pop(self._last, 0))

    @property
    def longest(self) -> int | None:
        """Batches in the longest pass over a loader, None where that is unknown."""
        return max(self._lengths.values(), default=None)

    @property
    def steps(self) -> float | None:
        """Steps in one pass over the loader that feeds them, None where that is unknown.

        An evaluation may draw from the same loader before a step, which most steps do not show.
        """
        if not self._fed:
            return None
        loader, batches = max(self._fed.items(), key=lambda fed: len(fed[1]))
        length = self._lengths.get(loader)
        return None if length is None else length / (median(batches) or fmean(batches))
