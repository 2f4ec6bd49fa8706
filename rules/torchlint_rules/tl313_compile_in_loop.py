"""TL313: a network that is compiled again in every iteration of a loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Edits,
    Finding,
    Fix,
    Frequency,
    Invariance,
    Kind,
    Rule,
    Script,
    receiver_of,
)

_COMPILE: Final = "torch.compile"
_RESETS: Final = ("torch._dynamo.reset", "torch.compiler.reset")
_METHODS: Final = ("forward", "training_step", "__call__")
_KERAS: Final = frozenset("optimizer loss metrics loss_weights".split())
_KEYS: Final = "checkpoints lose the prefix `_orig_mod.` that each further wrapping put before keys"


class CompileInLoop(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every compilation that is repeated for the same network."""
        for call in _compilations(script):
            if (
                _starts_afresh(script, call)
                or not _is_used_here(script, call)
                or script.loops.frequency(call) is Frequency.RARE
            ):
                continue
            loop = _loop(script, call)
            if loop is not None:
                named = script.code(loop.iter) if isinstance(loop, cst.For) else "while"
                where = f"in every pass of the loop over `{named}`" if named != "while" else ""
                where = where or "in every pass of the loop"
                yield self._finding(script, call, where, _fix(script, call, loop))
            elif loop is None and _runs_often(script, call):
                function = script.scopes.function(call)
                named = function.name.value if function is not None else ""
                yield self._finding(script, call, f"in every call of `{named}`", None)
        yield from self._decorated(script)

    def _finding(self, script: Script, call: cst.Call, where: str, fix: Fix | None) -> Finding:
        what = _compiled(script, call)
        message = f"{what} is compiled again {where}: compile it once, before"
        return Finding(self.code, script.span(call), message, fix)

    def _decorated(self, script: Script) -> Iterator[Finding]:
        for mark in script.tree.all(cst.Decorator):
            named = mark.decorator.func if isinstance(mark.decorator, cst.Call) else mark.decorator
            inner = script.tree.parent(mark)
            if script.name(named) != _COMPILE or not isinstance(inner, cst.FunctionDef):
                continue
            outer = script.scopes.function(inner)
            if outer is not None and outer.name.value in _METHODS:
                message = (
                    f"`{inner.name.value}` is compiled again in every call of "
                    f"`{outer.name.value}`: define it outside"
                )
                yield Finding(self.code, script.span(mark), message)


def _starts_afresh(script: Script, call: cst.Call) -> bool:
    """Return whether the loops or the function around a compilation drop what was compiled."""
    regions: list[cst.CSTNode | None] = [loop.node for loop in script.loops.around(call)]
    regions.append(script.scopes.function(call))
    return any(
        script.tree.inside(site.node, region)
        for site in script.calls.of(*_RESETS)
        for region in regions
        if region is not None
    )


def _compilations(script: Script) -> Iterator[cst.Call]:
    for site in script.calls.of(_COMPILE):
        if not isinstance(script.tree.parent(site.node), cst.Decorator):
            yield site.node
    for site in script.calls.of_methods("compile"):
        call = site.node
        if script.name(call.func) is None:
            keywords = {arg.keyword.value for arg in call.args if arg.keyword is not None}
            if not keywords & _KERAS and script.kind(site.receiver) is Kind.MODULE:
                yield call


def _is_method(script: Script, call: cst.Call) -> bool:
    return script.name(call.func) != _COMPILE


def _is_used_here(script: Script, call: cst.Call) -> bool:
    """Return whether a compiled network is named or called at once, not passed to a benchmark."""
    holder = script.tree.parent(call)
    if isinstance(holder, cst.Call):
        return holder.func is call
    return isinstance(holder, (cst.Assign, cst.AnnAssign, cst.Expr))


def _compiled(script: Script, call: cst.Call) -> str:
    """Return the name of the compiled object."""
    owner = receiver_of(call)
    if owner is not None and _is_method(script, call):
        return f"`{script.code(owner)}`"
    return f"`{script.code(call.args[0].value)}`" if call.args else "a function"


def _loop(script: Script, call: cst.Call) -> cst.For | cst.While | None:
    """Return the outermost loop on whose iterations a compilation does not depend."""
    found: cst.For | cst.While | None = None
    for loop in script.loops.around(call):
        if _depends(script, call, loop.node) or _leaves(script, call):
            break
        found = loop.node
    return found


def _depends(script: Script, call: cst.Call, loop: cst.For | cst.While) -> bool:
    """Return whether the compiled object, or the condition, changes with the iteration."""
    line = script.tree.smallest_statement(call)
    guards = [test for test in script.tree.tests_around(call) if script.tree.inside(test, loop)]
    regions: list[cst.CSTNode] = [call, *guards]
    for region in regions:
        for name in script.tree.within(region, cst.Name):
            bindings = script.scopes.reaching(name)
            own = [each for each in bindings if not script.tree.inside(each.node, line)]
            if any(script.tree.inside(each.node, loop) for each in own):
                return True
            if len(own) < len(bindings) and (region is not call or isinstance(line, cst.For)):
                return True
    for attribute in _attributes(script, call):
        if script.loops.invariances.of(attribute, loop) is not Invariance.INVARIANT:
            return True
    stored = any(
        script.tree.inside(target, line)
        and isinstance(target.target, (cst.Subscript, cst.Attribute))
        for target in script.tree.within(line, cst.AssignTarget)
    )
    return stored or bool(guards and _settles(script, guards, line))


def _attributes(script: Script, call: cst.Call) -> list[cst.Attribute]:
    """Return the attributes that a compilation reads, except its own method."""
    regions: list[cst.CSTNode] = [arg.value for arg in call.args]
    owner = receiver_of(call)
    if owner is not None and _is_method(script, call):
        regions.append(owner)
    found = [node for region in regions for node in script.tree.within(region, cst.Attribute)]
    return [node for node in found if not script.values.visibility.is_of_library(node)]


def _settles(script: Script, guards: list[cst.BaseExpression], line: cst.CSTNode) -> bool:
    """Return whether the branch that compiles prevents a second compilation."""
    tested = {name.value for test in guards for name in script.tree.within(test, cst.Name)}
    block = script.tree.parent(line)
    return any(
        name.value in tested and not script.scopes.reads(name)
        for name in script.tree.within(block if block is not None else line, cst.Name)
    )


def _leaves(script: Script, call: cst.Call) -> bool:
    """Return whether the iteration that compiles certainly ends the loop."""
    first = script.tree.order(script.tree.smallest_statement(call))
    return any(
        isinstance(each, (cst.Return, cst.Break, cst.Raise)) and script.tree.order(each) >= first
        for each in script.tree.beside(call)
    )


def _runs_often(script: Script, call: cst.Call) -> bool:
    """Return whether a call is in `forward` or in a function that runs once per batch."""
    function = script.scopes.function(call)
    if function is None or next(script.loops.around(call), None) is not None:
        return False
    if any(True for _ in script.tree.tests_around(call)):
        return False
    targets = script.tree.within(script.tree.statement(call), cst.AssignTarget)
    if any(isinstance(each.target, cst.Attribute) for each in targets):
        return False
    owner = script.scopes.class_of(function)
    if owner is not None and function.name.value in _METHODS:
        return True
    return script.loops.frequency(call) is Frequency.EVERY_PASS


def _fix(script: Script, call: cst.Call, loop: cst.For | cst.While) -> Fix | None:
    edits = _hoisted(script, call, loop)
    if edits is None:
        return None
    line = script.tree.statement(call)
    targets = list(script.tree.within(line, cst.AssignTarget))
    target = targets[0].target if targets else None
    named = target.value if isinstance(target, cst.Name) else ""
    onto_itself = any(name.value == named for name in script.tree.within(call, cst.Name))
    title = "Compile before the loop"
    if onto_itself and script.modules.may_be_saved(call.args[0].value):
        return Fix.unsafe(title, edits, because=_KEYS)
    attributes = _attributes(script, call)
    unseen = script.values.visibility.unseen_call(loop.body) if attributes else None
    if unseen is not None:
        named, setting = script.code(attributes[0]), script.tree.brief(unseen.func)
        because = f"`{setting}` is not visible here and might set `{named}`"
        return Fix.unsafe(title, edits, because=because)
    return Fix.exact(title, edits)


def _hoisted(script: Script, call: cst.Call, loop: cst.For | cst.While) -> Edits | None:
    """Move the line of a compilation before a loop."""
    line = script.tree.statement(call)
    if any(each is not call for each in script.tree.within(line, cst.Call)):
        return None
    if isinstance(script.tree.parent(call), cst.Expr):
        alone = script.edits.stands_alone(line) and script.edits.stands_alone(loop)
        if not alone or not _is_method(script, call):
            return None
        return script.edits.moved(line, loop, behind=False)
    return script.edits.hoisted(call, loop)
