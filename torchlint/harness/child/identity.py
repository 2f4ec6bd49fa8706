"""What is known of the devices of a run: their names, their software and their state."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import torch

from torchlint.harness.child.device import Device
from torchlint.harness.child.privates import DispatchMode, leaves

Questions = dict[str, Callable[[], Any]]

_NVML: Final = "pynvml"
_THROTTLES: Final = {
    0x08: "a hardware limit",
    0x20: "its temperature",
    0x40: "its temperature, by hardware",
    0x80: "the power supply",
}
"""Bits of NVML for what slows a device down."""
_NO_ANSWER: Final = (AttributeError, NotImplementedError, RuntimeError, AssertionError)
TF32: Final = "tf32"

_UNITS: Final = {"bfloat16": 2.0**-8, TF32: 2.0**-11, "float16": 2.0**-11, "float32": 2.0**-24}
"""The relative size of half the last digit, coarsest first."""

_PRODUCTS: Final = frozenset({"mm", "addmm", "bmm", "baddbmm"})
_CONVOLUTIONS: Final = frozenset({"convolution", "convolution_backward", "cudnn_convolution"})
_COPIES: Final = frozenset(
    {"clone", "cat", "stack", "copy", "index", "index_select", "gather", "embedding", "relu"}
)
"""Operators that only move values, or drop some."""

_TENSOR_CORES: Final = (8, 0)
"""The first devices of CUDA that have TF32."""


def identity(device: Device) -> dict[str, Any]:
    """Return the devices of the network by name, with what their speed depends on.

    A CPU has no entry. NVML is read where `nvidia-ml-py` is installed, and never set.
    """
    if device.kind == "cpu":
        return {}
    module = getattr(torch, device.kind, None)
    found: dict[str, Any] = {"indices": device.indices, "names": _each(module, device, "name")}
    with suppress(*_NO_ANSWER):
        found["count"] = int(module.device_count())  # type: ignore[union-attr]
    versions = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    found |= {name: version for name, version in versions.items() if version}
    if device.kind == "cuda":
        found["cudnn"] = torch.backends.cudnn.version()
        found["tf32"] = {"products": tf32_products(), "convolutions": tf32_convolutions()}
        found["state"] = states(device)
    return found


def states(device: Device) -> list[dict[str, Any]]:
    """Return what NVML tells now of each device of the network, nothing of other kinds."""
    return [_state(uuid) for uuid in _uuids(device)] if device.kind == "cuda" else []


def _each(module: Any, device: Device, what: str) -> list[str]:
    names = []
    for index in device.indices:
        with suppress(*_NO_ANSWER):
            names.append(str(getattr(module, f"get_device_{what}")(index)))
    return names


def _uuids(device: Device) -> list[str]:
    properties = map(torch.cuda.get_device_properties, device.indices)
    return [f"GPU-{it.uuid}" for it in properties if hasattr(it, "uuid")]


def joules(device: Device) -> float | None:
    """Return what the devices of the network took so far, None where they do not count it."""
    if device.kind != "cuda":
        return None
    taken = [_asked(uuid, _energy).get("millijoules") for uuid in _uuids(device)]
    known = [float(each) for each in taken if each is not None]
    return sum(known) / 1e3 if known and len(known) == len(taken) else None


def _state(uuid: str) -> dict[str, Any]:
    """Return driver, clock, heat, limits and other users of a device, from NVML."""
    return _asked(
        uuid,
        lambda nvml, handle: {
            "driver": nvml.nvmlSystemGetDriverVersion,
            "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(
                handle, nvml.NVML_TEMPERATURE_GPU
            ),
            "power_limit_mw": lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle),
            "throttled": lambda: _throttled(nvml, handle),
            # In a container the numbers of processes are others, so this one is not found by its.
            "other_processes": lambda: max(
                0, len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)) - 1
            ),
        },
    )


def _throttled(nvml: Any, handle: Any) -> list[str]:
    """Return why the device keeps its clock down, but for the usual limit of power."""
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    ask = next(getattr(nvml, name) for name in names if hasattr(nvml, name))
    reasons = ask(handle)
    return [name for bit, name in _THROTTLES.items() if reasons & bit]


def _energy(nvml: Any, handle: Any) -> Questions:
    return {"millijoules": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle)}


def _asked(uuid: str, questions: Callable[[Any, Any], Questions]) -> dict[str, Any]:
    """Return what NVML answers about a device, without what it does not know."""
    if importlib.util.find_spec(_NVML) is None:
        return {}
    nvml = importlib.import_module(_NVML)
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError:
        return {}
    found = {}
    for name, ask in questions(nvml, handle).items():
        with suppress(nvml.NVMLError):
            found[name] = ask()
    nvml.nvmlShutdown()
    return found


class Precision:
    """Watches in which precisions a script computes; `coarser` is called at each new one."""

    def __init__(self, coarser: Callable[[str], None] | None = None) -> None:
        self._seen: set[str] = set()
        self._coarser = coarser
        enter = torch.amp.autocast_mode.autocast.__enter__

        def entered(context: Any) -> Any:
            result = enter(context)
            if torch.is_autocast_enabled(context.device):
                dtype = torch.get_autocast_dtype(context.device)
                self._note(str(dtype).removeprefix("torch."))
            return result

        torch.amp.autocast_mode.autocast.__enter__ = entered

    @property
    def coarsest(self) -> str:
        """The name of the coarsest one, that of ordinary numbers where no other was seen."""
        return next((name for name in _UNITS if name in self._seen), "float32")

    def look_at(self, parameters: Iterable[torch.Tensor]) -> None:
        """Add the precision of parameters, and TF32 where their device uses it."""
        for kind, dtype in {(it.device.type, str(it.dtype)) for it in parameters}:
            self._note(dtype.removeprefix("torch."))
            if kind == "cuda" and _has_tensor_cores() and (tf32_products() or tf32_convolutions()):
                self._note(TF32)

    def _note(self, name: str) -> None:
        if name not in self._seen and name in _UNITS:
            self._seen.add(name)
            if self._coarser is not None and name != "float32":
                self._coarser(name)


class Rounding(DispatchMode):  # type: ignore[misc]
    """Rounds results of operators in other directions, by up to half their last digit.

    Only precisions coarser than float32 are rounded: what is left of the others is done to
    the weights.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._dice: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        fresh = all(each.alias_info is None for each in func._schema.returns)
        if fresh and name not in _COPIES and not name.startswith(("empty", "zeros", "new_")):
            for leaf in leaves(result):
                if isinstance(leaf, torch.Tensor) and (unit := _unit(name, leaf)):
                    self._round(leaf, unit)
        return result

    def _round(self, tensor: torch.Tensor, unit: float) -> None:
        dice = self._dice.get(tensor.device)
        if dice is None:
            dice = torch.Generator(tensor.device).manual_seed(self._seed)
            self._dice[tensor.device] = dice
        shift = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
        shift.uniform_(-unit, unit, generator=dice)
        tensor.copy_(tensor.float() * (1 + shift))


def _unit(name: str, tensor: torch.Tensor) -> float:
    """Return half the last digit of an operator's result, 0 where it is not coarse."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype == "float32" and tensor.device.type == "cuda" and _has_tensor_cores():
        coarse = (name in _PRODUCTS and tf32_products()) or (
            name in _CONVOLUTIONS and tf32_convolutions()
        )
        return _UNITS[TF32] if coarse else 0.0
    return _UNITS[dtype] if dtype in ("bfloat16", "float16") else 0.0


def tf32_products() -> bool:
    """Return whether products of matrices are allowed in TF32."""
    return _allowed(torch.backends.cuda.matmul, torch.backends.cuda.matmul)


def tf32_convolutions() -> bool:
    """Return whether convolutions are allowed in TF32, as they are unless a script objects."""
    return _allowed(torch.backends.cudnn, getattr(torch.backends.cudnn, "conv", None))


def _allowed(old: Any, new: Any) -> bool:
    """Ask by the setting's old name; torch refuses that where a script uses the new one."""
    try:
        return bool(old.allow_tf32)
    except RuntimeError:
        return bool(new.fp32_precision == "tf32")


def _has_tensor_cores() -> bool:
    return torch.version.cuda is not None and torch.cuda.get_device_capability() >= _TENSOR_CORES
