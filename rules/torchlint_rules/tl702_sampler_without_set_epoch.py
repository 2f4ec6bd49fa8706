"""TL702: a DistributedSampler whose `set_epoch` is never called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Loader, Loop, Role, Rule, Script, is_none

_SAMPLER: Final = "torch.utils.data.DistributedSampler"
_BATCHES: Final = "torch.utils.data.BatchSampler"
_LEAVING: Final = ("none", "deepspeed")
"""Who runs loops and leaves the epochs of their samplers to the script."""
_BECAUSE: Final = "from the second epoch on, samples come in another order"


class SamplerWithoutSetEpoch(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every shuffling sampler whose loader is used for several epochs of training."""
        for site in script.calls.of(_SAMPLER):
            if not _shuffles(script, site.given("shuffle")) or site.has_splat:
                continue
            if _is_told(script, site.node):
                continue
            batches = _repeated(script, site.node)
            if batches is None:
                continue
            edits = _edits(script, site.node, batches)
            fix = Fix.unsafe("Set its epoch", edits, because=_BECAUSE) if edits else None
            yield Finding(self.code, script.span(site.node), _message(script, site.node), fix)


def _shuffles(script: Script, asked: cst.Arg | None) -> bool:
    """Return whether a sampler shuffles by default, or for some caller in view."""
    values = script.values.origins.of(asked.value).values if asked is not None else ()
    return asked is None or any(script.values.value_of(each).equals(True) for each in values)


def _message(script: Script, sampler: cst.Call) -> str:
    name = _assigned(script, sampler)
    called = f"`{name}`" if name else "this sampler"
    owner = name or "loader.sampler"
    return (
        f"{called} returns the same permutation in every epoch: call "
        f"`{owner}.set_epoch(epoch)` at the beginning of each"
    )


def _assigned(script: Script, sampler: cst.Call) -> str:
    """Return the name that a sampler is assigned to where it is built."""
    for outer in script.tree.ancestors(sampler):
        if isinstance(outer, cst.Assign):
            target = outer.targets[0].target
            held = outer.value
            direct = held is sampler or isinstance(held, cst.IfExp)
            return script.code(target) if direct and isinstance(target, cst.Name) else ""
        if not isinstance(outer, cst.IfExp):
            return ""
    return ""


def _is_told(script: Script, sampler: cst.Call) -> bool:
    """Return whether a call of `set_epoch` in the file is, or may be, for a sampler."""
    for site in script.calls.of_methods("set_epoch"):
        told = _samplers(script, site.receiver)
        if told is None or sampler in told:
            return True
    return False


def _samplers(script: Script, node: cst.BaseExpression) -> list[cst.Call] | None:
    """Return the distributed samplers that an expression can be, None if it may be another."""
    if isinstance(node, cst.Attribute) and node.attr.value in ("sampler", "batch_sampler"):
        if loaders := script.loaders.made_by(node.value):
            return [each for made in loaders for each in _drawn_by(script, made)] or None
    origin = script.values.origins.of(node)
    found = [
        value
        for value in origin.values
        if isinstance(value, cst.Call) and script.name(value.func) == _SAMPLER
    ]
    return found if found and origin.complete else None


def _drawn_by(script: Script, loader: Loader) -> list[cst.Call]:
    """Return the distributed samplers that a loader can draw its indices from."""
    none: list[cst.Call] = []
    return script.answer(_under, loader, none)


def _under(script: Script, loader: Loader) -> list[cst.Call]:
    found: list[cst.Call] = []
    for value in (*loader.possible("sampler"), *loader.possible("batch_sampler")):
        if not isinstance(value, cst.Call):
            continue
        if script.name(value.func) == _BATCHES:
            inner = script.calls.at(value).given("sampler")
            found += (_samplers(script, inner.value) or []) if inner is not None else []
        elif script.name(value.func) == _SAMPLER:
            found.append(value)
    return found


def _repeated(script: Script, sampler: cst.Call) -> tuple[Loader, cst.For | None] | None:
    """Return a loader over a sampler that trains several epochs, and the loop over it.

    The loop is None if a generator of this file yields the batches.
    """
    loops = {id(loop.node): loop for loop in script.loops.of(Role.TRAIN_BATCH)}
    for loader in script.loaders:
        if sampler not in _drawn_by(script, loader):
            continue
        for place in loader.repeated:
            if isinstance(place, cst.For) and id(place) in loops:
                if script.loops.owner(place) in _LEAVING:
                    return loader, place
        leaves = any(script.loops.owner(each.node) in _LEAVING for each in loops.values())
        if leaves and any(_streams(script, place) for place in loader.passes):
            return loader, None
    return None


def _streams(script: Script, place: cst.CSTNode) -> bool:
    """Return whether a loop is in a generator that restarts it when it ends."""
    around = next(script.loops.around(place), None)
    function = script.scopes.function(place)
    return (
        isinstance(place, cst.For)
        and around is not None
        and isinstance(around.node, cst.While)
        and script.code(around.node.test) in ("True", "1")
        and function is not None
        and script.functions.is_generator(function)
    )


def _edits(
    script: Script, sampler: cst.Call, batches: tuple[Loader, cst.For | None]
) -> Edits | None:
    """Call `set_epoch` at the start of the epoch loop, None if that is not possible."""
    loader, node = batches
    loop = next((each for each in script.loops.of(Role.TRAIN_BATCH) if each.node is node), None)
    epochs = script.program.epoch_loop(loop) if loop is not None else None
    if loop is None or epochs is None or not isinstance(epochs.node, cst.For):
        return None
    counter = _counter(script, epochs.node)
    written = _spelled(script, sampler, loader, epochs)
    if counter is None or written is None:
        return None
    name, renamed = counter
    owner, test = written
    lines = [f"{owner}.set_epoch({name})"]
    if test:
        lines = [f"if {test}:", f"{script.edits.unit()}{lines[0]}"]
    first = script.edits.first_in(epochs.node.body, *lines)
    return (*renamed, *first) if first is not None else None


def _counter(script: Script, epochs: cst.For) -> tuple[str, Edits] | None:
    """Return the name of the epoch counter, and the edit that introduces it."""
    target = epochs.target
    if not isinstance(target, cst.Name) or not script.values.iteration.counts(epochs.iter):
        return None
    if target.value != "_":
        return target.value, ()
    used = {name.value for name in script.tree.all(cst.Name)}
    if "epoch" in used or any(
        name.value == "_" and name is not target for name in script.tree.within(epochs, cst.Name)
    ):
        return None
    return "epoch", script.edits.replace(target, "epoch")


def _spelled(
    script: Script, sampler: cst.Call, loader: Loader, epochs: Loop
) -> tuple[str, str] | None:
    """Return the name of a sampler in the epoch loop, and the test that it is one."""
    own = _assigned(script, sampler)
    if own and _reaches(script, own, epochs, sampler):
        scope = script.scopes.scope(epochs.node)
        bindings = script.scopes.reaching_name(own, epochs.node, scope)
        values = [value for binding in bindings for value in _choices(binding.value)]
        return own, _test(script, own, values, sampler)
    drawn = _loader_name(script, loader, epochs)
    if drawn is None:
        return None
    arg = loader.given("sampler")
    if arg is None:
        return None
    origin = script.values.origins.of(arg.value)
    owner = f"{drawn}.sampler"
    return (owner, "") if origin.complete and list(origin.values) == [sampler] else None


def _choices(value: cst.BaseExpression | None) -> list[cst.BaseExpression | None]:
    if isinstance(value, cst.IfExp):
        return [*_choices(value.body), *_choices(value.orelse)]
    return [value]


def _test(
    script: Script, name: str, values: list[cst.BaseExpression | None], sampler: cst.Call
) -> str:
    """Return the test that a name's value is the sampler, empty if it always is."""
    others = [value for value in values if value is not sampler]
    if not others:
        return ""
    if all(map(is_none, others)):
        return f"{name} is not None"
    return f"isinstance({name}, {script.code(sampler.func)})"


def _reaches(script: Script, name: str, epochs: Loop, sampler: cst.Call) -> bool:
    """Return whether a name holds the sampler where the epoch loop starts."""
    scope = script.scopes.scope(epochs.node)
    if script.scopes.function(sampler) not in (None, script.scopes.function(epochs.node)):
        return False
    bindings = script.scopes.reaching_name(name, epochs.node, scope)
    return any(script.tree.inside(sampler, binding.node) for binding in bindings)


def _loader_name(script: Script, loader: Loader, epochs: Loop) -> str | None:
    """Return the name of the loader in the epoch loop, or in a call there."""
    body = epochs.node.body
    kinds: tuple[type[cst.Name] | type[cst.Attribute], ...] = (cst.Name, cst.Attribute)
    seen = [node for kind in kinds for node in script.tree.within(body, kind)]
    for node in seen:
        if script.scopes.home(node) is script.scopes.home(epochs.node):
            if script.loaders.made_by(node) == [loader]:
                return script.code(node)
    for assign in script.tree.all(cst.Assign):
        target = assign.targets[0].target
        code = script.code(target)
        if assign.value is loader.node and code.startswith("self."):
            owner = script.scopes.class_of(assign)
            return code if script.scopes.class_of(epochs.node) is owner else None
    return None
