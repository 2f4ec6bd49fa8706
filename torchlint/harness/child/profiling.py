"""A trace of a few steps by torch's own profiler, in a run for nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.profiler import profile, record_function

from torchlint.harness.child.privates import is_profiling
from torchlint.harness.child.probes import Probe
from torchlint.harness.child.timeline import Timeline
from torchlint.harness.plan import Task
from torchlint.harness.trace import PhaseName


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
