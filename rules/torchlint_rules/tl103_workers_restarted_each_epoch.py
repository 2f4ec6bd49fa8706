"""TL103: workers that are restarted in every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    CALLERS,
    Finding,
    Fix,
    Impact,
    Kind,
    Loader,
    Rule,
    Script,
    State,
    TrainerArguments,
    Trait,
    root_of,
)
from torchlint_rules.shared.grouping import joined, maker
from torchlint_rules.shared.rebuilding import ways

_CHANGING: Final = ("set", "update", "reset", "shuffle", "resample", "next", "add", "append")
_PERSISTENT: Final = "dataloader_persistent_workers"
_MOST: Final = 1024
_RARE: Final = 500
"""The steps between two evaluations beside which a start of workers takes no time."""
_PROCESSORS: Final = ("os.cpu_count", "os.process_cpu_count", "multiprocessing.cpu_count")


class WorkersRestartedEachEpoch(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loader that restarts the same workers in each epoch."""
        yield from joined(script, self._of_loaders(script), ("loader", "loaders"))
        for arguments in script.program.trainings.arguments("transformers", "trl"):
            yield from self._of_trainer(script, arguments)

    def _of_loaders(self, script: Script) -> Iterator[tuple[cst.CSTNode, Finding]]:
        for loader in script.tree.in_file(script.loaders):
            workers = _workers(script, loader)
            if workers is None or not _restarts_same(script, loader):
                continue
            message = (
                f"{loader.label} restarts its {workers.told} every epoch; "
                f"pass persistent_workers={workers.kept or 'True if there are any'}"
            )
            fix = None
            if workers.kept:
                fix = Fix.unsafe(
                    f"Pass persistent_workers={workers.kept}",
                    script.edits.with_keyword(loader.node, "persistent_workers", workers.kept),
                    because="under the same seed the order differs from the second epoch on",
                )
            place, impact = script.span(loader.node), workers.impact
            yield maker(script, loader.node), Finding(self.code, place, message, fix, impact=impact)

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
    if epochs is None:  # a trainer that evaluates after each epoch runs several
        several = strategy is not None and strategy.value == "epoch"
    else:
        several = type(epochs.value) in (int, float) and epochs.value > 1
    return "every epoch" if several and limit is not None and limit.value == -1 else ""


class _Workers(NamedTuple):
    """The workers of a loader: what to call them, and the code that says whether to keep them."""

    told: str
    kept: str
    """Empty if no short expression says it."""
    impact: Impact | None = None


def _workers(script: Script, loader: Loader) -> _Workers | None:
    """Return the workers of a loader, None if it has none or none by default."""
    number, given = loader.workers, loader.expression("num_workers")
    if number.is_literal:
        count = number.literal
        if type(count) is not int or count < 1:
            return None
        told = "one worker" if count == 1 else f"{count} workers"
        if isinstance(given, cst.Attribute):  # other code may set it to 0
            return _Workers(told, _above_zero(script, loader, given))
        return _Workers(told, "True")
    if given is None and number.state is State.DECIDED:
        counts = [each.literal for each in loader.chosen_workers]
        sure = bool(counts) and all(type(each) is int and each > 0 for each in counts)
        return _Workers("workers", "") if sure else None
    if given is None or number.state in (State.ABSENT, State.UNKNOWN):
        return None
    test = _above_zero(script, loader, given)
    option = script.values.options.of(given)
    if option is not None and type(option.default) is int:
        told = f"workers (`{option.flag}` is {option.default} by default)"
        return _Workers(told, test) if option.default > 0 else None
    if _is_positive(script, number.node or given):
        return _Workers("workers", "True")
    if _is_zero(script, given):
        return None
    plain = isinstance(root_of(given, items=True), cst.Name)
    return _Workers("workers", test if plain else "", "low")


def _above_zero(script: Script, loader: Loader, given: cst.BaseExpression) -> str:
    """Return the code that says whether there are workers, empty unless the call spells it out."""
    return f"{script.code(given)} > 0" if loader.given("num_workers") is not None else ""


def _is_zero(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a number is 0 by default: that of a parameter, or what an attribute gets."""
    if isinstance(node, cst.Integer):
        return int(node.value, 0) == 0
    bindings = script.functions.bindings(node)
    given = [each.parameter.default if each.parameter else each.value for each in bindings]
    return bool(given) and all(each and script.answer(_is_zero, each, False) for each in given)


def _is_positive(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a number is certainly above zero, as that of the processors is."""
    found = script.values.value_of(node).node or node
    if isinstance(found, cst.Integer):
        return int(found.value, 0) > 0
    if isinstance(found, cst.IfExp):
        return _is_positive(script, found.body) and _is_positive(script, found.orelse)
    if isinstance(found, cst.BooleanOperation) and isinstance(found.operator, cst.Or):
        return _is_positive(script, found.right)
    if not isinstance(found, cst.Call):
        return False
    name = script.name(found.func)
    if name in ("builtins.min", "builtins.max"):
        sizes = [_is_positive(script, arg.value) for arg in found.args]
        return any(sizes) if name == "builtins.max" else all(sizes)
    return name in _PROCESSORS


def _restarts_same(script: Script, loader: Loader) -> bool:
    """Return whether each epoch starts workers that see the same dataset as those before."""
    return (
        loader.argument("persistent_workers").state is State.ABSENT
        and loader.dataset is not None
        and Trait.IN_MEMORY not in loader.traits
        and bool(loader.repeated)
        and not _is_changed(script, loader)
        and not loader.takes_one_batch_a_pass
    )


def _is_changed(script: Script, loader: Loader) -> bool:
    """Return whether the script changes the dataset of a loader after building the loader."""
    dataset = loader.dataset
    if dataset is None:
        return True
    word = script.code(dataset)
    objects = {id(value) for value in script.values.origins.of(dataset).values}
    for target in _changed(script):
        owner = target
        while isinstance(owner, (cst.Attribute, cst.Subscript)):
            owner = owner.value
            if _may_follow(script, owner, loader) and _is_dataset(
                script, owner, loader, objects, word
            ):
                return True
    return False


def _may_follow(script: Script, node: cst.CSTNode, loader: Loader) -> bool:
    """Return whether code runs after a loader is made: below it, or repeatedly elsewhere."""
    if script.tree.order(node) > script.tree.order(loader.node):
        return True
    elsewhere = script.scopes.home(node) is not script.scopes.home(loader.node)
    return elsewhere and next(ways(script, node, CALLERS), None) is not None


def _is_dataset(
    script: Script, node: cst.BaseExpression, loader: Loader, objects: set[int], word: str
) -> bool:
    if isinstance(node, cst.Attribute) and node.attr.value == "dataset":
        return loader in script.loaders.made_by(node.value)
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
        if not isinstance(call.func, cst.Attribute):
            continue
        if next(ways(script, call, CALLERS), None) is None:
            continue
        if isinstance(script.tree.parent(call), cst.Expr) or call.func.attr.value.startswith(
            _CHANGING
        ):
            yield call.func
