"""The part of a recorded batch that one rank trains on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def share_of(batch: Any, rank: int, ranks: int) -> Any:
    """Return the samples of a batch for one of several ranks, an equal number each."""
    return _each(batch, lambda leaf: _part(leaf, rank, ranks))


def _part(leaf: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    if not leaf.dim() or leaf.shape[0] % ranks:
        return leaf
    size = leaf.shape[0] // ranks
    return leaf[rank * size : (rank + 1) * size]


def _each(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _each(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_each(item, change) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_each(item, change) for item in value)
    return value
