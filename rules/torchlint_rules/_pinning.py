"""Loaders and page-locked memory: which loaders pin, and which ought to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Kind, Part, Script, State, Trait

__all__ = ["available", "hands_out_tensors", "may_pin", "unpinned"]

_PIN: Final = ("pin_memory", 7)
_COLLATE: Final = ("collate_fn", 6)
_DEFAULT_DEVICE: Final = ("torch.set_default_device", "torch.set_default_tensor_type")
_DICTS: Final = (
    "torch.utils.data.default_collate",
    "torch.utils.data._utils.collate.default_collate",
    "transformers.default_data_collator",
    "transformers.DefaultDataCollator",
    "transformers.DataCollatorWithPadding",
    "transformers.DataCollatorForLanguageModeling",
    "transformers.DataCollatorForSeq2Seq",
    "transformers.DataCollatorForTokenClassification",
)
_TENSORS: Final = (Kind.TENSOR, Kind.LOSS)
_PINNABLE: Final = (Kind.TENSOR, Kind.SEQUENCE, Kind.MAPPING, Kind.NUMBER, Kind.STRING)


def unpinned(script: Script) -> Iterator[CallSite]:
    """Yield the loaders that do not pin what they surely could, and whose batches are moved."""
    if available(script) is None or any(True for _ in script.calls(*_DEFAULT_DEVICE)):
        return
    for site in script.calls("torch.utils.data.DataLoader"):
        if site.argument(*_PIN).state is not State.ABSENT or not _can_pin(script, site):
            continue
        if script.framework != "none" or script.batches.are_moved(site.node):
            yield site


def available(script: Script) -> str | None:
    """Give how to ask for a device that reads page-locked memory, None where there is none."""
    if not script.can_use_accelerator or script.target.device == "mps":
        return None
    words = {script.value_of(text).literal for text in _strings(script)}
    if "xpu" in words and "cuda" not in words:
        return "torch.accelerator.is_available()" if script.target.has((2, 6)) else None
    if "mps" in words and not _names_cuda(script):
        return None
    return "torch.cuda.is_available()"


def _strings(script: Script) -> list[cst.SimpleString]:
    return script.all(cst.SimpleString)


def _names_cuda(script: Script) -> bool:
    return any("cuda" in script.code(text) for text in _strings(script)) or any(
        node.attr.value in ("cuda", "accelerator") for node in script.all(cst.Attribute)
    )


def _can_pin(script: Script, site: CallSite) -> bool:
    """Whether torch can pin what the loader hands out: tensors of the host, in plain containers."""
    dataset = site.given("dataset", 0)
    if dataset is None or Trait.ON_DEVICE in script.datasets.traits(dataset.value):
        return False
    makers = _collate(script, site)
    if makers is None:
        return site.argument(*_COLLATE).state is State.ABSENT
    if any(Trait.ON_DEVICE in script.datasets.callable_traits(one) for one in makers):
        return False
    if makers and all(_gives_plain(script, one) for one in makers):
        return True
    opaque = not any(_function(script, one) for one in makers)
    return any(
        script.batches.are_mappings(place) or (opaque and script.batches.hold_tensors(place))
        for place in script.loaders.passes(site.node)
    )


def _collate(script: Script, site: CallSite) -> tuple[cst.BaseExpression, ...] | None:
    """Give what makes the batches, where the call or a dictionary behind `**` says it."""
    given = site.given(*_COLLATE)
    if given is not None:
        return script.origins.of(given.value).values
    if site.argument(*_COLLATE).state in (State.ABSENT, State.UNKNOWN):
        return None
    for arg in site.node.args:
        if arg.star == "**":
            found = script.origins.of(arg.value, (_COLLATE[0],)).values
            if found:
                return found
    return None


def _is_torchs(script: Script, collate: cst.BaseExpression) -> bool:
    """Whether a collate function is one of those that are known to hand out tensors."""
    return isinstance(collate, cst.Lambda) or (
        script.name(collate.func if isinstance(collate, cst.Call) else collate) in _DICTS
    )


def _gives_plain(script: Script, collate: cst.BaseExpression) -> bool:
    name = script.name(collate.func if isinstance(collate, cst.Call) else collate)
    if name in _DICTS:
        return True
    if isinstance(collate, cst.Lambda):
        return _is_plain(script, collate.body)
    function = _function(script, collate)
    if function is None:
        return False
    returned = script.functions.returns(function)
    return bool(returned) and all(_is_plain(script, value) for value in returned)


def _function(script: Script, collate: cst.BaseExpression) -> cst.FunctionDef | None:
    """Give the function of this file that makes the batches."""
    function = script.definition(collate)
    if isinstance(collate, cst.Call):
        owner = script.definition(collate.func)
        function = (
            script.functions.method(owner, "__call__") if isinstance(owner, cst.ClassDef) else None
        )
    return function if isinstance(function, cst.FunctionDef) else None


def _is_plain(script: Script, value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.Call) and script.name(value.func) in (*_DICTS, "builtins.tuple"):
        return True
    return isinstance(value, (cst.Tuple, cst.List, cst.Dict)) or script.kind(value) in _PINNABLE


def may_pin(loader: CallSite) -> bool:
    """Whether a loader is told to pin, by a literal or by what somebody decides elsewhere."""
    given = loader.argument(*_PIN)
    if given.state in (State.ABSENT, State.UNKNOWN):
        return False
    return not (given.equals(False) or given.equals(None))


def hands_out_tensors(script: Script, part: Part, moved: cst.BaseExpression) -> bool:
    """Whether a part of a batch that has `to` or `cuda`, moved here, is surely a plain tensor."""
    loader = script.call(part.loader)
    makers = _collate(script, loader)
    if makers is None:
        if loader.argument(*_COLLATE).state is not State.ABSENT:
            return False
        collated = not loader.argument("batch_size", 1).equals(None)
        return bool(part.steps) or (collated and not script.imports("transformers"))
    if part.steps and isinstance(moved, cst.Name):
        if not any(_function(script, one) or _is_torchs(script, one) for one in makers):
            return script.batches.shows_tensor(part.place, moved.value)
    return bool(makers) and all(_tensor_from(script, one, part) for one in makers)


def _tensor_from(script: Script, collate: cst.BaseExpression, part: Part) -> bool:
    """Whether a collate function puts a tensor where a part is taken from."""
    name = script.name(collate.func if isinstance(collate, cst.Call) else collate)
    if name in _DICTS:
        return bool(part.steps)
    function = script.definition(collate)
    returned: list[cst.BaseExpression] = []
    if isinstance(collate, cst.Lambda):
        returned = [collate.body]
    elif isinstance(function, cst.FunctionDef):
        returned = script.functions.returns(function)
    made = [value for one in returned for value in script.origins.of(one, part.steps).values]
    return bool(made) and all(script.kind(value) in _TENSORS for value in made)
