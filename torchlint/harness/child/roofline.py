"""The work of a step: what products compute, beside what a large one reaches, and copies."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import torch
from torch.utils.flop_counter import flop_registry

from torchlint.harness.child.device import Device, Mark

_SIDE: Final = 2048
"""The rows of the product that shows what a device reaches."""
_TIMES: Final = 3
_COPIES: Final = frozenset({"aten::_to_copy", "aten::copy_"})


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
