"""What is known of the devices of a run: their names, their software and their state."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import torch

from torchlint.harness.child.device import Device
from torchlint.harness.child.precision import tf32_convolutions, tf32_products

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
