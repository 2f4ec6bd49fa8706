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
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["as_cuda", "configure", "copies", "done_at", "launches", "now", "waits", "work"]

_C = ctypes.CDLL(str(library()))
_C.pretend_set.argtypes = [ctypes.c_int, *3 * [ctypes.c_double], ctypes.c_size_t]
_C.pretend_work.argtypes = [ctypes.c_double]
_C.pretend_warn.argtypes = _C.pretend_capture.argtypes = [ctypes.c_bool]
_C.pretend_captures.restype = ctypes.c_bool
_C.pretend_allocated.restype = ctypes.c_long
for _name in ("now", "done_at"):
    getattr(_C, f"pretend_{_name}").restype = ctypes.c_double
for _name in ("launches", "copies", "waits"):
    getattr(_C, f"pretend_{_name}").restype = ctypes.c_long

DEVICES = 2
_limits = {"own": 1 << 30, "others": 0}

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
    kernel: float = 1e-4,
    copy: float = 1e-4,
    byte: float = 0.0,
    memory: int = 1 << 30,
    others: int = 0,
) -> None:
    """Set seconds of a kernel, of a copy and of each of its bytes, and the memory of a device.

    `others` is what other programs have of it, beside `memory`.
    """
    _C.pretend_set(DEVICES, kernel, copy, byte, memory)
    _limits.update(own=memory, others=others)


def _memory(device: int) -> tuple[int, int]:
    """Return the free and the whole memory of a device."""
    free = _limits["own"] - _C.pretend_allocated(device)
    return free, _limits["own"] + _limits["others"]


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
    is_current_stream_capturing = staticmethod(lambda: _C.pretend_captures())
    mem_get_info = staticmethod(_memory)


class Tape(TorchDispatchMode):  # type: ignore[misc]
    """Operators that a graph captured."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._calls.append((func, args, kwargs or {}, result))
        return result

    def play(self) -> None:
        """Run the operators again, on the same tensors."""
        with torch.no_grad():
            for func, args, kwargs, before in self._calls:
                after = func(*args, **kwargs)
                for old, new in zip(tree_leaves(before), tree_leaves(after), strict=True):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        ctypes.memmove(old.data_ptr(), new.data_ptr(), old.nbytes)


class GraphImpl:
    """What `torch.cuda.CUDAGraph` stands on."""

    def __new__(cls, *options: Any) -> Any:
        """Make a graph."""
        return object.__new__(cls)

    def __init__(self, *options: Any) -> None:
        """Begin without any operator."""
        self.tape = Tape()

    def capture_begin(self, **options: Any) -> None:
        """Capture from here on."""
        self.tape.__enter__()
        _C.pretend_capture(True)

    def capture_end(self) -> None:
        """Capture until here."""
        _C.pretend_capture(False)
        self.tape.__exit__(None, None, None)

    def replay(self) -> None:
        """Run what was captured."""
        self.tape.play()


def as_cuda() -> None:
    """Let `torch.cuda` report the host's waits for this device, as it does for its own."""
    torch.cuda.is_initialized = lambda: True
    base = torch.cuda.CUDAGraph.__base__
    for name in ("__new__", "__init__", "capture_begin", "capture_end", "replay"):
        setattr(base, name, vars(GraphImpl)[name])

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
