"""Techniques of the input pipeline."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.audit.questions import (
    accelerated,
    calls,
    in_use_at_training,
    keyword,
    loader_option,
    loading,
    owned,
    trained,
    trainer_option,
    unknown,
    unless,
    words,
)
from torchlint.audit.survey import Survey
from torchlint.audit.technique import (
    Answer,
    Technique,
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
                return not_applicable(f"what {_label(survey)} reads {why}")
    return None


def _label(survey: Survey) -> str:
    return survey.loaders[0].label


def _has_workers(survey: Survey) -> bool:
    counts = [loader.workers for loader in survey.loaders]
    return not all(each.state is State.ABSENT or survey.is_off(each) for each in counts)


_NO_WORKERS: Final = unless(_has_workers, "no loader here has workers")


def _is_repeated(survey: Survey) -> bool:
    return any(loader.repeated for loader in survey.loaders)


def _may_pin(survey: Survey) -> bool:
    return survey.script.program.target.device != "mps"


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


PIPELINE: Final = (
    Technique(
        "workers load batches",
        ("S0", "S1", "S2", "S3.2"),
        (loader_option("num_workers", 5), trainer_option("dataloader_num_workers"), loading,
         _gains_nothing,
         unknown("whether reading an item costs enough to pay for workers")),
        ("TL101",),
        "measured x1.6 with two workers on two CPU cores; x3.2 with four where items wait for"
        " the disk",
    ),
    Technique(
        "batches in pinned memory",
        ("S0", "S1", "S2", "S3.2"),
        (loader_option("pin_memory", 7), accelerated,
         unless(_may_pin, "MPS has no pinned memory"),
         loading, _unpinned,
         unknown("whether the batches of the loaders go to a GPU from here")),
        ("TL102",),
        "cited: an epoch in half the time, together with four workers",
    ),
    Technique(
        "persistent workers, prefetched batches",
        ("S0",),
        (loader_option("persistent_workers"), loader_option("prefetch_factor"),
         trainer_option("dataloader_persistent_workers"), loading, _NO_WORKERS,
         unless(_is_repeated, "no loader is iterated more than once"),
         unknown("whether the same workers could serve every epoch")),
        ("TL103",),
        "measured x3.5 to x4.0 an epoch of 512 small items, two CPU cores",
    ),
    Technique(
        "one OpenCV thread in each worker",
        ("S1",),
        (calls(r"cv2\.setNumThreads"),
         unless(lambda survey: survey.script.functions.imports("cv2", "albumentations"),
                "OpenCV is not used here"),
         unknown("whether workers run OpenCV, and how many threads each has")),
        ("TL110",),
        "measured x1.44 for 2 workers with 16 threads each on two CPU cores",
    ),
    Technique(
        "batches as they come, not in order",
        (),
        (_as_they_come, loading, _NO_WORKERS,
         unknown("whether some items take much longer than others")),
        gain="no figure yet; where a slow item holds up the batches of other workers",
    ),
    Technique(
        "batches copied to the device before work on them",
        ("S2",),
        (accelerated, trained,
         in_use_at_training("no rule found work on a batch before its copy")),
        ("TL112",),
        "copies a quarter of the bytes of images that stay in 8 bits until then",
    ),
    Technique(
        "loaders created once",
        ("S2",),
        (loading, _made_once),
        ("TL104",),
        "measured x3.5 an epoch together with persistent workers, x1.0 alone, two CPU cores",
    ),
    Technique(
        "arrays become tensors without a copy",
        ("S3.12",),
        (calls(r"torch\.(?:from_numpy|as_tensor)"), _ARRAYS, _copying),
        ("TL105",),
        "measured x2.7 an epoch of small images on two CPU cores",
    ),
    Technique(
        "arrays stacked before they become tensors",
        ("S3.12",),
        (calls(r"(?:numpy|torch)\.stack"), _ARRAYS, _listed),
        ("TL106",),
        "measured x205 to x280 for the conversion of 64 arrays, two CPU cores",
    ),
    Technique(
        "no GPU work in datasets",
        ("S1", "S2"),
        (accelerated, _reads_items, _items_on_host),
        ("TL107",),
    ),
    Technique(
        "batches indexed whole",
        ("S1",),
        (_fetched_together, loading, _in_memory),
        ("TL108",),
        "measured x1.8 for a whole script on two CPU cores",
    ),
    Technique(
        "repeated work of items cached",
        ("S1",),
        (calls(r"numpy\.memmap|joblib\.Memory"),
         _keeps_items, _reads_items, _nothing_repeated),
        ("TL109",),
    ),
    Technique(
        "texts tokenized once, many at a time",
        ("S1",),
        (keyword("batched"),
         unless(lambda survey: survey.word(r"\w*tokeniz\w*"), "no text is tokenized in this file"),
         unknown("where and how often the texts are tokenized")),
        ("TL111", "TL114"),
        "measured x1.9 for `map` over texts in batches on two CPU cores",
    ),
    Technique(
        "inputs normalized",
        ("S3.17",),
        (calls(r"(?:torchvision\.transforms|albumentations)\.(?:\w+\.)*Normalize"),
         words("(?-i:Normalize)|StandardScaler|MinMaxScaler|standardi[sz]e"),
         _divided_by_deviation, owned, _prepared),
    ),
)  # fmt: skip
