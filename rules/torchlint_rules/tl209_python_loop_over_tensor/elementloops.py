"""Python loops that read or write a tensor element by element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import TENSORS, Frequency, How, Kind, Role, Script, receiver_of, root_of
from torchlint_rules.shared.avoidablereads import is_avoidable
from torchlint_rules.tl209_python_loop_over_tensor.elements import (
    elementwise,
    is_constant,
    is_surely_tensor,
    walk,
)

_FEW: Final = 3
_OF_LISTS: Final = ("builtins.max", "builtins.min", "builtins.sum", "builtins.sorted")
_CONVERTS: Final = frozenset(
    f"torch.{word}"
    for word in "tensor as_tensor Tensor FloatTensor LongTensor IntTensor BoolTensor".split()
)


# -- reads ------------------------------------------------------------------------


def entry_reads(script: Script) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """Yield what waits for one entry of a tensor in a comprehension, with the tensor."""
    for node in (*script.tree.own(cst.ListComp), *script.tree.own(cst.GeneratorExp)):
        part = node.for_in
        nested = part.inner_for_in is not None
        if nested or _is_short(script, part) or not script.loops.each_step(node):
            continue
        waits = [*script.tree.within(node.elt, cst.Call), *(each.test for each in part.ifs)]
        waits += [each.test for each in script.tree.within(node.elt, cst.IfExp)]
        for wait in waits:
            tensors = (_whole(script, side, part) for side in _waited_for(script, wait))
            tensor = next((each for each in tensors if each is not None), None)
            if tensor is not None and _may_wait(script, tensor):
                if wait is not node.elt or not is_avoidable(script, wait):
                    yield wait, tensor
                break


def _entries(
    script: Script, target: cst.BaseExpression, source: cst.BaseExpression
) -> dict[str, cst.BaseExpression]:
    """Return the tensors whose entries a comprehension takes, by name (`for a, b in zip(x, y)`)."""
    if receiver_of(source, "keys", "values", "items") is not None:
        return {}
    if isinstance(target, cst.Name):
        return {target.value: source}
    if not isinstance(target, cst.Tuple) or not isinstance(source, cst.Call):
        return {}
    if script.name(source.func) != "builtins.zip":
        return {}
    pairs = zip(target.elements, source.args, strict=False)
    return {one.value.value: arg.value for one, arg in pairs if isinstance(one.value, cst.Name)}


def _whole(
    script: Script, entry: cst.BaseExpression, part: cst.CompFor
) -> cst.BaseExpression | None:
    """Return the tensor of which a comprehension takes an entry, or computes with one.

    It takes the entry by name, or by the index of a range.
    """
    if isinstance(entry, cst.Name):
        return _entries(script, part.target, part.iter).get(entry.value)
    if isinstance(entry, (cst.Call, cst.Comparison)) and script.kind(entry) in TENSORS:
        entries = _entries(script, part.target, part.iter)
        used = (entries.get(name.value) for name in script.tree.within(entry, cst.Name))
        return next((each for each in used if each is not None), None)
    if not isinstance(entry, cst.Subscript) or not script.values.iteration.counts(part.iter):
        return None
    root, indices = _taken_apart(entry)
    return root if script.code(part.target) in indices else None


def _waited_for(script: Script, wait: cst.CSTNode) -> list[cst.BaseExpression]:
    """Return the values of which `x.item()`, `int(x)` or a comparison needs the number."""
    read = script.readings.numbered(wait)
    if read is not None:
        return [read]
    if not isinstance(wait, cst.Comparison) or len(wait.comparisons) != 1:
        return []
    (other,) = wait.comparisons
    if isinstance(other.operator, (cst.Is, cst.IsNot, cst.In, cst.NotIn)):
        return []
    return [wait.left, other.comparator]


def element_reads(
    script: Script,
) -> Iterator[tuple[cst.For, cst.BaseExpression, cst.BaseExpression]]:
    """Yield the loops in every step that read or compare elements of a tensor, with what does.

    The tensor comes last. Elements that are only summed belong to another rule.
    """
    said: set[int] = set()
    for node, element in _waits_for_elements(script):
        found = _element_of(script, element)
        if found is None or id(found[0]) in said:
            continue
        loop, tensor = found
        if not _may_wait(script, tensor) or not script.loops.each_step(node):
            continue
        counted = script.values.iteration.counts(loop.iter) or not isinstance(
            element, cst.Subscript
        )
        if isinstance(node, cst.Comparison) and not counted:
            continue
        if not isinstance(node, cst.Call) or not script.readings.accumulators.adds(node):
            said.add(id(loop))
            yield loop, node, tensor


def _waits_for_elements(script: Script) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Yield what reads a number that may be an element of a tensor, with the element."""
    for call in script.tree.own(cst.Call):
        read = script.readings.numbered(call)
        if read is not None and script.readings.numbered(read) is None:
            yield call, read
    for site in script.tree.in_file(script.calls.of("builtins.range")):
        bounds = [arg.value for arg in site.node.args if isinstance(arg.value, cst.Subscript)]
        yield from ((site.node, bound) for bound in bounds if script.kind(bound) in TENSORS)
    for branch in script.tree.own(cst.If):
        sides = _waited_for(script, branch.test) if isinstance(branch.test, cst.Comparison) else []
        yield from ((branch.test, side) for side in sides if script.kind(side) in TENSORS)
    for item in script.tree.own(cst.Subscript):
        counts = isinstance(script.tree.parent(item), cst.AugAssign)
        for part in item.slice:
            for index in _scalars(part.slice, counts):
                yield item, index


def _scalars(index: cst.BaseSlice, counts: bool) -> tuple[cst.BaseExpression, ...]:
    """Return what has to be one number in an index: a bound, or the place where a loop counts."""
    if isinstance(index, cst.Slice):
        return tuple(each for each in (index.lower, index.upper) if each is not None)
    return (cst.ensure_type(index, cst.Index).value,) if counts else ()


def _element_of(
    script: Script, node: cst.BaseExpression
) -> tuple[cst.For, cst.BaseExpression] | None:
    """Return the loop and the tensor from which an index or a target takes an element."""
    words: set[str] = set()
    taken = script.scopes.only(node).assigned
    root = taken if isinstance(taken, cst.Subscript) else node
    while isinstance(root, cst.Call) and (part := _computed_with(script, root)) is not None:
        root = part
    whole = root
    while isinstance(root, cst.Subscript):
        if any(True for _ in script.tree.within(root, cst.FormattedString)):
            return None  # an entry of a dictionary
        named = {name.value for part in root.slice for name in script.tree.within(part, cst.Name)}
        words, root = words | named, root.value
        whole = root if named else whole
    if not isinstance(root, (cst.Name, cst.Attribute)):
        return None
    for found in script.loops.around(node):
        loop = found.node
        if found.role is not Role.OTHER or not isinstance(loop, cst.For) or _is_short(script, loop):
            continue
        targets = {name.value for name in script.tree.within(loop.target, cst.Name)}
        if words & targets and isinstance(loop.iter, cst.Call):
            return (loop, whole) if _is_fixed(script, root, loop) else None
        if isinstance(root, cst.Name) and root.value in targets:
            tensor = _walked(script, root)
            return (loop, tensor) if tensor is not None else None
    return None


def _computed_with(script: Script, call: cst.Call) -> cst.BaseExpression | None:
    """Return the tensor that a method, or a function of torch, computes with."""
    owner = receiver_of(call)
    if not call.args:
        return owner
    given = [arg.value for arg in call.args] if is_surely_tensor(script, call) else []
    parts = given if owner is None else [owner, *given]
    return next((each for each in parts if script.kind(each) in TENSORS), None)


def _walked(script: Script, target: cst.Name) -> cst.BaseExpression | None:
    """Return the iterated expression that assigns a name its items."""
    binding = script.scopes.only(target)
    if binding.how is not How.LOOP or binding.value is None:
        return None
    source, path = script.values.iteration.source(binding.value, binding.path)
    return source if not path else None


def _is_short(script: Script, loop: cst.For | cst.CompFor) -> bool:
    """Return whether a loop has few iterations, or does not index a tensor."""
    drawn = loop.iter
    if isinstance(drawn, (cst.List, cst.Tuple)):
        return True
    if isinstance(drawn, cst.Call) and script.name(drawn.func) == "builtins.range":
        last = script.values.value_of(drawn.args[-1].value).literal if drawn.args else None
        return isinstance(last, int) and last <= _FEW
    return False


def _is_fixed(script: Script, root: cst.BaseExpression, loop: cst.For) -> bool:
    """Return whether a tensor exists before the loop over it."""
    name = root_of(root)
    return isinstance(name, cst.Name) and all(
        not script.tree.inside(each.node, loop) for each in script.scopes.reaching(name)
    )


def _may_wait(script: Script, tensor: cst.BaseExpression) -> bool:
    """Return whether a tensor may be on a device: one of the script, or a network's argument."""
    if script.kind(tensor) in TENSORS:
        made = script.values.origins.of(tensor).values if isinstance(tensor, cst.Attribute) else ()
        return not (
            made and all(map(script.values.placement.on_host, made))
        ) and not script.values.placement.on_host(tensor)
    if not isinstance(tensor, cst.Name) or script.kind(tensor) is not Kind.UNKNOWN:
        return False
    function = script.scopes.function(tensor)
    owner = script.scopes.class_of(tensor)
    binding = script.scopes.only(tensor)
    forward = script.functions.method(owner, "forward") if owner is not None else None
    return (
        function is not None
        and forward is not None
        and any(each is function for each in script.functions.reached(forward))
        and binding.how is How.PARAMETER
        and not any(
            script.name(call.func) in _OF_LISTS and script.code(call.args[0]) == tensor.value
            for call in script.functions.own(function, cst.Call)
            if len(call.args) == 1
        )
    )


# -- writes -----------------------------------------------------------------------


def sole_line(loop: cst.For) -> cst.BaseSmallStatement | None:
    """Return the only small statement in the body of a loop."""
    if loop.orelse is not None or loop.asynchronous is not None:
        return None
    suite: cst.CSTNode = loop.body
    if isinstance(suite, cst.IndentedBlock):
        suite = suite.body[0] if len(suite.body) == 1 else suite
    if isinstance(suite, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
        return suite.body[0] if len(suite.body) == 1 else None
    return None


def written_by_element(script: Script, loop: cst.For) -> cst.Subscript | None:
    """Return the element that two nested loops over indices write in each iteration."""
    counter = _counter(script, loop)
    if counter is None:
        return None
    for line in script.tree.within(loop.body, cst.Assign):
        target = line.targets[0].target
        if not isinstance(target, cst.Subscript) or len(line.targets) != 1:
            continue
        root, indices = _taken_apart(target)
        if counter not in indices:
            continue
        inner = [
            name
            for found in script.loops.around(line)
            if found.node is not loop and script.tree.inside(found.node, loop)
            if (name := _counter(script, found.node)) is not None
        ]
        if not set(inner) & set(indices):
            continue
        if not is_surely_tensor(script, root) or _feeds(script, root, loop):
            continue
        func = line.value.func if isinstance(line.value, cst.Call) else None
        if any(each.how is How.PARAMETER for each in script.scopes.reaching(func)):
            continue  # callers choose what gives it
        if _takes_of_tensor(script, line.value):
            return target if script.loops.frequency(loop) is not Frequency.RARE else None
        if is_constant(line.value) and script.loops.each_step(loop):
            return target
    return None


def _takes_of_tensor(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether a value depends on tensors, not only on indices as a constant table does."""
    if any(script.kind(item.value) in TENSORS for item in script.tree.within(value, cst.Subscript)):
        return True
    return script.kind(value) in TENSORS and not _is_converted(script, value)


def _is_converted(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether a value is made from Python data here: `torch.tensor(row)`."""
    name = script.name(value.func) if isinstance(value, cst.Call) else None
    if name not in _CONVERTS or not isinstance(value, cst.Call) or not value.args:
        return False
    return script.kind(value.args[0].value) not in TENSORS


def _counter(script: Script, loop: cst.For | cst.While) -> str | None:
    """Return the name of the index in the iterated expression of a loop."""
    if not isinstance(loop, cst.For) or not isinstance(loop.iter, cst.Call):
        return None
    name = script.name(loop.iter.func)
    target = loop.target
    if name == "builtins.range" and len(loop.iter.args) == 1 and isinstance(target, cst.Name):
        return target.value
    if name == "builtins.enumerate" and isinstance(target, cst.Tuple):
        first = target.elements[0].value
        return first.value if isinstance(first, cst.Name) else None
    return None


def _taken_apart(node: cst.Subscript) -> tuple[cst.BaseExpression, list[str]]:
    """Return the tensor and the index names of `t[i][j]` and `t[i, at + j]`."""
    indices: list[str] = []
    at: cst.BaseExpression = node
    while isinstance(at, cst.Subscript):
        for part in at.slice:
            index = part.slice.value if isinstance(part.slice, cst.Index) else None
            terms = [index.left, index.right] if isinstance(index, cst.BinaryOperation) else [index]
            indices += (each.value for each in terms if isinstance(each, cst.Name))
        at = at.value
    return at, indices


def _feeds(script: Script, root: cst.BaseExpression, loop: cst.For) -> bool:
    """Return whether iterations read what others wrote, as in dynamic programming."""
    code = script.code(root)
    for node in script.tree.within(loop, type(root)):
        if script.code(node) != code:
            continue
        item: cst.CSTNode = node
        outer = script.tree.parent(item)
        while isinstance(outer, cst.Subscript) and outer.value is item:
            item, outer = outer, script.tree.parent(outer)
        if not isinstance(outer, cst.AssignTarget):
            return True
    return False


def written_by_row(script: Script, loop: cst.For, line: cst.BaseSmallStatement) -> str | None:
    """Return the tensor of which a loop's only line writes one element or row at a time."""
    if not isinstance(line, cst.Assign) or len(line.targets) != 1:
        return None
    target = line.targets[0].target
    found = walk(script, loop.target, loop.iter)
    if found is None or not found.by_index or not isinstance(target, cst.Subscript):
        return None
    root = _taken_apart(target)[0]
    word = found.target.value
    if script.code(root) in script.code(line.value) or script.kind(root) not in TENSORS:
        return None
    uses = [name for name in script.tree.within(target, cst.Name) if name.value == word]
    plain = isinstance(line.value, cst.Name) and line.value.value == word
    if len(uses) != 1 or not (plain or elementwise(script, found, line.value) is not None):
        return None
    return script.code(root) if script.loops.frequency(loop) is not Frequency.RARE else None
