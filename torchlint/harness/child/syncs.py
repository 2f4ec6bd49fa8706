"""Host syncs: the lines that wait for a tensor's value, counted in a run that is not timed."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import flop_registry

from torchlint.harness.child.device import Device, Mark
from torchlint.harness.child.privates import DispatchMode, leaves
from torchlint.harness.child.probes import Probe
from torchlint.harness.plan import Task
from torchlint.harness.trace import SyncSite

_SYNC_OPS: Final = frozenset(
    {
        "aten::_local_scalar_dense",
        "aten::nonzero",
        "aten::_unique2",
        "aten::masked_select",
        "aten::equal",
    }
)
_SYNC_CALLS: Final = frozenset({"tolist", "numpy", "__repr__", "cpu", "to"})
_TORCH: Final = os.path.dirname(torch.__file__) + os.sep
_BETWEEN: Final = (_TORCH, os.path.join(os.path.dirname(os.path.dirname(_TORCH)), "numpy", ""))
"""Code between a line of the user and the host sync that it causes."""
_WAITED: Final = "called a synchronizing CUDA operation"
"""CUDA's own warning of a wait."""
_MARK: Final = "_torchlint_sent"
_OURS: Final = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_INSTALLED: Final = tuple(
    sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")
)
_HOST_WORK: Final = (os.path.join(_TORCH, "optim", ""), os.path.join(_TORCH, "utils", "data", ""))
_SIDE: Final = 2048
"""The rows of the product that shows what a device reaches."""
_TIMES: Final = 3
_COPIES: Final = frozenset({"aten::_to_copy", "aten::copy_"})


class Syncs(Probe):
    """Counts the places where the host reads a tensor's value; never timed."""

    def __init__(self, task: Task, finish: Callable[[], None]) -> None:
        super().__init__(task, finish)
        self._hits: Counter[tuple[str, int, str, str]] = Counter()
        self._thread = threading.get_ident()
        calls = _CallCounter(self._hit)
        calls.__enter__()
        self._roofline = Roofline(self.device)
        _OpCounter(self._hit, calls, self._roofline).__enter__()
        self._watched = Counter[tuple[str, int]]()

    def at_step(self) -> bool:
        """Start counting after the warm-up, and return whether enough steps were counted."""
        if torch.cuda.is_initialized():
            if self.taken == 1:
                self._watch_device()
            # It comes before the filters that the script has added by now.
            warnings.filterwarnings("always", message=_WAITED)
        if self.taken == self.task.warmup:
            self._hits.clear()
            self._watched.clear()
            self._roofline.clear()
        return self.taken >= self.task.warmup + self.task.steps

    def close(self) -> dict[str, Any]:
        """Return the lines that waited, with the device's own count where it has one."""
        sites = Counter[tuple[str, int, str]]()
        for (file, line, call, where), count in self._hits.items():
            if where == self.device.kind:
                sites[file, line, call] += count
        seen = Counter[tuple[str, int]]()
        for (file, line, _), count in sites.items():
            seen[file, line] += count
        for (file, line), count in self._watched.items():
            # The same wait is seen by our modes, where they know its operator.
            if count > seen[file, line]:
                sites[file, line, "synchronizing call"] += count - seen[file, line]
        self.device.wait()
        steps = max(0, self.taken - self.task.warmup)
        return {
            **self._roofline.of_a_step(steps),
            "syncs": [SyncSite(*site, count) for site, count in sites.most_common()],
            "sync_steps": steps,
        }

    def _hit(self, call: str, tensor: torch.Tensor) -> None:
        if tensor.device.type == "cpu" and not _would_be_on_device(tensor):
            return
        place = _users_line()
        if place is not None and threading.get_ident() == self._thread:
            file, line = place
            self._hits[file, line, call, tensor.device.type] += 1

    def _watch_device(self) -> None:
        """Count the warnings that CUDA itself gives about host syncs."""
        torch.cuda.set_sync_debug_mode("warn")
        show = warnings.showwarning

        def counted(message: Any, category: Any, filename: str, lineno: int, *rest: Any) -> None:
            if _WAITED not in str(message):
                show(message, category, filename, lineno, *rest)
            elif (place := _users_line()) is not None and threading.get_ident() == self._thread:
                self._watched[place] += 1

        setattr(warnings, "showwarning", counted)  # noqa: B010 - a function is replaced


def _users_line() -> tuple[str, int] | None:
    """Return the innermost line outside of torch and of ours, None in work of the host's own.

    Where a library calls torch, it is the innermost line of a file that is not installed.
    """
    frame = sys._getframe(2)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_BETWEEN)
        or frame.f_code.co_filename in (__file__, warnings.__file__)
    ):
        if frame.f_code.co_filename.startswith(_HOST_WORK):
            return None
        frame = frame.f_back
    caller: FrameType | None = frame
    while caller is not None and caller.f_code.co_filename.startswith(_INSTALLED):
        caller = caller.f_back
    frame = frame if caller is None or _is_ours(caller) else caller
    return frame.f_code.co_filename, frame.f_lineno


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith((_OURS, "<"))


class _CallCounter(TorchFunctionMode):  # type: ignore[misc]
    """Counts calls that copy a tensor to the host without an operator that shows it."""

    def __init__(self, hit: Callable[[str, torch.Tensor], None]) -> None:
        super().__init__()
        self._hit = hit
        self._last: torch.Tensor | None = None
        self.inside = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name not in _SYNC_CALLS or self.inside or not _copies_to_host(name, args, kwargs):
            result = func(*args, **kwargs)
            return _sent(result) if _names_device(name, args, kwargs) else result
        tensor = args[0]
        if tensor is not self._last:
            self._hit(f".{name}()" if name != "__repr__" else "print", tensor)
        self.inside = True
        try:
            result = func(*args, **kwargs)
        finally:
            self.inside = False
        self._last = result if isinstance(result, torch.Tensor) else None
        return result


def _would_be_on_device(value: Any) -> bool:
    """Return whether a tensor on the host would be on the accelerator, if there were one.

    That is so for results of parameters, and of tensors for which the script names a device.
    """
    return isinstance(value, torch.Tensor) and (value.requires_grad or hasattr(value, _MARK))


def _sent(result: Any) -> Any:
    """Record that this result would be on an accelerator."""
    for tensor in leaves(result):
        if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
            setattr(tensor, _MARK, True)
    return result


def _names_device(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether a call names the device of its result."""
    if name == "to" and len(args) > 1:
        return isinstance(args[1], str | torch.device)
    return name == "cuda" or kwargs.get("device") is not None


class _OpCounter(DispatchMode):  # type: ignore[misc]
    """Counts the operators whose result the host has to wait for."""

    def __init__(
        self, hit: Callable[[str, torch.Tensor], None], calls: _CallCounter, roofline: Roofline
    ) -> None:
        super().__init__()
        self._hit = hit
        self._calls = calls
        self._roofline = roofline

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if not self._calls.inside and (name in _SYNC_OPS or _is_masked(name, args)):
            self._hit(_OPERATOR_NAMES.get(name, name.partition("::")[2]), args[0])
        result = self._roofline.run(func, args, kwargs or {})
        return _sent(result) if any(map(_would_be_on_device, leaves(args))) else result


_OPERATOR_NAMES: Final = {
    "aten::_local_scalar_dense": ".item()",
    "aten::_unique2": "unique",
    "aten::index": "indexing with a mask",
}


def _is_masked(name: str, args: Any) -> bool:
    """Return whether an operator indexes with a mask, so that only the device knows the size."""
    return name == "aten::index" and any(
        index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
    )


def _copies_to_host(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether a call on a tensor copies its values to the host.

    `x.to(device)` on a CPU does not count: scripts for any device feed their network that way.
    """
    if not args or not isinstance(args[0], torch.Tensor):
        return False
    if name != "to":
        return True
    if args[0].device.type == "cpu":
        return False
    target = kwargs.get("device", args[1] if len(args) > 1 else None)
    return isinstance(target, str | torch.device) and torch.device(target).type == "cpu"


class Roofline:
    """Counts operations by precision, and marks the copies between host and device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._flops = Counter[torch.dtype]()
        self._copies: list[tuple[Mark, Mark]] = []

    def clear(self) -> None:
        """Count from here on."""
        self._flops.clear()
        self._copies.clear()

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call an operator, and count what it does."""
        if _name(func) in _COPIES and self._device.has_clock:
            return self._copied(func, args, kwargs)
        result = func(*args, **kwargs)
        count = flop_registry.get(func.overloadpacket)
        if count is not None:
            dtype = next(it.dtype for it in args if isinstance(it, torch.Tensor))
            self._flops[dtype] += count(*args, **kwargs, out_val=result)
        return result

    def _copied(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        before = self._device.mark()
        result = func(*args, **kwargs)
        source = args[1] if _name(func) == "aten::copy_" else args[0]
        if (source.device.type == "cpu") != (result.device.type == "cpu"):
            self._copies.append((before, self._device.mark()))
        return result

    def of_a_step(self, steps: int) -> dict[str, float | None]:
        """Return operations and seconds of copies in a step, and what the device reaches."""
        if steps <= 0:
            return {}
        copying = [self._device.between(*pair) for pair in self._copies]
        total = sum(self._flops.values())
        return {
            "copying": sum(copying) / steps if self._device.has_clock else None,
            "flops": total / steps,
            "peak_flops": self._reached() if total and self._device.has_clock else None,
        }

    def _reached(self) -> float:
        """Return the operations in a second of a large product in the usual precision."""
        (dtype, _), *_ = self._flops.most_common(1)
        place = torch.device(self._device.kind, self._device.indices[0])
        with torch.no_grad():
            side = torch.ones(_SIDE, _SIDE, dtype=dtype, device=place)
            side @ side
            marks = [self._device.mark()]
            for _ in range(_TIMES):
                side @ side
            marks.append(self._device.mark())
        self._device.wait()
        return 2 * _SIDE**3 * _TIMES / max(1e-9, self._device.spans(marks)[0])


def _name(func: Any) -> str:
    """Return the name of an operator without that of its overload: `aten::copy_`."""
    return str(func.name()).partition(".")[0]
