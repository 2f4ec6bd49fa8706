"""The times of data loading, forward, backward and optimizer, from cheap hooks."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.profiler import profile, record_function

from torchlint.harness.child.device import Device, Mark
from torchlint.harness.child.privates import LoaderIterator, is_profiling
from torchlint.harness.child.probes import Probe
from torchlint.harness.plan import Task
from torchlint.harness.trace import Phase, PhaseName

_OPTIMIZER: Final = "optimizer"


class Timeline:
    """The phases of the main thread, in sequence and without nesting.

    A phase inside another belongs to it, except in an optimizer's closure, whose forward and
    backward are separate. Where a device has events, the times are when it reached a phase, not
    when the host asked for it.
    """

    def __init__(self) -> None:
        self.device = Device()
        self._phases: list[tuple[PhaseName, Mark, Mark]] = []
        self._steps: list[Mark] = []
        self._open: list[PhaseName] = []
        self._began: Mark = 0.0
        self._opened_steps: list[bool] = []
        self._thread = threading.get_ident()
        self._watch_loaders()
        self._watch_backward()
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)

    def watch_networks(self) -> None:
        """Watch the calls of every outermost network and loss.

        They are found once they exist, and their classes are watched: hooks on the networks
        themselves would be copied, pickled and compiled with them.
        """
        modules = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
        parts = {id(part) for module in modules for part in module.children()}
        for kind in {type(module) for module in modules if id(module) not in parts}:
            kind.__call__ = self._inside("forward", kind.__call__)

    def begin(self) -> None:
        """Begin the window here, and drop earlier phases."""
        self.device.settle()
        self._phases.clear()
        self._steps.clear()
        self.end_step()
        self._began = self._steps[0]

    def end_step(self) -> None:
        """End a step here."""
        self._steps.append(self.device.mark())

    def steps(self) -> list[float]:
        """Return the seconds from the start of the window to the end of each step."""
        return [self._seconds(mark) for mark in self._steps[1:]]

    def phases(self) -> list[Phase]:
        """Return the phases of the window, in seconds since its start."""
        return [
            Phase(name, self._seconds(start), self._seconds(end))
            for name, start, end in self._phases
            if self._steps
        ]

    def _seconds(self, mark: Mark) -> float:
        return self.device.between(self._steps[0], mark)

    def _enter(self, name: PhaseName) -> bool:
        """Begin a phase, and return False where it belongs to the current one."""
        if self._open and (self._open[-1] != _OPTIMIZER or name == _OPTIMIZER):
            return False
        if threading.get_ident() != self._thread or self.device.is_capturing():
            return False
        if self._open:
            self._close()
        self._open.append(name)
        self._began = self.device.mark()
        return True

    def _leave(self) -> None:
        self._close()
        self._open.pop()
        if self._open:
            self._began = self.device.mark()

    def _close(self) -> None:
        self._phases.append((self._open[-1], self._began, self.device.mark()))

    def _inside(self, name: PhaseName, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs as a phase, unless it is the forward of an evaluation."""
        compiling, with_gradients = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled
        any_time = name != "forward"

        def watched(*args: Any, **kwargs: Any) -> Any:
            if compiling() or not (any_time or with_gradients()) or not self._enter(name):
                return function(*args, **kwargs)
            try:
                return function(*args, **kwargs)
            finally:
                self._leave()

        return watched

    def _watch_loaders(self) -> None:
        LoaderIterator.__next__ = self._inside("data", LoaderIterator.__next__)

    def _watch_backward(self) -> None:
        torch.autograd.backward = self._inside("backward", torch.autograd.backward)
        torch.autograd.grad = self._inside("backward", torch.autograd.grad)

    def _before_step(self, *step: Any) -> None:
        self._opened_steps.append(self._enter(_OPTIMIZER))

    def _after_step(self, *step: Any) -> None:
        if self._opened_steps and self._opened_steps.pop():
            self._leave()


class Anatomy(Probe):
    """Records the phases of the window's steps, in a run for nothing else."""

    def __init__(self, task: Task, finish: Callable[[], None]) -> None:
        self._timeline = Timeline()  # its hooks come before those that end a step
        super().__init__(task, finish)
        self._timeline.device = self.device
        self._watching = False

    def at_step(self) -> bool:
        """End a step; the networks exist once the first was taken."""
        if not self._watching:
            self._timeline.watch_networks()
            self._watching = True
        if self.taken < self.task.warmup:
            return False
        if self.taken == self.task.warmup:
            self._timeline.begin()
            return False
        self._timeline.end_step()
        return self.taken >= self.task.warmup + self.task.steps

    def close(self) -> dict[str, Any]:
        """Return the steps of the window and their phases."""
        self.device.wait()
        ends = self._timeline.steps()
        return {
            "durations": [end - start for start, end in zip([0.0, *ends], ends, strict=False)],
            "phases": self._timeline.phases(),
        }


class _NamedPhases(Timeline):
    """Names the phases of a step in the trace."""

    def __init__(self) -> None:
        super().__init__()
        self._named: list[Any] = []

    def _enter(self, name: PhaseName) -> bool:
        entered = super()._enter(name)
        if entered:
            self._named.append(record_function(name))
            self._named[-1].__enter__()
        return entered

    def _leave(self) -> None:
        self._named.pop().__exit__(None, None, None)
        super()._leave()


class Profiled(Probe):
    """Records the window's steps with their Python frames, and writes the trace."""

    def __init__(self, task: Task, finish: Callable[[], None]) -> None:
        self._phases = _NamedPhases()  # its hooks come before those that end a step
        super().__init__(task, finish)
        self._phases.device = self.device
        self._profiler = profile(with_stack=True)
        self._step: Any = None

    def at_step(self) -> bool:
        """End a step, and return whether enough were recorded."""
        if self.taken == 1:
            self._phases.watch_networks()
        if self.taken == self.task.warmup:
            if is_profiling():
                return True
            self.device.wait()
            self._profiler.start()
        if self._step is not None:
            self._step.__exit__(None, None, None)
        if self.taken >= self.task.warmup:
            self._step = record_function(f"ProfilerStep#{self.taken}")
            self._step.__enter__()
        return self.taken >= self.task.warmup + self.task.steps

    def close(self) -> dict[str, Any]:
        """Write the trace, and return its file; nothing where no step was recorded."""
        if self._step is None or not self.task.profile:
            return {}
        self.device.wait()
        self._step.__exit__(None, None, None)
        self._profiler.stop()
        self._profiler.export_chrome_trace(self.task.profile)
        return {"profile": self.task.profile}
