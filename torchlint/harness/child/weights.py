"""The state of trained networks: parameters and buffers."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import torch

from torchlint.harness.child.privates import is_kept, own_parameters
from torchlint.harness.trace import ParameterMatch

Tensors = list[torch.Tensor]

_BATCH_NORMS: Final = (
    *(torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d),
    torch.nn.SyncBatchNorm,
)


def trained(optimizers: Iterable[torch.optim.Optimizer]) -> Tensors:
    """Return the parameters of the optimizers, in their order."""
    return [
        parameter
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.requires_grad
    ]


def layers_of(parameters: Sequence[torch.Tensor]) -> list[torch.nn.Module]:
    """Return the layers that hold these parameters, in their order."""
    places = {id(parameter): place for place, parameter in enumerate(parameters)}
    layers = []
    for layer in gc.get_objects():
        if issubclass(type(layer), torch.nn.Module):
            held = (places.get(id(it)) for it in own_parameters(layer))
            first = min((place for place in held if place is not None), default=None)
            if first is not None:
                layers.append((first, layer))
    layers.sort(key=lambda found: found[0])
    return [layer for _, layer in layers]


def buffers(layers: Iterable[torch.nn.Module]) -> Tensors:
    """Return the buffers of layers, mostly batch norm statistics.

    Buffers that no checkpoint keeps are left out.
    """
    return [
        buffer
        for layer in layers
        for name, buffer in layer.named_buffers(recurse=False)
        if is_kept(layer, name)
    ]


def has_batch_norm(layers: Iterable[torch.nn.Module]) -> bool:
    """Return whether one of the layers uses batch statistics."""
    return any(isinstance(layer, _BATCH_NORMS) for layer in layers)


def match(
    reference: tuple[Tensors, Tensors], parameters: Tensors, beside: Tensors
) -> ParameterMatch:
    """Compare parameters with those of the reference, bit for bit and by distance."""
    before_all, kept = reference
    if [item.shape for item in before_all] != [item.shape for item in parameters]:
        return ParameterMatch(False, len(parameters), 0, float("inf"))
    equal = 0
    apart = size = 0.0
    for before, after in zip(before_all, parameters, strict=True):
        length = _length(before)
        size += length**2
        if _equal(before, after):
            equal += 1
        else:
            apart += (distance(before, after) * (length or 1.0)) ** 2
    relative = (apart / (size or 1.0)) ** 0.5
    same = len(kept) == len(beside) and all(map(_equal, kept, beside))
    return ParameterMatch(True, len(parameters), equal, relative, buffers=same)


def distance(before: torch.Tensor, after: torch.Tensor) -> float:
    """Return the norm of the difference relative to the norm of `before`."""
    wide = torch.complex128 if before.is_complex() else torch.float64
    before, after = before.to(wide), after.to(wide)
    apart = float(torch.linalg.vector_norm(before - after))
    size = float(torch.linalg.vector_norm(before))
    relative = apart / size if size else apart
    return relative if relative == relative else float("inf")


def digest(tensors: Tensors) -> str:
    """Return a digest of the exact values."""
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(_bits(tensor).numpy())
    return whole.hexdigest()


def _equal(before: torch.Tensor, after: torch.Tensor) -> bool:
    if (before.dtype, before.shape) != (after.dtype, after.shape):
        return False
    return bool(torch.equal(_bits(before), _bits(after)))


def _length(tensor: torch.Tensor) -> float:
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    return float(torch.linalg.vector_norm(tensor.to(wide)))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
