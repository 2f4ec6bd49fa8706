"""TL405: a tensor that every iteration of a loop copies to append to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from torchlint.api import Edit, Edits, Finding, Fix, Rule, Script, Span
from torchlint_rules.shared.storedmemory import held, written
from torchlint_rules.tl405_cat_in_loop.growingtensors import (
    TENSORS,
    Growth,
    growing_states,
    growths,
)

_MANY: Final = 100
_LONG: Final = frozenset("step steps iter iters iterations batch batches loader".split())
"""Words of what a loop over many passes counts."""
_SLICE: Final = "a slice that is kept in a list keeps the whole tensor in memory until it is joined"
_BATCH: Final = (
    "batches of worker processes are kept instead of copied: each holds a file handle until the "
    "loop ends"
)


class CatInLoop(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every assignment that appends to a tensor or an array in each iteration."""
        found = [each for each in growths(script) if _is_hot(script, each)]
        for growth in found:
            target = script.tree.brief(growth.target)
            join = script.code(growth.call.func)
            if growth.function == "numpy.append":
                join = join.removesuffix("append") + "concatenate"
            message = (
                f"every pass copies all of `{target}`: collect the parts in a list and "
                f"`{join}` them once after the loop"
            )
            fix = _fix(script, growth, found)
            alone = growth.node.targets[0].target is growth.target
            span = script.span(growth.node if alone else growth.call)
            small = script.loops.generation.is_part(span) or _cuts_up(script, growth)
            yield Finding(self.code, span, message, fix, impact="low" if small else None)
        for assign, call in growing_states(script):
            message = (
                f"every `update` copies all of `{script.code(assign.targets[0].target)}`: collect "
                f"the parts in a list and `{script.code(call.func)}` them in `compute`"
            )
            yield Finding(self.code, script.span(assign), message)


def _is_hot(script: Script, growth: Growth) -> bool:
    """Return whether a tensor grows over batches, in each step, or in very many passes."""
    if _walks_arguments(script, growth.loop):
        return False
    if script.loops.batch_loop(growth.node) is not None or script.loops.each_step(growth.node):
        return True
    source = growth.loop.iter if isinstance(growth.loop, cst.For) else growth.loop.test
    if isinstance(source, cst.Call) and script.name(source.func) == "builtins.range":
        bounds = [script.values.value_of(arg.value).literal for arg in source.args[:2]]
        if any(isinstance(each, int) and each >= _MANY for each in bounds):
            return True
    named = {
        word
        for name in script.tree.within(source, cst.Name)
        for word in script.names.words(name.value)
    }
    return not named.isdisjoint(_LONG)


def _cuts_up(script: Script, growth: Growth) -> bool:
    """Return whether a tensor grows by pieces that the loop cuts from one made before it."""
    pieces = (script.scopes.only(each).assigned or each for each in growth.added)
    wholes = [each.value for each in pieces if isinstance(each, cst.Subscript)]
    return len(wholes) == len(growth.added) and not any(
        script.tree.inside(binding.node, growth.loop)
        for whole in wholes
        for binding in script.scopes.reaching(whole)
    )


def _walks_arguments(script: Script, loop: cst.For | cst.While) -> bool:
    """Return whether a loop goes through the few arguments of a call (`*skips`)."""
    names = script.tree.within(loop.iter, cst.Name) if isinstance(loop, cst.For) else ()
    return any(
        isinstance(binding.node, cst.Param) and binding.node.star == "*"
        for name in names
        for binding in script.scopes.reaching(name)
    )


def _fix(script: Script, growth: Growth, found: Sequence[Growth]) -> Fix | None:
    """Return the edits that collect the parts in a list, None if a condition does not hold."""
    target, loop = growth.target, growth.loop
    if not isinstance(target, cst.Name) or growth.starts_inside:
        return None
    grown = [each for each in found if each.loop is loop and each.target.deep_equals(target)]
    if not all(_only_joins(script, each) for each in grown):
        return None
    if _mentioned_besides(script, target, loop, [each.node for each in grown]):
        return None
    kept = [held(script, part, loop) for each in grown for part in each.added]
    if any(written(script, each, loop) for each in kept):
        return None
    name, ends = f"{target.value}_parts", {_joined(script, each) for each in grown}
    around = _around(script, growth, name, ends.pop()) if len(ends) == 1 else None
    if around is None:
        return None
    edits = (around, *(_kept(script, each, name) for each in grown))
    title = f"Collect the parts of {target.value} in a list"
    doubts = [_BATCH for each in kept if each.loaded] + [_SLICE for each in kept if each.sliced]
    doubts += [each for each in (_unseen(script, one, loop) for one in grown) if each]
    if doubts:
        return Fix.unsafe(title, *edits, because=doubts[0])
    return Fix.exact(title, *edits)


def _unseen(script: Script, growth: Growth, loop: cst.For | cst.While) -> str:
    """Return the code of another module that may modify a part, empty if there is none."""
    made: list[cst.BaseExpression] = list(growth.added)
    names = [name for part in made for name in script.tree.within(part, cst.Name)]
    made += [
        binding.node.value
        for name in names
        for binding in script.scopes.reaching(name)
        if script.tree.inside(binding.node, loop) and isinstance(binding.node, cst.Assign)
    ]
    makers = (script.values.visibility.unseen_call(value) for value in made)
    unseen = next((call for call in makers if call is not None), None)
    unseen = unseen or script.values.visibility.receiver(loop.body, *(name.value for name in names))
    if unseen is None:
        return ""
    called = script.tree.brief(unseen.func)
    return f"`{called}` is not visible here and might write into the part again"


def _only_joins(script: Script, growth: Growth) -> bool:
    """Return whether an assignment only appends parts and nothing catches its errors."""
    call, first = growth.call, growth.call.args[0] if growth.call.args else None
    if growth.node.value is not call or call.lpar or growth.function not in TENSORS:
        return False
    if first is None or first.keyword is not None or growth.function == "torch.stack":
        return False
    joined = first.value
    if not isinstance(joined, (cst.List, cst.Tuple)) or joined.elements[0].value is not growth.own:
        return False
    whole = script.span(growth.node)
    start, end = script.span(growth.added[0]).start, script.span(growth.added[-1]).end
    text = script.tree.source.text
    if "#" in text[whole.start : start] + text[end : whole.end]:
        return False
    around = script.tree.ancestors(growth.node)
    return next(o for o in around if o is growth.loop or isinstance(o, cst.Try)) is growth.loop


def _mentioned_besides(
    script: Script, target: cst.Name, loop: cst.CSTNode, nodes: Sequence[cst.CSTNode]
) -> bool:
    """Return whether a loop, or a handler of its exceptions, uses a name outside some nodes."""
    around = [loop, *(o for o in script.tree.ancestors(loop) if isinstance(o, cst.Try))]
    handlers = [
        part
        for each in around[1:]
        if isinstance(each, cst.Try)
        for part in (*each.handlers, each.finalbody)
        if part is not None
    ]
    return any(
        name.value == target.value and not any(script.tree.inside(name, node) for node in nodes)
        for region in (loop, *handlers)
        for name in script.tree.within(region, cst.Name)
    )


def _joined(script: Script, growth: Growth) -> str | None:
    """Return the call that joins the list, None if it depends on the iteration."""
    call, name = growth.call, script.code(growth.target)
    rest = call.args[1:]
    if any(arg.star or not script.values.value_of(arg.value).is_literal for arg in rest):
        return None
    words = [f"[{name}, *{name}_parts]", *(script.code(arg) for arg in rest)]
    return f"{name} = {script.code(call.func)}({', '.join(words)})"


def _around(script: Script, growth: Growth, name: str, joined: str | None) -> Edits | None:
    """Create the list before the loop and join it after it."""
    loop, scopes = growth.loop, script.scopes
    assert isinstance(growth.own, cst.Name)
    if joined is None or not script.edits.stands_alone(loop):
        return None
    if script.tree.spelled(name):
        return None
    before = [b for b in scopes.reaching(growth.own) if not script.tree.inside(b.node, loop)]
    around = scopes.blocks(loop)
    homes = [scopes.blocks(b.node)[:1] for b in before if isinstance(b.node, cst.Assign)]
    if len(homes) != len(before) or not any(home[0] in around for home in homes if home):
        return None
    made = f"{name} = []"
    start = script.tree.statement(before[0].node)
    if len(before) == 1 and homes[0][0] is around[0] and script.edits.stands_alone(start):
        first = script.edits.after(start, made)
    else:
        line = f"{script.edits.indent_of(loop)}{made}{script.edits.newline}"
        first = script.edits.insert(_above_comments(script, loop), line)
    return (*first, *script.edits.after(loop, joined))


def _above_comments(script: Script, statement: cst.CSTNode) -> int:
    """Return where the lines of a statement start, including comments directly above it."""
    at = script.edits.line_start(script.span(statement).start)
    while at:
        above = script.edits.line_start(at - 1)
        if not script.tree.source.text[above:at].lstrip().startswith("#"):
            break
        at = above
    return at


def _kept(script: Script, growth: Growth, name: str) -> Edits:
    """Append the parts to the list, with their text unchanged."""
    whole, several = script.span(growth.node), len(growth.added) > 1
    start, end = script.span(growth.added[0]).start, script.span(growth.added[-1]).end
    opening = f"{name}.extend([" if several else f"{name}.append("
    return (
        Edit(Span(whole.start, start), opening),
        Edit(Span(end, whole.end), "])" if several else ")"),
    )
