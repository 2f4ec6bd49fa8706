"""TL112: the host works on a whole batch before it is copied to the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    Edit,
    Edits,
    Finding,
    Fix,
    Kind,
    Move,
    Rule,
    Script,
    Span,
    State,
    method_of,
    receiver_of,
)

_PEELED: Final = frozenset("float double half to type clone contiguous permute transpose".split())
_JOINS: Final = frozenset({"torch.cat", "torch.stack", "torch.concat"})
_FUNCTIONAL: Final = "torch.nn.functional."
_LONG: Final = 8
_ROUNDING: Final = "the device may round the last digit differently"
_Peeled = tuple[cst.BaseExpression | None, bool]
_NOTHING: Final[_Peeled] = (None, False)


class HostWorkBeforeCopy(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the work on the batches of a loader that a copy to the device follows."""
        if not script.program.devices.can_use_accelerator:
            return
        for site in script.tree.in_file(script.calls.of_methods("to", "cuda")):
            call = site.node
            move = script.program.moves.move(call)
            if move is None or not script.loops.each_step(call):
                continue
            found = _found(script, move)
            if found is None:
                continue
            what = script.tree.argument(found.work)
            if found.root is None:
                cure = "do it in the collate function, where workers can do it"
            else:
                cure = f"copy `{script.code(found.root)}` first, and do it on the device"
            message = f"the host computes `{what}` before it copies each batch; {cure}"
            fix = _fix(script, move, found)
            notes = script.loops.repetition.notes_on_callers(call)
            yield Finding(self.code, script.span(found.work), message, fix, notes)


class _Work(NamedTuple):
    """Work on the batch that a move copies."""

    work: cst.BaseExpression
    root: cst.BaseExpression | None
    """The batch, None if the work joins several pieces."""
    line: cst.Assign | None
    """The line above that does the work, None if the move's own expression does."""


def _found(script: Script, move: Move) -> _Work | None:
    """Return the work that ends in a move."""
    line = _line_above(script, move)
    work = move.moved if line is None else line.value
    if _joins_pieces(script, work):
        return _Work(work, None, line)
    root, works = _peeled(script, work)
    if not works or root is None or not script.loaders.parts.of(root):
        return None
    return _Work(work, root, line)


def _line_above(script: Script, move: Move) -> cst.Assign | None:
    """Return the line directly above that computes what is moved, if nothing else reads it."""
    line = script.scopes.line_for(move.moved)
    if line is None:
        return None
    block = script.tree.parent(script.tree.statement(line))
    return line if block is script.tree.parent(script.tree.statement(move.moved)) else None


def _peeled(script: Script, node: cst.BaseExpression) -> _Peeled:
    """Return the expression below conversions and arithmetic, and whether they are work.

    Conversions alone are none: a batch of the wanted type is not copied.
    """
    if isinstance(node, cst.BinaryOperation):
        if not isinstance(node.operator, (cst.Divide, cst.Multiply, cst.Add, cst.Subtract)):
            return None, False
        if not script.values.numbers.is_number(node.right) and not _is_constant(script, node.right):
            return None, False
        root, works = script.answer(_peeled, node.left, _NOTHING)
        twice = isinstance(node.left, cst.BinaryOperation)
        return root, works or twice or isinstance(node.operator, cst.Divide)
    if not isinstance(node, cst.Call):
        return node, False
    callee = script.functions.callee(node)
    if callee is not None:
        return _of_own_function(script, node, callee)
    name = script.name(node.func) or ""
    if name.startswith(_FUNCTIONAL):
        return _of_function(script, node, name.removeprefix(_FUNCTIONAL))
    method, owner = method_of(node), receiver_of(node)
    if name or owner is None:
        return node, False
    if (
        method == "div"
        and len(node.args) == 1
        and script.values.numbers.is_number(node.args[0].value)
    ):
        return script.answer(_peeled, owner, _NOTHING)[0], True
    if method not in _PEELED or script.program.moves.move(node) is not None:
        return node, False
    if any(script.kind(arg.value) is Kind.TENSOR for arg in node.args):
        return node, False
    root, works = script.answer(_peeled, owner, _NOTHING)
    return root, works or (method == "contiguous" and method_of(owner) in ("permute", "transpose"))


def _is_constant(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a name of the module is a tensor of the host, like the mean of images."""
    made = script.scopes.only(node)
    if made.value is None or any(True for _ in script.loops.around(made.node)):
        return False
    if isinstance(made.node, cst.For) or script.scopes.scope(made.node).is_function:
        return False
    return script.kind(node) is Kind.TENSOR and script.values.placement.on_host(node)


def _of_own_function(script: Script, call: cst.Call, function: cst.FunctionDef) -> _Peeled:
    """Return what a function of the project works on: one of its arguments."""
    returned = script.functions.returns(function)
    root, works = script.answer(_peeled, returned[0], _NOTHING) if len(returned) == 1 else _NOTHING
    for _ in range(_LONG):
        made = script.scopes.only(root)
        if made.path:
            break
        if isinstance(made.node, cst.Param):
            root = script.functions.passed(call, function, made.name)
            below, also = script.answer(_peeled, root, _NOTHING) if root is not None else _NOTHING
            return below, works or also
        if made.value is None:
            break
        root, also = script.answer(_peeled, made.value, _NOTHING)
        works = works or also
    return call, False


def _of_function(script: Script, node: cst.Call, name: str) -> _Peeled:
    """Return what a function of torch works on, if it does not shrink it."""
    site = script.calls.at(node)
    if name == "one_hot":
        given = site.given("tensor")
        known = site.argument("num_classes").state is State.KNOWN
        return (given.value if given is not None else None), known
    if name == "interpolate":
        given = site.given("input", 0)
        factor = site.argument("scale_factor")
        number = factor.literal
        grows = factor.state is State.ABSENT or (isinstance(number, (int, float)) and number >= 1)
        if given is None:
            return None, False
        return script.answer(_peeled, given.value, _NOTHING)[0], grows
    return None, False


def _joins_pieces(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether an expression joins pieces of one batch."""
    if not isinstance(node, cst.Call) or script.name(node.func) not in _JOINS or not node.args:
        return False
    given = node.args[0].value
    pieces = given.elements if isinstance(given, (cst.List, cst.Tuple)) else ()
    return len(pieces) > 1 and all(script.loaders.parts.of(each.value) for each in pieces)


# -- the fix ------------------------------------------------------------------------


def _fix(script: Script, move: Move, found: _Work) -> Fix | None:
    """Return a fix that copies first, None if that takes more than two lines."""
    root = found.root
    if move.call.func.lpar or not isinstance(root, (cst.Name, cst.Attribute, cst.Subscript)):
        return None
    if _needs_host(script, found.work):
        return None
    call = script.span(move.call)
    start = call.start if found.line is None else script.span(found.line).start
    if "#" in script.tree.source.text[start : call.end]:
        return None
    moved = script.tree.source.text[script.span(move.moved).end : script.tree.bare(move.call).end]
    at = script.edits.insert(script.span(root).end, moved)
    cut = _without_move(script, move, found)
    if cut is None:
        return None
    return Fix.close("Copy first, then compute on the device", at, cut, because=_ROUNDING)


def _needs_host(script: Script, work: cst.CSTNode) -> bool:
    """Return whether work takes other tensors of the host, or runs code that may need it there."""
    calls = map(script.functions.callee, script.tree.within(work, cst.Call))
    return any(
        not _only_computes(script, each) or _needs_host(script, each.body)
        for each in calls
        if each is not None
    ) or any(_is_constant(script, name) for name in script.tree.within(work, cst.Name))


def _only_computes(script: Script, function: cst.FunctionDef) -> bool:
    """Return whether a function returns what it computes step by step, and does nothing else."""
    steps = [
        small
        for line in function.body.body
        for small in (line.body if isinstance(line, cst.SimpleStatementLine) else (line,))
    ]
    bound = script.scopes.scope_at(function).bindings.values()
    return all(map(_is_step, steps)) and all(
        len(script.scopes.readers(binding)) <= 1 for found in bound for binding in found
    )


def _is_step(line: cst.CSTNode) -> bool:
    """Return whether a statement binds or returns a value, or is a docstring."""
    described = isinstance(line, cst.Expr) and isinstance(line.value, cst.SimpleString)
    return described or isinstance(line, (cst.Assign, cst.Return))


def _without_move(script: Script, move: Move, found: _Work) -> Edits | None:
    """Return the edits that take a move away, None if its line would stay for nothing."""
    if found.line is None:
        cut = script.edits.unlinked(move.call)
        outer, inner = script.span(move.moved), script.tree.bare(move.moved)
        if outer == inner or not isinstance(script.tree.parent(move.call), (cst.Assign, cst.Arg)):
            return cut
        end = script.tree.bare(move.call).end
        return (Edit(Span(outer.start, inner.start), ""), Edit(Span(inner.end, end), ""))
    line = script.tree.parent(move.call)
    named = script.code(found.line.targets[0].target)
    if not isinstance(line, cst.Assign) or len(line.targets) != 1:
        return None
    statement = script.tree.statement(line)
    if not isinstance(statement, cst.SimpleStatementLine):
        return None
    if script.code(line.targets[0].target) != named or not script.edits.stands_alone(statement):
        return None
    at = script.tree.order(found.line)
    if any(
        binding.at > at
        for arg in move.call.args
        for name in script.tree.within(arg.value, cst.Name)
        for binding in script.scopes.reaching(name)
    ):
        return None
    return script.edits.drop(statement)
