"""Loaders and pinned memory: which loaders pin, and which should."""

from __future__ import annotations

from enum import Enum
from typing import Final

import libcst as cst

from torchlint.api import COLLATORS, TENSORS, Kind, Loader, Part, Script, State, Trait, method_of

_PIN: Final = "pin_memory"
_ROWS: Final = "torch.utils.data.TensorDataset"
_COLLATE: Final = "collate_fn"
_PINNABLE: Final = (Kind.TENSOR, Kind.SEQUENCE, Kind.MAPPING, Kind.NUMBER, Kind.STRING)


class Held(Enum):
    """What a part of a batch is."""

    TENSOR = 1
    UNSHOWN = 2
    """A tensor, unless a function of another module makes objects of its own class."""
    OTHER = 3


def is_unpinned(script: Script, loader: Loader) -> bool:
    """Return whether a loader could pin, does not, and its batches are moved."""
    if available(script) is None or script.values.hosting.has_default_device:
        return False
    return (
        _leaves_unpinned(script, loader)
        and not loader.is_unread
        and not loader.holds_tokens
        and _can_pin(script, loader)
        and _moves(script, loader)
    )


def _leaves_unpinned(script: Script, loader: Loader) -> bool:
    """Return whether a call does not pin memory, or writes the default out without a comment."""
    given = loader.given(_PIN)
    if given is None:
        return loader.argument(_PIN).state is State.ABSENT and not loader.pins_by_default
    ends = (script.span(given).end, script.span(loader.node).end)
    told = any("#" in script.source.line(script.source.position(end).row) for end in ends)
    return script.code(given.value) == "False" and not told


def _moves(script: Script, loader: Loader) -> bool:
    """Return whether a loop, or a framework, moves a loader's batches to a device.

    A framework moves those of the loaders that it gets, not those of a loop in view. Tensors in
    memory are rows too small to count, unless a loop in view moves them.
    """
    if loader.takes_one_batch:
        return False
    if script.program.devices.framework == "none":
        return script.loaders.batches.are_moved(loader)
    if loader.passes and not loader.escapes:
        return script.loaders.batches.are_moved(loader)
    dataset = loader.dataset
    values = script.values.origins.of(dataset).values if dataset is not None else ()
    if not any(isinstance(each, cst.Call) and script.name(each.func) == _ROWS for each in values):
        return True
    if not loader.passes:
        return _engine_moves(script)
    return script.loaders.batches.are_moved(loader)


def _engine_moves(script: Script) -> bool:
    """Return whether a function that an engine of Ignite runs moves the batches that it gets."""
    return any(
        script.loops.ownership.engines.is_process(function)
        and any(
            method_of(call) in ("to", "cuda") for call in script.tree.within(function, cst.Call)
        )
        for function in script.tree.all(cst.FunctionDef)
    )


def available(script: Script) -> str | None:
    """Return the code that checks for a device that uses pinned memory, None without one."""
    return script.once(_available)


def _available(script: Script) -> str | None:
    if not script.program.devices.can_use_accelerator or script.program.target.device == "mps":
        return None
    if script.functions.imports("torch_xla") and not _names_cuda(script):
        return None
    if not script.tree.mentions("xpu", "mps"):
        return "torch.cuda.is_available()"
    words = {script.values.value_of(text).literal for text in script.tree.all(cst.SimpleString)}
    if "xpu" in words and "cuda" not in words:
        return "torch.accelerator.is_available()" if script.program.target.has((2, 6)) else None
    if "mps" in words and not _names_cuda(script):
        return None
    return "torch.cuda.is_available()"


def _names_cuda(script: Script) -> bool:
    return any("cuda" in script.code(text) for text in script.tree.all(cst.SimpleString)) or any(
        node.attr.value in ("cuda", "accelerator") for node in script.tree.all(cst.Attribute)
    )


def _can_pin(script: Script, loader: Loader) -> bool:
    """Return whether torch can pin the loader's batches: host tensors in plain containers."""
    traits = loader.traits
    if loader.dataset is None or Trait.ON_DEVICE in traits or Trait.SAME in traits:
        return False
    makers = _collate(loader)
    if makers is None:
        return loader.argument(_COLLATE).state is State.ABSENT
    if any(Trait.ON_DEVICE in script.loaders.datasets.callable_traits(one) for one in makers):
        return False
    if any(_gives_arrays(script, one) for one in makers):
        return False
    if makers and all(_gives_plain(script, one) for one in makers):
        return True
    opaque = not any(script.functions.run_by(one) for one in makers)
    return loader.is_for_trainer or any(
        script.loaders.batches.are_mappings(place)
        or (opaque and script.loaders.batches.hold_tensors(place))
        for place in loader.passes
    )


def unseen(script: Script, loader: Loader) -> str:
    """Return what may put GPU tensors into a loader's batches, empty if nothing can."""
    dataset, collate = loader.dataset, loader.expression(_COLLATE)
    makers = [collate] if collate is not None else _collate(loader) or ()
    found = [script.loaders.provenance.unseen_tensors(dataset)] if dataset is not None else []
    found += [script.loaders.provenance.unseen_batches(maker) for maker in makers]
    named = next(filter(None, found), "")
    if not named:
        return ""
    return f"{named} is not visible here: it may hold tensors of the device, which cannot be pinned"


def _collate(loader: Loader) -> tuple[cst.BaseExpression, ...] | None:
    """Return the collate function, from the call or from a dictionary behind `**`."""
    if loader.given(_COLLATE) is not None:
        return loader.possible(_COLLATE)
    if loader.argument(_COLLATE).state in (State.ABSENT, State.UNKNOWN):
        return None
    return loader.possible(_COLLATE) or None


def _returned(script: Script, collate: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the batches that a collate function in view can return."""
    if isinstance(collate, cst.Lambda):
        return [collate.body]
    function = script.functions.run_by(collate)
    return script.functions.returns(function) if function is not None else []


def _is_torchs(script: Script, collate: cst.BaseExpression) -> bool:
    """Return whether a collate function is one of torch's, which return tensors."""
    return script.name(collate.func if isinstance(collate, cst.Call) else collate) in COLLATORS


def _gives_plain(script: Script, collate: cst.BaseExpression) -> bool:
    returned = _returned(script, collate)
    plain = bool(returned) and all(_is_plain(script, value) for value in returned)
    return plain or _is_torchs(script, collate)


def _gives_arrays(script: Script, collate: cst.BaseExpression) -> bool:
    """Return whether all batches of a function hold arrays, which are not pinned."""
    returned = _returned(script, collate)
    return bool(returned) and all(_holds_arrays(script, value) for value in returned)


def _holds_arrays(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether a batch is seen to hold arrays and no tensors."""
    inside = [script.values.origins.of(value, steps).values for steps in ((None,), (None, None))]
    kinds = {script.kind(each) for values in inside for each in values}
    return Kind.NDARRAY in kinds and kinds.isdisjoint(TENSORS)


def _is_plain(script: Script, value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.Call) and script.name(value.func) in (*COLLATORS, "builtins.tuple"):
        return True
    return isinstance(value, (cst.Tuple, cst.List, cst.Dict)) or script.kind(value) in _PINNABLE


def held(script: Script, part: Part, moved: cst.BaseExpression) -> Held:
    """Return what a part of a batch is on which `to` or `cuda` is called here."""
    if script.values.kinds.narrowing.is_tensor(moved):
        return Held.TENSOR
    loader = part.loader
    makers = _collate(loader)
    if makers is None:
        if loader.argument(_COLLATE).state is not State.ABSENT:
            return Held.UNSHOWN if part.steps else Held.OTHER
        collated = not loader.batch_size.equals(None)
        if not part.steps and (not collated or script.functions.imports("transformers")):
            return Held.OTHER
        return Held.TENSOR if _is_shown(script, loader, part, moved) else Held.UNSHOWN
    found = {_held_by(script, one, part, moved) for one in makers}
    found = found or {_held_unseen(script, part, moved)}
    return max(found, key=lambda each: each.value)


def _is_shown(script: Script, loader: Loader, part: Part, moved: cst.BaseExpression) -> bool:
    """Return whether this file shows that the default collate function makes a part a tensor."""
    dataset = loader.dataset
    if dataset is not None and not script.loaders.provenance.unseen_items(dataset):
        return True
    return isinstance(moved, cst.Name) and script.loaders.batches.shows_tensor(
        part.place, moved.value
    )


def _held_by(
    script: Script, collate: cst.BaseExpression, part: Part, moved: cst.BaseExpression
) -> Held:
    """Return the value from which a collate function fills a part."""
    if _is_torchs(script, collate):
        return Held.TENSOR if part.steps else Held.OTHER
    if not script.functions.run_by(collate) and not isinstance(collate, cst.Lambda):
        if isinstance(script.functions.definition(collate), cst.ClassDef):
            return Held.OTHER
        return _held_unseen(script, part, moved)
    return _tensor_from(script, collate, part)


def _held_unseen(script: Script, part: Part, moved: cst.BaseExpression) -> Held:
    """Return what a part of a batch is that a function of another module collates."""
    if not part.steps:
        return Held.OTHER
    shown = isinstance(moved, cst.Name) and script.loaders.batches.shows_tensor(
        part.place, moved.value
    )
    return Held.TENSOR if shown else Held.UNSHOWN


def _tensor_from(script: Script, collate: cst.BaseExpression, part: Part) -> Held:
    """Return the value from which a collate function in view fills a part."""
    returned = _returned(script, collate)
    origins = [script.values.origins.of(one, part.steps) for one in returned]
    made = [value for origin in origins for value in origin.values]
    if made and all(script.kind(value) in TENSORS for value in made):
        return Held.TENSOR
    if not part.steps or not returned or any(_is_other(script, value) for value in made):
        return Held.OTHER
    return Held.UNSHOWN


def _is_other(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether a value is no tensor: an object of this file, a list, a number.

    Or what a function of the project returns that is not in view: it may be an object.
    """
    if script.functions.instance_of(value) is not None:
        return True
    if isinstance(value, cst.Call) and (script.name(value.func) or "").startswith("."):
        return script.kind(value) not in TENSORS
    return script.kind(value) not in (*TENSORS, Kind.UNKNOWN)
