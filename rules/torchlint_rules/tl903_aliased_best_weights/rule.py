"""TL903: best weights that are not copied and keep training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Edits,
    Finding,
    Fix,
    Kind,
    Loop,
    Role,
    Rule,
    Script,
    container_of,
    method_of,
    receiver_of,
    root_of,
)
from torchlint_rules.tl903_aliased_best_weights.beststate import is_saved, stays

_BEST: Final = frozenset("best better improved improves improvement lowest highest min max".split())
_NETWORKS: Final = (Kind.MODULE, Kind.UNKNOWN)
_SHALLOW: Final = frozenset({"copy.copy", "builtins.dict", "collections.OrderedDict"})
_ORDERED: Final = (cst.LessThan, cst.GreaterThan, cst.LessThanEqual, cst.GreaterThanEqual)


class AliasedBestWeights(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every state dict, and every network, that is kept as the best without a copy."""
        for line in _candidates(script):
            for target, value in _pairs(line):
                live = _live(script, value)
                whole = not live and _is_network(script, target, value)
                if not live and not whole:
                    continue
                owner = value if whole else script.calls.at(live[0]).receiver
                if not _is_kept(script, line, target, owner):
                    continue
                name, network = script.code(target), script.code(owner)
                held = (
                    f"is `{network}` itself" if whole else f"holds the live weights of `{network}`"
                )
                message = (
                    f"`{name}` {held}, which go{'es' if whole else ''} on training: at the end it "
                    "holds the last weights, not the best; keep a deep copy"
                )
                fix = _fix(script, target, [value] if whole else live, whole)
                yield Finding(self.code, script.span(line), message, fix)


def _candidates(script: Script) -> Iterator[cst.Assign]:
    """Yield the assignments of a state dict, and those of a name to a name."""
    taking = {id(_line(script, site.node)) for site in script.calls.of_methods("state_dict")}
    for line in script.tree.all(cst.Assign):
        if id(line) in taking or isinstance(line.value, (cst.Name, cst.Attribute, cst.Tuple)):
            yield line


def _line(script: Script, node: cst.CSTNode) -> cst.CSTNode | None:
    """Return the assignment around a node."""
    at: cst.CSTNode | None = node
    while at is not None and not isinstance(at, (cst.Assign, cst.BaseStatement)):
        at = script.tree.parent(at)
    return at


def _pairs(line: cst.Assign) -> list[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Return the targets of an assignment with their values."""
    if len(line.targets) != 1:
        return []
    target, value = line.targets[0].target, line.value
    if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
        return [
            (one.value, other.value)
            for one, other in zip(target.elements, value.elements, strict=False)
        ]
    return [(target, value)]


def _is_network(script: Script, target: cst.BaseExpression, value: cst.BaseExpression) -> bool:
    """Return whether a network itself is assigned to a target named as the best."""
    if not isinstance(value, (cst.Name, cst.Attribute)) or not _speaks(script, target):
        return False
    return script.kind(value) is Kind.MODULE


def _live(script: Script, value: cst.BaseExpression) -> list[cst.Call]:
    """Return the calls of `state_dict` whose live tensors a value holds, the network's first."""
    if isinstance(value, cst.Dict):
        found = [
            call
            for each in value.elements
            if isinstance(each, cst.DictElement)
            for call in _live(script, each.value)
        ]
        networks = [
            call for call in found if script.kind(script.calls.at(call).receiver) in _NETWORKS
        ]
        return [*networks, *(call for call in found if call not in networks)] if networks else []
    if isinstance(value, cst.Tuple):
        return [call for each in value.elements for call in _live(script, each.value)]
    if isinstance(value, cst.DictComp):
        return _live(script, _gone_through(value))
    if not isinstance(value, cst.Call):
        return []
    owner = receiver_of(value, "state_dict", "copy")
    if owner is not None and method_of(value) == "state_dict":
        return [value] if script.kind(owner) in (*_NETWORKS, Kind.OPTIMIZER) else []
    if owner is not None and not value.args:
        return _live(script, owner)
    if script.name(value.func) in _SHALLOW and len(value.args) == 1 and not value.args[0].star:
        return _live(script, value.args[0].value)
    return []


def _gone_through(value: cst.DictComp) -> cst.BaseExpression:
    """Return the mapping whose values `{k: v for k, v in state.items()}` shares."""
    drawn, target = value.for_in.iter, value.for_in.target
    owner = receiver_of(drawn, "items")
    if owner is None or not isinstance(target, cst.Tuple):
        return value.value
    second = target.elements[-1].value
    kept = isinstance(value.value, cst.Name) and value.value.deep_equals(second)
    return owner if kept else value.value


# -- what is kept -------------------------------------------------------------


def _is_kept(
    script: Script, line: cst.Assign, target: cst.BaseExpression, owner: cst.BaseExpression
) -> bool:
    """Return whether a target holds the best weights of a network that keeps training."""
    root = container_of(target)
    if script.kind(owner) not in _NETWORKS or not _is_guarded(script, line, target):
        return False
    if isinstance(root, cst.Attribute):
        return not _is_used_at_once(script, line, root)
    loop = _training(script, line, owner)
    bound = script.scopes.stored(root)
    return loop is not None and any(
        script.tree.order(use) >= script.tree.end(loop.node)
        or (
            script.tree.inside(use, loop.node)
            and script.tree.order(use) < script.tree.order(line)
            and (bound is None or bound in script.scopes.reaching(use))
        )
        or (bound is not None and stays(script, line, bound, loop, use))
        for use in _uses(script, root)
    )


def _speaks(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a name in an expression says that a value is the best."""
    said = [name.value for name in script.tree.within(node, cst.Name)]
    said += [attribute.attr.value for attribute in script.tree.within(node, cst.Attribute)]
    said += [text.value for text in script.tree.within(node, cst.SimpleString)]
    return any(not _BEST.isdisjoint(script.names.words(name)) for name in said)


def _is_guarded(script: Script, line: cst.Assign, target: cst.BaseExpression) -> bool:
    """Return whether a line runs after an improvement and training continues."""
    if any(
        isinstance(each, (cst.Break, cst.Return, cst.Raise)) for each in script.tree.beside(line)
    ):
        return False
    kept = _kept_beside(script, line)
    return any(
        _speaks(script, test)
        or any(
            isinstance(each.comparisons[0].operator, _ORDERED)
            and (
                _speaks(script, target)
                or not kept.isdisjoint(
                    map(script.code, (each.left, each.comparisons[0].comparator))
                )
            )
            for each in script.tree.within(test, cst.Comparison)
        )
        for test in script.tree.tests_around(line)
    )


def _kept_beside(script: Script, line: cst.Assign) -> set[str]:
    """Return the names to which the lines beside give another name's value: the best so far."""
    lines = [each for each in script.tree.beside(line) if isinstance(each, cst.Assign)]
    pairs = (pair for each in lines for pair in _pairs(each))
    named = (cst.Name, cst.Attribute)
    return {script.code(target) for target, value in pairs if isinstance(value, named)}


def _training(script: Script, line: cst.Assign, owner: cst.BaseExpression) -> Loop | None:
    """Return the loop around a line that trains a network built before the loop."""
    bindings = script.scopes.reaching(root_of(owner))
    for loop in script.loops.around(line):
        trains = loop.role in (Role.EPOCH, Role.TRAIN_BATCH) or (
            isinstance(loop.node, cst.For)
            and isinstance(loop.node.target, cst.Name)
            and "epoch" in script.names.words(loop.node.target.value)
        )
        if trains and not any(script.tree.inside(each.node, loop.node) for each in bindings):
            return loop
    return None


def _uses(script: Script, root: cst.BaseExpression) -> list[cst.Name]:
    """Return the places of the same scope that read a name."""
    if not isinstance(root, cst.Name):
        return []
    scope = script.scopes.scope(root)
    return [
        name
        for name in script.tree.within(scope.node, cst.Name)
        if name.value == root.value
        and script.scopes.reads(name)
        and not _is_target(script, name)
        and script.scopes.lookup(name.value, script.scopes.scope(name)) is scope
    ]


def _is_target(script: Script, name: cst.Name | cst.Attribute) -> bool:
    """Return whether a name is the container of an assigned key (`best["model"] = …`)."""
    holder = script.tree.parent(name)
    return isinstance(holder, cst.Subscript) and isinstance(
        script.tree.parent(holder), (cst.AssignTarget, cst.Comparison)
    )


def _is_used_at_once(script: Script, line: cst.Assign, root: cst.Attribute) -> bool:
    """Return whether later lines of the block use the assigned attribute."""
    block = script.tree.parent(script.tree.statement(line))
    return block is not None and any(
        other.attr.value == root.attr.value
        and script.scopes.stored(other) is None
        and not _is_target(script, other)
        and script.tree.order(other) > script.tree.order(line)
        for other in script.tree.within(block, cst.Attribute)
    )


# -- the fix ------------------------------------------------------------------


def _fix(
    script: Script,
    target: cst.BaseExpression,
    copied: list[cst.BaseExpression] | list[cst.Call],
    whole: bool,
) -> Fix | None:
    at = min(copied, key=script.tree.order)
    found = script.edits.importing("copy", "deepcopy", at=at)
    if found is None or found[1]:
        module = script.edits.importing("copy", at=at)
        found = (f"{module[0]}.deepcopy", module[1]) if module is not None else None
    if found is None:
        return None
    word, edits = found
    for value in copied:
        edits = (*edits, *_copied(script, value, word))
    title = f"Keep a deep copy in {script.code(target)}"
    known = not whole and all(_is_of_torch(script, value) for value in copied)
    if known and all(is_saved(script, use) for use in _uses(script, container_of(target))):
        if not isinstance(container_of(target), cst.Attribute):
            return Fix.exact(title, edits)
    return Fix.unsafe(
        title, edits, because="what is used later are the best weights instead of the last"
    )


def _is_of_torch(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether torch's own code creates a state dict, which can be copied then."""
    if not isinstance(value, cst.Call):
        return False
    owner = script.functions.instance_of(script.calls.at(value).receiver)
    if owner is not None and script.functions.method(owner, "state_dict") is not None:
        return False
    return not script.loaders.provenance.unseen_class(script.calls.at(value).receiver)


def _copied(script: Script, value: cst.BaseExpression, word: str) -> Edits:
    """Return the edits that copy a value deeply and remove a shallow copy around it."""
    outer = script.tree.taker(value)
    if isinstance(outer, cst.Call) and script.name(outer.func) == "copy.copy":
        return script.edits.replace(outer.func, word)
    span = script.span(value)
    return (*script.edits.insert(span.start, f"{word}("), *script.edits.insert(span.end, ")"))
