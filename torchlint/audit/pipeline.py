"""Questions about techniques of the input pipeline."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.audit.questions import (
    unless,
)
from torchlint.audit.survey import Survey
from torchlint.audit.technique import (
    Answer,
    by_name,
    cannot_tell,
    clean,
    elsewhere,
    in_use,
    not_applicable,
    used,
)
from torchlint.semantic.data.datasets import Trait
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.values import State

_CACHE: Final = re.compile(r"_?(?:\w+_)?cached?(?:_\w+)?")
_TENSOR: Final = re.compile(r"torch\.(?:tensor|FloatTensor|LongTensor|Tensor)")
_ARRAYS: Final = unless(
    lambda survey: survey.script.functions.imports("numpy", "pandas", "cv2", "PIL"),
    "there are no NumPy arrays here",
)
_USELESS: Final = {
    Trait.IN_MEMORY: "only indexes what is in memory: workers would slow it down",
    Trait.FEW: "has so few items that starting workers costs more",
    Trait.ON_DEVICE: "yields tensors that are on the GPU already",
    Trait.UNSHARDED: "would yield the whole stream from every worker",
    Trait.MUTATES: "changes itself when it is read: workers would change copies",
    Trait.HANDLE: "holds an open file, which workers cannot share",
}


def _gains_nothing(survey: Survey) -> Answer | None:
    for loader in survey.loaders:
        for trait, why in _USELESS.items():
            if trait in loader.traits:
                return not_applicable(f"what {survey.loaders[0].label} reads {why}")
    return None


def _has_workers(survey: Survey) -> bool:
    counts = [loader.workers for loader in survey.loaders]
    return not all(each.state is State.ABSENT or survey.is_off(each) for each in counts)


_NO_WORKERS: Final = unless(_has_workers, "no loader here has workers")


def _unpinned(survey: Survey) -> Answer | None:
    for loader in survey.loaders:
        if loader.argument("pin_memory").equals(False):
            return not_applicable("`pin_memory=False` is set explicitly")
    return None


def _fetched_together(survey: Survey) -> Answer | None:
    for loader in survey.loaders:
        if loader.batch_size.equals(None):
            return in_use(survey.line(loader.node), "`batch_size=None`: the sampler yields batches")
    for function in survey.script.tree.all(cst.FunctionDef):
        if function.name.value == "__getitems__":
            return used(survey, function.name)
    return None


def _in_memory(survey: Survey) -> Answer | None:
    for loader in survey.loaders:
        if Trait.IN_MEMORY in loader.traits:
            return cannot_tell("whether this dataset can be indexed with a whole batch")
    return not_applicable("no loader here reads tensors that are in memory")


def _made_once(survey: Survey) -> Answer | None:
    if not survey.loaders:
        return None
    line = survey.line(survey.loaders[0].node)
    return clean(line, "no rule found a loader that a loop creates again")


def _reads_items(survey: Survey) -> Answer | None:
    if survey.script.loaders.items.all():
        return None
    return elsewhere("no dataset is defined here")


def _items_on_host(survey: Survey) -> Answer | None:
    code = survey.script.loaders.items.all()[0]
    return in_use(survey.line(code.node), f"`{code.label}` works on the host only")


def _keeps_items(survey: Survey) -> Answer | None:
    for name in ("functools.lru_cache", "functools.cache"):
        found = survey.named(name)
        if found is not None:
            return used(survey, found)
    for code in survey.script.loaders.items.all():
        for node in survey.script.tree.within(code.owner or code.node, cst.Attribute):
            if _CACHE.fullmatch(node.attr.value):
                return in_use(survey.line(node), survey.quoted(node))
    return None


def _nothing_repeated(survey: Survey) -> Answer | None:
    code = survey.script.loaders.items.all()[0]
    return cannot_tell(f"what `{code.label}` could keep from one epoch to the next")


def _prepared(survey: Survey) -> Answer:
    if survey.word("transforms|ToTensor|Image|cv2|imread|imageio"):
        return cannot_tell("whether the images are normalized where they are prepared")
    if survey.script.loaders.items.all():
        return not_applicable("no images are read here")
    if survey.called(r"torch\.nn\.Embedding"):
        return not_applicable("the network reads indices, not measurements")
    return elsewhere("the data is prepared elsewhere")


def _copying(survey: Survey) -> Answer | None:
    call = survey.called(_TENSOR.pattern)
    if call is None:
        return not_applicable("no array becomes a tensor here")
    return cannot_tell(f"whether {survey.placed(call)} gets an array")


def _listed(survey: Survey) -> Answer:
    for name, call in survey.named_calls:
        if _TENSOR.fullmatch(name) and call.args:
            given = call.args[0].value
            value = survey.script.values.value_of(given).node or given
            if isinstance(value, (cst.List, cst.ListComp)) or (
                survey.script.kind(given) is Kind.SEQUENCE
            ):
                return cannot_tell(f"whether the list for {survey.placed(call)} holds arrays")
    return not_applicable("no tensor is made from a list here")


def _as_they_come(survey: Survey) -> Answer | None:
    for loader in survey.loaders:
        given = loader.given("in_order")
        if given is not None and loader.argument("in_order").equals(False):
            return used(survey, given)
    return None


def _divided_by_deviation(survey: Survey) -> Answer | None:
    for node in survey.script.tree.all(cst.BinaryOperation):
        if isinstance(node.operator, cst.Divide) and isinstance(node.left, cst.BinaryOperation):
            if isinstance(node.left.operator, cst.Subtract):
                if "std" in survey.script.code(node.right).lower():
                    return used(survey, node)
    return None


PIPELINE: Final = by_name(
    _gains_nothing,
    _unpinned,
    _as_they_come,
    _made_once,
    _copying,
    _listed,
    _reads_items,
    _items_on_host,
    _fetched_together,
    _in_memory,
    _keeps_items,
    _nothing_repeated,
    _divided_by_deviation,
    _prepared,
    arrays=_ARRAYS,
    no_workers=_NO_WORKERS,
    opencv=lambda survey: survey.script.functions.imports("cv2", "albumentations"),
    tokenizes=lambda survey: survey.word(r"\w*tokeniz\w*"),
    is_repeated=lambda survey: any(loader.repeated for loader in survey.loaders),
    may_pin=lambda survey: survey.script.program.target.device != "mps",
)
