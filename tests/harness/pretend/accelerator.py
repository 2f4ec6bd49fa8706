"""A pretend accelerator: importing this module adds the device `pretend` to torch.

Its time is counted. The host has a virtual clock as well from then on, which a launch moves a
little, `work` and `time.sleep` by their seconds, and a wait to the moment at which the device is
done: a script takes the same time on every machine.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

import torch
from harness.pretend.build import library

__all__ = ["as_cuda", "configure", "copies", "done_at", "launches", "now", "waits", "work"]

_C = ctypes.CDLL(str(library()))
_C.pretend_set.argtypes = [ctypes.c_int, *3 * [ctypes.c_double], ctypes.c_size_t]
_C.pretend_work.argtypes = [ctypes.c_double]
_C.pretend_warn.argtypes = [ctypes.c_bool]
for _name in ("now", "done_at"):
    getattr(_C, f"pretend_{_name}").restype = ctypes.c_double
for _name in ("launches", "copies", "waits"):
    getattr(_C, f"pretend_{_name}").restype = ctypes.c_long

DEVICES = 2

now = _C.pretend_now
"""The moment that the host has come to."""
launches = _C.pretend_launches
"""The kernels that a device was given so far."""
copies = _C.pretend_copies
"""The copies between a device and the host so far."""
waits = _C.pretend_waits
"""How often the host waited for a device so far."""
work = _C.pretend_work
"""Let the host be busy for some seconds."""
done_at = _C.pretend_done_at
"""The moment at which host and devices will have done everything that they were given so far."""


def configure(
    kernel: float = 1e-4, copy: float = 1e-4, byte: float = 0.0, memory: int = 1 << 30
) -> None:
    """Set seconds of a kernel, of a copy and of each of its bytes, and the memory of a device."""
    _C.pretend_set(DEVICES, kernel, copy, byte, memory)


class Face:
    """The module `torch.pretend`."""

    is_available = is_initialized = staticmethod(lambda: True)
    _is_in_bad_fork = staticmethod(lambda: False)
    get_device_name = staticmethod(lambda device: f"Pretend {device}")
    device_count = staticmethod(lambda: DEVICES)
    current_device = staticmethod(lambda: _C.pretend_current())
    set_device = staticmethod(lambda device: _C.pretend_set_current(device))
    synchronize = staticmethod(lambda device: _C.pretend_wait(device))
    manual_seed = manual_seed_all = staticmethod(lambda seed: None)
    get_rng_state = staticmethod(lambda device=None: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, device=None: torch.set_rng_state(state))
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16, torch.float16])


def as_cuda() -> None:
    """Let `torch.cuda` report the host's waits for this device, as it does for its own."""
    torch.cuda.is_initialized = lambda: True

    def set_sync_debug_mode(mode: Any) -> None:
        _C.pretend_warn(mode in (1, "warn"))

    torch.cuda.set_sync_debug_mode = set_sync_debug_mode


_C.pretend_start()
configure()
torch.utils.rename_privateuse1_backend("pretend")
torch._register_device_module("pretend", Face)
torch.utils.generate_methods_for_privateuse1_backend()
setattr(time, "perf_counter", now)  # noqa: B010 - a function is replaced
setattr(time, "sleep", work)  # noqa: B010 - a function is replaced
