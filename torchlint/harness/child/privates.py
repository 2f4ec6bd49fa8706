"""The names of torch that are not public; where a version lacks one, only what it is for is lost.

`LoaderIterator`: waiting for data, passes, recorded batches. `DispatchMode`, `leaves`: syncs by
operator, and rounding in coarse precision. `in_backward`: a checkpointed backward counts as
another loss. `compiled_graphs`: compiled lines count as not run. `leave_uncompiled`: hooks get into
graphs. `group_store`: ranks do not stop together before their last step. `is_kept`: buffers that no
checkpoint keeps are compared, too. `own_parameters`: layers are not found, so no buffers compared.
`is_profiling`: a script with a profiler of its own gets no trace, as it crashes.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

import torch

_NAMES: Final = (
    ("torch.utils.data.dataloader", "_BaseDataLoaderIter"),
    ("torch.utils._python_dispatch", "TorchDispatchMode"),
    ("torch.utils._pytree", "tree_leaves"),
    ("torch._C", "_current_graph_task_id"),
    ("torch.autograd", "_profiler_enabled"),
    ("torch._dynamo.utils", "counters"),
    ("torch._dynamo.trace_rules", "add"),
    ("torch.distributed.distributed_c10d", "_get_default_store"),
)


def missing() -> tuple[str, ...]:
    """Return the names that this torch lacks; imports the modules that hold them."""
    return tuple(f"{home}.{name}" for home, name in _NAMES if _found(home, name, None) is None)


class _NoIterator:
    """Stands in for the iterators of loaders; no loader uses it."""

    def __init__(self, loader: Any) -> None:
        """Do nothing."""

    def __next__(self) -> Any:
        """Yield nothing."""
        raise StopIteration


class _NoMode:
    """Stands in for a mode that sees every operator, and sees none."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *error: object) -> None:
        """Do nothing."""


def _itself(tree: Any) -> list[Any]:
    return [tree]


def _found(home: str, name: str, otherwise: Any) -> Any:
    try:
        return getattr(importlib.import_module(home), name, otherwise)
    except ImportError:
        return otherwise


LoaderIterator: Final = _found("torch.utils.data.dataloader", "_BaseDataLoaderIter", _NoIterator)
"""The class of the iterators of loaders."""
DispatchMode: Final = _found("torch.utils._python_dispatch", "TorchDispatchMode", _NoMode)
"""A mode that sees every operator."""
leaves: Final = _found("torch.utils._pytree", "tree_leaves", _itself)
"""Return what containers hold, however deep."""


def in_backward() -> bool:
    """Return whether a backward pass runs now."""
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def is_profiling() -> bool:
    """Return whether a profiler of torch records now; a second one would crash."""
    enabled = getattr(torch.autograd, "_profiler_enabled", None)
    return enabled is not None and bool(enabled())


def compiled_graphs() -> int:
    """Return the number of graphs that torch's compiler made, where it was imported."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {"stats": {}})
    return int(counters["stats"].get("unique_graphs", 0))


def leave_uncompiled(package: str) -> None:
    """Make torch's compiler, which was imported, leave the functions of a package as they are."""
    rules: Any = getattr(sys.modules["torch._dynamo"], "trace_rules", None)
    if hasattr(rules, "add"):
        rules.add(package)


def group_store() -> Any:
    """Return the store that all ranks of the process group share, None where it is unknown."""
    ask = getattr(torch.distributed.distributed_c10d, "_get_default_store", None)
    return None if ask is None else ask()


def is_kept(layer: Any, buffer: str) -> bool:
    """Return whether checkpoints keep a buffer of a layer."""
    return buffer not in getattr(layer, "_non_persistent_buffers_set", ())


def own_parameters(layer: Any) -> tuple[Any, ...]:
    """Return the parameters that a layer itself holds, none before its constructor ran."""
    return tuple(vars(layer).get("_parameters", {}).values())
