"""Filling: where code fills tokens up to one length by hand, whatever the batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Binding, Script, last_word, receiver_of, word_of

_TEXT: Final = frozenset("ids tokens token tokenizer vocab eos sentence caption".split())
_MAKING: Final = frozenset(
    "full zeros ones empty new_full new_zeros new_ones pad tile repeat".split()
)
"""What makes the padding, or an array that is longer than the tokens, of a length."""
_PER_BATCH: Final = frozenset(("max", "len", "maximum", "amax"))


def filled(script: Script, body: cst.CSTNode, short: int) -> Iterator[cst.BaseExpression]:
    """Yield where a function fills tokens up to a length that is set, and longer than `short`.

    `ids + [0] * (self.length - len(ids))`, or `row[: len(ids)] = ids` in a row of that length.
    """
    for node in script.functions.own(body, cst.BinaryOperation):
        if type(node.operator) is cst.Subtract and _is_set(script, node.left, short):
            tokens = _measured(script, node.right)
            if tokens is not None and _makes_padding(script, node):
                if _is_text(script, node, tokens):
                    yield node
    for line in script.functions.own(body, cst.Assign):
        row = line.targets[0].target
        if isinstance(row, cst.Subscript) and len(row.slice) == 1:
            tokens, length = _start_of(script, row.slice[0].slice), _length_of(script, row.value)
            if tokens is not None and length is not None and _is_set(script, length, short):
                if _is_text(script, line, tokens):
                    yield row


def _measured(script: Script, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return what a number is the length of: `len(ids)`, `ids.shape[0]`, `ids.size(0)`."""
    if isinstance(node, cst.Name):
        made = script.scopes.only(node).value
        return script.answer(_measured, made, None) if made is not None else None
    if isinstance(node, cst.Subscript):
        shape = node.value
        is_shape = isinstance(shape, cst.Attribute) and shape.attr.value == "shape"
        return cst.ensure_type(shape, cst.Attribute).value if is_shape else None
    if not isinstance(node, cst.Call):
        return None
    if script.name(node.func) == "builtins.len" and node.args:
        return node.args[0].value
    return receiver_of(node, "size", "numel")


def _is_set(script: Script, node: cst.BaseExpression, short: int) -> bool:
    """Return whether a length is a setting above `short`, and not computed from a batch."""
    number = script.values.value_of(node).literal
    if type(number) is int:
        return number > short
    origin = script.values.origins.of(node)
    made = [call for each in (node, *origin.values) for call in script.tree.within(each, cst.Call)]
    if not _PER_BATCH.isdisjoint(map(word_of, made)):
        return False
    return isinstance(node, cst.Attribute) or (
        isinstance(node, cst.Name) and all(map(_is_given, script.scopes.reaching(node)))
    )


def _is_given(binding: Binding) -> bool:
    """Return whether a name stands for a parameter, or for a name or an attribute."""
    plain = isinstance(binding.assigned, (cst.Name, cst.Attribute))
    return plain or binding.parameter is not None


def _makes_padding(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a number of missing tokens is how much padding is made."""
    line = script.tree.statement(node)
    for around in script.tree.ancestors(node):
        if around is line or isinstance(around, cst.Slice):
            break  # the number is a place, not an amount
        if isinstance(around, cst.BinaryOperation) and type(around.operator) is cst.Multiply:
            if isinstance(around.left, cst.List) or isinstance(around.right, cst.List):
                return True
        elif isinstance(around, cst.Call) and word_of(around) in _MAKING:
            return True
        elif isinstance(around, cst.Assign):
            target = around.targets[0].target
            binding = script.scopes.stored(target) if isinstance(target, cst.Name) else None
            reads = script.scopes.uses(binding, script.scopes.home(node)) if binding else ()
            return any(
                script.tree.statement(read) is not line
                and script.answer(_makes_padding, read, False)
                for read in reads
            )
    return False


def _length_of(script: Script, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return how long a row is that `torch.zeros(length)` or `[0] * length` makes."""
    value = script.scopes.only(node).value
    if isinstance(value, cst.BinaryOperation) and type(value.operator) is cst.Multiply:
        return value.right if isinstance(value.left, cst.List) else None
    if not isinstance(value, cst.Call) or word_of(value) not in _MAKING or not value.args:
        return None
    shape = value.args[0].value
    return shape.elements[-1].value if isinstance(shape, (cst.Tuple, cst.List)) else shape


def _start_of(script: Script, node: cst.BaseSlice) -> cst.BaseExpression | None:
    """Return the tokens over whose length a slice goes from the start."""
    if not isinstance(node, cst.Slice) or node.lower is not None:
        return None
    return _measured(script, node.upper) if node.upper is not None else None


def _is_text(script: Script, place: cst.CSTNode, tokens: cst.BaseExpression) -> bool:
    """Return whether what is filled up holds the tokens of a whole text, not a cut of one."""
    values = script.values.origins.of(tokens).values
    for each in (tokens, *values):
        cut = each.slice[0].slice if isinstance(each, cst.Subscript) else None
        if isinstance(cut, cst.Slice) and cut.lower is not None and cut.upper is not None:
            return False
    said = (*script.tree.words(script.tree.statement(place)), last_word(tokens))
    makers = (call for value in values for call in script.tree.within(value, cst.Call))
    made = (last_word(receiver_of(call) or call.func) for call in makers)
    named = {part for word in (*said, *made) for part in script.names.words(word)}
    return not _TEXT.isdisjoint(named)
