"""Training on the weights, batches and seeds of another run, to isolate the effect of a fix."""

from __future__ import annotations

import math
import os
import random
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch
from torch.nn import Parameter
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from torchlint.harness.child.privates import LoaderIterator
from torchlint.harness.child.probes import LOAD, SAVE, Nudged, Numbers
from torchlint.harness.child.weights import distance
from torchlint.harness.plan import Task
from torchlint.harness.trace import ParameterMatch

_MOST_BYTES: Final = 1 << 30
"""Recording stops when the batches exceed this many bytes."""

_WRAPPERS: Final = ("module.", "_orig_mod.")
"""Prefixes that wrappers of networks add to parameter names."""

_FEWEST: Final = 8
"""The least number of batches to judge a distribution by."""

_FAR: Final = 5.0
"""Standard errors between batch means beyond which the distributions differ."""

_OTHER: Final = 1e-3
"""The largest relative difference between moments of the same input."""

State = dict[str, torch.Tensor]


class MisalignedError(Exception):
    """The weights or batches of the original do not fit this run; the message says which."""


class Aligned(Numbers):
    """Records weights and batches of the original, or replays them to another run.

    In both, every generator is seeded again before each forward and each batch, and, where
    networks are created, after each optimizer.
    """

    def __init__(self, task: Task, finish: Callable[[], None]) -> None:
        super().__init__(task, finish)
        self._folder = Path(task.recording)
        self._replays = task.mode != "record"
        self._networks: list[dict[str, torch.Tensor]] = []
        self._known: dict[int, torch.Tensor] = {}
        self._batches = _Batches(self._folder, self._replays)
        self._early: list[State] = []
        self._misaligned = ""
        self._depth = 0
        self._moves = 0
        self._calls = Counter[str]()
        self._watch_optimizers()
        self._watch_forwards()
        self._watch_loaders()

    def at_step(self) -> bool:
        """Return whether the run may stop: enough was seen, or it cannot be aligned."""
        if not self._early:
            self._early = self._parameters()
        return bool(self._misaligned) or self._batches.full or super().at_step()

    def close(self) -> dict[str, Any]:
        """Return the losses, and how the parameters compare by name."""
        covered = all(
            id(parameter) in self._known
            for optimizer in self.optimizers.values()
            for group in optimizer.param_groups
            for parameter in group["params"]
        )
        if not self._misaligned and not covered:
            self._misaligned = "it trains parameters outside of the networks that it calls"
        self._misaligned = self._misaligned or self._batches.difference()
        return {**super().close(), "misaligned": self._misaligned}

    def _count(self, optimizer: torch.optim.Optimizer) -> None:
        super()._count(optimizer)
        self._moves += 1
        self._calls.clear()
        self._seed("step")

    def _seed(self, place: str) -> None:
        """Seed every generator from the progress of the training, whatever was drawn before."""
        self._calls[place] += 1
        where = f"{self.task.seed} {place} {self._moves} {self._calls[place]}"
        seed = zlib.crc32(where.encode())
        torch.manual_seed(seed)
        random.seed(seed)
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed(seed)

    def _watch_optimizers(self) -> None:
        make = torch.optim.Optimizer.__init__

        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - replaces it
            make(optimizer, *args, **kwargs)
            self._seed("optimizer")

        torch.optim.Optimizer.__init__ = __init__

    def _watch_forwards(self) -> None:
        main = threading.get_ident()

        def entered(module: torch.nn.Module, inputs: Any) -> None:
            if threading.get_ident() != main:
                return
            if self._depth == 0:
                self._align(module, inputs)
                self._seed("forward")
            self._depth += 1

        def left(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            if threading.get_ident() == main:
                self._depth -= 1

        register_module_forward_pre_hook(entered)
        register_module_forward_hook(left, always_call=True)

    def _align(self, module: torch.nn.Module, inputs: Any) -> None:
        """Record the weights of a network at its first call, or load those of the original."""
        new = {name: tensor for name, tensor in _tensors(module) if id(tensor) not in self._known}
        if self._misaligned or not any(isinstance(it, Parameter) for it in new.values()):
            return
        self._known.update((id(tensor), tensor) for tensor in new.values())
        file = self._folder / f"network-{len(self._networks)}.pt"
        self._networks.append(new)
        try:
            if any(torch.nn.parameter.is_lazy(tensor) for tensor in new.values()):
                raise MisalignedError("its network creates weights in its first forward")
            if self._replays:
                weights, sizes = LOAD(file) if file.exists() else ({}, [])
                _give(weights, new)
                _check_inputs(sizes, _sizes(inputs))
            else:
                SAVE((_copies(new), _sizes(inputs)), file)
        except MisalignedError as error:
            self._misaligned = str(error)

    def _watch_loaders(self) -> None:
        ask = LoaderIterator.__next__

        def __next__(loader: Any) -> Any:  # noqa: N807 - takes the method's place
            try:
                batch = ask(loader)
            except StopIteration:
                if not self._misaligned:
                    self._take(None)
                raise
            if not self._misaligned:
                batch = self._take((batch,))
            self._seed("batch")
            return batch

        LoaderIterator.__next__ = __next__

    def _take(self, found: tuple[Any] | None) -> Any:
        """Return the batch to train on: this run's own, or the recorded one in its place."""
        try:
            return self._batches.take(found)
        except MisalignedError as error:
            self._misaligned = str(error)
            return found and found[0]

    def _match(self) -> ParameterMatch | None:
        if self._misaligned:
            return None
        final = self._parameters()
        if not self._replays:
            SAVE((self._early, final), self._folder / "trained.pt")
        before_early, before = LOAD(self._folder / "trained.pt")
        initial = [LOAD(self._folder / f"network-{at}.pt")[0] for at in range(len(final))]
        match = _compare(before, final)
        return replace(match, updates=_apart(initial, before_early, self._early))

    def _parameters(self) -> list[State]:
        """Copy the parameters without buffers: a running mean absorbs a bias before its norm."""
        return [
            _copies({name: it for name, it in network.items() if isinstance(it, Parameter)})
            for network in self._networks
        ]


class NudgedReplay(Nudged, Aligned):
    """Replays, and rounds otherwise, which shows how far rounding alone leads."""


class _Batches:
    """The batches of all loaders, in the order in which the script asked for them."""

    def __init__(self, folder: Path, replays: bool) -> None:
        self._folder = folder
        self._replays = replays
        self._rank = int(os.environ.get("RANK", 0))
        self._ranks = int(os.environ.get("WORLD_SIZE", 1))
        self._count = 0
        self._bytes = 0
        self._means: tuple[list[list[float]], list[list[float]]] = ([], [])

    @property
    def full(self) -> bool:
        """Whether the recording has grown too large."""
        return self._bytes > _MOST_BYTES

    def take(self, found: tuple[Any] | None) -> Any:
        """Record a batch, or return the recorded one; None stands for the end of a loader."""
        file = self._folder / f"batch-{self._count}.pt"
        self._count += 1
        if not self._replays:
            try:
                SAVE(found, file)
            except Exception as error:
                raise MisalignedError(f"its batches cannot be recorded: {error}") from None
            self._bytes += file.stat().st_size
            return found and found[0]
        if not file.exists():
            raise MisalignedError("it asks its loaders for more batches")
        recorded = LOAD(file, weights_only=False)
        if (found is None) != (recorded is None):
            raise MisalignedError("its loaders yield a different number of batches")
        if found is None:
            return None
        if self._ranks > 1 and _shape(found) != _shape(recorded):
            recorded = share_of(recorded, self._rank, self._ranks)
        if _shape(found) != _shape(recorded):
            raise MisalignedError("its loaders yield batches of a different structure")
        for means, batch in zip(self._means, (recorded, found), strict=True):
            means.append([moment for leaf in _leaves(batch) for moment in _moments(leaf)])
        return recorded[0]

    def difference(self) -> str:
        """Return how this run's own batches differ from the recorded ones, else an empty text."""
        if len(self._means[0]) < _FEWEST:
            return ""
        before, after = (list(zip(*rows, strict=True)) for rows in map(_even, self._means))
        for first, second in zip(before, after, strict=False):
            if abs(_mean(first) - _mean(second)) > _FAR * _error(first, second):
                return "the values in its batches have a different distribution"
        return ""


def _moments(leaf: torch.Tensor) -> list[float]:
    """Return the mean of the values and of their squares."""
    values = _stored(leaf.detach()).to("cpu")
    if not values.numel():
        return []
    wide = (values.abs() if values.is_complex() else values).double()
    return [float(wide.mean()), float(wide.square().mean())]


def _stored(leaf: torch.Tensor) -> torch.Tensor:
    """Return the values that a tensor stores, without the implicit zeros of a sparse one."""
    if leaf.layout is torch.strided:
        return leaf
    return leaf.coalesce().values() if leaf.layout is torch.sparse_coo else leaf.values()


def _even(rows: list[list[float]]) -> list[list[float]]:
    return [row for row in rows if len(row) == len(rows[0])]


def _mean(values: tuple[float, ...]) -> float:
    return math.fsum(values) / len(values)


def _error(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """Return the standard error of the difference of two means."""
    spread = sum(
        math.fsum((value - _mean(values)) ** 2 for value in values) / max(1, len(values) - 1)
        for values in (first, second)
    )
    return math.sqrt(spread / len(first)) + 1e-6 * (abs(_mean(first)) + 1e-12)


def _tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield parameters and buffers by name, without the prefixes of wrappers."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        for wrapper in _WRAPPERS:
            name = name.removeprefix(wrapper).replace("." + wrapper, ".")
        yield name, tensor


def _copies(tensors: State) -> State:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def _give(recorded: State, network: State) -> None:
    """Load the original's weights; only a bias may be missing here."""
    for name, tensor in network.items():
        if name not in recorded:
            raise MisalignedError(f"its network has `{name}`, which the original's does not have")
        if tensor.shape != recorded[name].shape:
            raise MisalignedError(f"`{name}` of its network has a different shape")
    for name in recorded.keys() - network.keys():
        if not name.endswith("bias"):
            raise MisalignedError(f"its network lacks `{name}` of the original's")
    with torch.no_grad():
        for name, tensor in network.items():
            tensor.data.copy_(recorded[name])


def _sizes(inputs: Any) -> list[tuple[tuple[int, ...], list[float]]]:
    """Return the shape and the moments of each input tensor of a network."""
    return [(tuple(leaf.shape), _moments(leaf)) for leaf in _leaves(inputs)]


def _check_inputs(recorded: list[Any], found: list[Any]) -> None:
    """Refuse inputs that differ from the recorded ones, which were drawn before the networks."""
    for (shape, before), (same, after) in zip(recorded, found, strict=False):
        size = math.sqrt(before[1]) if before else 0.0
        limits = (_OTHER * size, _OTHER * size * size)
        if shape == same and any(
            abs(old - new) > limit for old, new, limit in zip(before, after, limits, strict=True)
        ):
            raise MisalignedError("its network is first called with different inputs")


def _compare(reference: list[State], final: list[State]) -> ParameterMatch:
    """Compare the final values of weights that both runs have."""
    pairs = _shared(reference, final)
    equal = sum(torch.equal(before, after) for before, after in pairs)
    farthest = max((distance(before, after) for before, after in pairs), default=0.0)
    return ParameterMatch(True, len(pairs), equal, farthest)


def _apart(initial: list[State], before: list[State], after: list[State]) -> float:
    """Return how far the first step moved weights apart, relative to how far it moved them."""
    moved = sum(_square(old, start) for start, old in _shared(initial, before))
    apart = sum(_square(old, new) for old, new in _shared(before, after))
    return math.sqrt(apart / moved) if moved else (math.inf if apart else 0.0)


def _shared(first: list[State], second: list[State]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [
        (one[name], other[name])
        for one, other in zip(first, second, strict=False)
        for name in sorted(one.keys() & other.keys())
    ]


def _square(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first - second).abs().double().square().sum())


def _leaves(value: Any, within: frozenset[int] = frozenset()) -> Iterator[torch.Tensor]:
    """Return the tensors of a batch in order, safely for containers that hold themselves."""
    if isinstance(value, torch.Tensor):
        if not (value.is_nested or value.is_meta):
            yield value
        return
    if id(value) in within or isinstance(value, ModuleType | type):
        return
    within |= {id(value)}
    if isinstance(value, dict):
        parts = [value[key] for key in value]
    elif isinstance(value, list | tuple):
        parts = list(value)
    else:
        parts = list(getattr(value, "__dict__", {}).values())
    for part in parts:
        yield from _leaves(part, within)


def _shape(value: Any) -> list[tuple[Any, ...]]:
    return [(leaf.dtype, tuple(leaf.shape)) for leaf in _leaves(value)]


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
