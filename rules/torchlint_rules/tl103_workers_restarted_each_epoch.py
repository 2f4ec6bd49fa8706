"""TL103: workers that are restarted in every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import CallSite, Finding, Fix, Kind, Rule, Script, State, TrainerArguments, Trait

_CHANGING: Final = ("set", "update", "reset", "shuffle", "resample", "next", "add", "append")
_WORKERS: Final = "num_workers"
_PERSISTENT: Final = "dataloader_persistent_workers"
_MOST: Final = 1024
_RARE: Final = 500
"""The steps between two evaluations beside which a start of workers takes no time."""
_PROCESSORS: Final = ("os.cpu_count", "multiprocessing.cpu_count")


class WorkersRestartedEachEpoch(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loader that restarts the same workers in each epoch."""
        for site in script.calls.of("torch.utils.data.DataLoader"):
            workers = site.argument(_WORKERS)
            option = _option(script, site)
            if option is None and not (workers.node and _is_positive(script, workers.node)):
                continue
            if site.argument("persistent_workers").state is not State.ABSENT:
                continue
            dataset = site.given("dataset")
            if dataset is None or Trait.IN_MEMORY in script.loaders.datasets.traits(dataset.value):
                continue
            if not script.loaders.repeated(site.node) or _is_changed(script, site.node):
                continue
            if script.loaders.takes_one_batch_a_pass(site.node):
                continue
            counted = f"{workers.literal} workers" if workers.is_literal else "workers"
            told = "one worker" if counted == "1 workers" else counted
            value = "True"
            if option is not None:
                told = f"workers (`{option.flag}` is {option.default} by default)"
                value = f"{script.code(option.node)} > 0"
            message = (
                f"{script.loaders.label(site.node)} restarts its {told} every epoch; "
                f"pass persistent_workers={value}"
            )
            fix = Fix.unsafe(
                f"Pass persistent_workers={value}",
                script.edits.with_keyword(site.node, "persistent_workers", value),
                because="under the same seed the order differs from the second epoch on",
            )
            yield Finding(self.code, script.span(site.node), message, fix)
        for arguments in script.program.trainings.arguments("transformers", "trl"):
            yield from self._of_trainer(script, arguments)

    def _of_trainer(self, script: Script, arguments: TrainerArguments) -> Iterator[Finding]:
        workers = arguments.setting("dataloader_num_workers")
        kept = arguments.setting(_PERSISTENT)
        if workers is None or workers.is_default or not workers.counts(_MOST):
            return
        when = _restarts(arguments)
        if kept is None or not kept.is_default or not when:
            return
        told = "its worker" if workers.value == 1 else f"its {workers.value} workers"
        message = f"the trainer restarts {told} {when}; pass {_PERSISTENT}=True"
        fix = None
        if arguments.is_recent and arguments.takes(_PERSISTENT):
            fix = Fix.unsafe(
                f"Pass {_PERSISTENT}=True",
                script.edits.with_keyword(arguments.call, _PERSISTENT, "True"),
                because="random numbers, like those of dropout, differ from the second epoch on",
            )
        notes = arguments.notes("dataloader_num_workers")
        yield Finding(self.code, script.span(arguments.call), message, fix, notes)


def _restarts(arguments: TrainerArguments) -> str:
    """Return when a trainer starts its workers again, empty if it may do so once only."""
    if arguments.is_trial:
        return ""
    strategy, steps = arguments.setting("eval_strategy"), arguments.setting("eval_steps")
    if strategy is not None and strategy.value == "steps" and steps is not None:
        rare = type(steps.value) is int and steps.value >= _RARE
        return "" if rare else "for every evaluation"
    epochs, limit = arguments.setting("num_train_epochs"), arguments.setting("max_steps")
    whole = epochs is not None and type(epochs.value) in (int, float) and epochs.value > 1
    return "every epoch" if whole and limit is not None and limit.value == -1 else ""


class _Workers(NamedTuple):
    """A number of workers that an option of the command line sets, with its default."""

    node: cst.BaseExpression
    flag: str
    default: int


def _option(script: Script, site: CallSite) -> _Workers | None:
    """Return the option that sets the number of workers if its default is above zero."""
    given = site.given(_WORKERS)
    option = script.values.options.of(given.value) if given is not None else None
    if given is None or option is None or type(option.default) is not int or option.default < 1:
        return None
    return _Workers(given.value, option.flag, option.default)


def _is_positive(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a number of workers is a literal above zero, or that of the processors."""
    found = script.values.value_of(node).node or node
    if isinstance(found, cst.Call) and script.name(found.func) in _PROCESSORS:
        return True
    return isinstance(found, cst.Integer) and int(found.value, 0) > 0


def _is_changed(script: Script, made: cst.Call) -> bool:
    """Return whether the script changes the dataset of a loader after building the loader."""
    dataset = script.calls.at(made).given("dataset")
    if dataset is None:
        return True
    word = script.code(dataset.value)
    objects = {id(value) for value in script.values.origins.of(dataset.value).values}
    for target in _changed(script):
        owner = target
        while isinstance(owner, (cst.Attribute, cst.Subscript)):
            owner = owner.value
            if script.tree.order(owner) > script.tree.order(made) and _is_dataset(
                script, owner, made, objects, word
            ):
                return True
    return False


def _is_dataset(
    script: Script, node: cst.BaseExpression, made: cst.Call, objects: set[int], word: str
) -> bool:
    if isinstance(node, cst.Attribute) and node.attr.value == "dataset":
        return made in script.loaders.made_by(node.value)
    if not isinstance(node, (cst.Name, cst.Attribute)) or script.kind(node) is Kind.LOADER:
        return False
    return script.code(node) == word or any(
        id(value) in objects for value in script.values.origins.of(node).values
    )


def _changed(script: Script) -> Iterator[cst.BaseExpression]:
    """Yield written targets, and objects of called methods that may modify them."""
    for line in script.tree.all(cst.Assign):
        for each in line.targets:
            if isinstance(each.target, (cst.Attribute, cst.Subscript)):
                yield each.target
    for added in script.tree.all(cst.AugAssign):
        if isinstance(added.target, (cst.Attribute, cst.Subscript)):
            yield added.target
    for call in script.tree.all(cst.Call):
        if not isinstance(call.func, cst.Attribute) or not any(
            True for _ in script.loops.around(call)
        ):
            continue
        if isinstance(script.tree.parent(call), cst.Expr) or call.func.attr.value.startswith(
            _CHANGING
        ):
            yield call.func
