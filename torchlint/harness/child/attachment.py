"""Changes to torch right after the script imports it: seeds, diversions and a probe."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any, Final

import torch

from torchlint.harness.child.alignment import Aligned, NudgedReplay
from torchlint.harness.child.overlay import after_import
from torchlint.harness.child.pacer import Pacer
from torchlint.harness.child.privates import leave_uncompiled
from torchlint.harness.child.probes import LOAD, SAVE, Nudged, Numbers, Probe, Timer
from torchlint.harness.child.shadow import Shadow
from torchlint.harness.child.syncs import Syncs
from torchlint.harness.child.timeline import Anatomy, Profiled
from torchlint.harness.plan import Mode, Task

_PROBES: Final[dict[Mode, type[Probe]]] = {
    "time": Timer,
    "timeline": Anatomy,
    "numbers": Numbers,
    "nudged": Nudged,
    "syncs": Syncs,
    "record": Aligned,
    "replay": Aligned,
    "nudged-replay": NudgedReplay,
    "pace": Pacer,
    "profile": Profiled,
}


def attach(task: Task, shadow: Shadow, finish: Callable[[], None]) -> Probe:
    """Seed torch, divert its checkpoints and hook what the task measures."""
    torch.manual_seed(task.seed + task.shift)
    _divert_checkpoints(shadow)
    after_import("torch._dynamo", lambda: leave_uncompiled(__name__.partition(".")[0]))
    if task.shift:
        _shift_seeds(task.shift)
    state = random.getstate()
    probe = _PROBES[task.mode](task, finish)
    random.setstate(state)
    return probe


def _divert_checkpoints(shadow: Shadow) -> None:
    """Redirect saved checkpoints to the shadow folder, and load them from there."""
    save_script = torch.jit.save

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        SAVE(obj, shadow.writable(f, anywhere=True), *args, **kwargs)

    def load(f: Any, *args: Any, **kwargs: Any) -> Any:
        return LOAD(shadow.readable(f, anywhere=True), *args, **kwargs)

    def save_as_script(m: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        save_script(m, shadow.writable(f, anywhere=True), *args, **kwargs)

    torch.save = save
    torch.load = load
    torch.jit.save = save_as_script


def _shift_seeds(shift: int) -> None:
    """Add an offset to every seed that the script sets."""
    for module in (torch, torch.random, torch.cuda, torch.cuda.random, random):
        for name in ("manual_seed", "manual_seed_all", "seed"):
            if name != "seed" or module is random:
                _shift(module, name, shift)
    after_import("numpy.random", lambda: _shift(sys.modules["numpy.random"], "seed", shift))


def _shift(module: Any, name: str, shift: int) -> None:
    set_seed = getattr(module, name, None)
    if set_seed is None:
        return

    def shifted(seed: Any = None, *args: Any, **kwargs: Any) -> Any:
        return set_seed(seed + shift if isinstance(seed, int) else seed, *args, **kwargs)

    setattr(module, name, shifted)
