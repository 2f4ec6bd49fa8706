"""The data of Transformers' trainers: which read items that cost work, and how they load them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Script, TrainerArguments, TrainerCall, Trait, Traits, word_of
from torchlint_rules.shared.tokenizers import functions_of, tokenizer_of

_TRANSFORMS: Final = ("with_transform", "set_transform")
_NO_WORK: Final = (
    Trait.IN_MEMORY, Trait.UNSHARDED, Trait.MUTATES, Trait.HANDLE, Trait.ON_DEVICE, Trait.FEW,
    Trait.ITERABLE,
)  # fmt: skip
_PROCESSORS: Final = frozenset("processor extractor".split())
_MASKING: Final = ("ForLanguageModeling", "ForWholeWordMask", "ForPermutationLanguageModeling")


class TrainerData(NamedTuple):
    """A trainer, its arguments, and the dataset that does work for each of its items."""

    trainer: TrainerCall
    arguments: TrainerArguments
    dataset: cst.BaseExpression
    traits: Traits


def trained_data(script: Script) -> Iterator[TrainerData]:
    """Yield the trainers whose dataset the file shows to work for each item."""
    if script.source.is_notebook:
        return
    for trainer in script.program.trainings.trainers("transformers", "trl"):
        dataset = trainer.given("train_dataset")
        owner = script.functions.definition(trainer.call.func)
        if trainer.arguments is None or dataset is None:
            continue
        if isinstance(owner, cst.ClassDef):
            if script.functions.method(owner, "get_train_dataloader") is not None:
                continue
        traits = _traits(script, trainer, dataset)
        if traits is not None and not any(trait in traits for trait in _NO_WORK):
            yield TrainerData(trainer, trainer.arguments, dataset, traits)


def _traits(script: Script, trainer: TrainerCall, dataset: cst.BaseExpression) -> Traits | None:
    """Return the traits of what is done for each item, None if no work is in sight."""
    transforms = list(_transforms(script, dataset))
    collate = trainer.given("data_collator")
    found: dict[Trait, str] = {}
    for one in transforms:
        found.update(script.loaders.datasets.callable_traits(one))
    if not transforms:
        if _is_own(script, dataset):
            found.update(script.loaders.datasets.traits(dataset))
        elif collate is None or not _processes(script, collate):
            return None
    if collate is not None:
        found = {**script.loaders.datasets.callable_traits(collate), **found}
        if _masks(script, collate):
            found[Trait.RANDOM] = script.code(collate)
    return found


def _transforms(script: Script, dataset: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the functions that a dataset of `datasets` runs whenever an item is read."""
    made = script.values.origins.of(dataset).values
    for site in script.calls.of_methods(*_TRANSFORMS):
        given = site.given("transform")
        same = script.code(site.receiver) == script.code(dataset)
        if given is not None and (same or any(site.node is value for value in made)):
            yield given.value


def _processes(script: Script, collate: cst.BaseExpression) -> bool:
    """Return whether a collator in view tokenises texts or prepares images, batch by batch."""
    made = (functions_of(script, value) for value in script.values.origins.of(collate).values)
    run = (call for some in made for each in some for call in script.functions.run_in(each))
    return any(_prepares(script, call) for call in run)


def _prepares(script: Script, call: cst.Call) -> bool:
    """Return whether a call tokenises, or runs a processor of images, sounds or both."""
    called = script.functions.definition(call.func) is None
    words = script.names.words(word_of(call))
    return (called and not _PROCESSORS.isdisjoint(words)) or tokenizer_of(script, call) is not None


def _is_own(script: Script, dataset: cst.BaseExpression) -> bool:
    """Return whether a dataset can only be an instance of classes in view that read by index."""
    origin = script.values.origins.of(dataset)
    classes = [
        script.functions.definition(value.func) if isinstance(value, cst.Call) else None
        for value in origin.values
    ]
    return (
        origin.complete
        and bool(classes)
        and all(
            isinstance(owner, cst.ClassDef)
            and script.functions.method(owner, "__getitem__") is not None
            for owner in classes
        )
    )


def _masks(script: Script, collate: cst.BaseExpression) -> bool:
    """Return whether a collator of Transformers masks words at random."""
    for value in script.values.origins.of(collate).values:
        name = script.name(value.func) or "" if isinstance(value, cst.Call) else ""
        if isinstance(value, cst.Call) and name.endswith(_MASKING):
            if not script.calls.at(value).argument("mlm").equals(False):
                return True
    return False
