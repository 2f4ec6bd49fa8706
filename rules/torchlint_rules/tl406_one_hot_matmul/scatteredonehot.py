"""One-hot vectors built from zeros into which `scatter_` writes ones."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import Binding, Script, method_of, receiver_of

_ZEROS: Final = ("torch.zeros", "torch.zeros_like")
_METHODS: Final = ("new_zeros", "zero_")
_CASTS: Final = frozenset("to cuda cpu float double half bfloat16 type type_as".split())
_LAST: Final = (1, -1)


def scatters_ones(script: Script, call: cst.Call) -> bool:
    """Return whether a call writes a single one into each row of new zeros."""
    owner = receiver_of(call)
    return owner is not None and _is_zeros(script, owner) and _fills(script, call)


def scattered_later(script: Script, use: cst.Name, made: Binding) -> cst.Call | None:
    """Return the only line that modifies named zeros, if it writes the ones."""
    if made.value is None or not _is_zeros(script, made.value):
        return None
    uses = script.scopes.uses(made, script.scopes.home(use))
    changes = [each.node for each in map(script.values.writes.at, uses) if each is not None]
    if len(changes) != 1 or not _fills(script, changes[0]):
        return None
    (change,) = changes
    before = script.tree.order(change) < script.tree.order(use)
    line, reading = script.tree.statement(change), script.tree.statement(use)
    together = before and script.tree.parent(line) is script.tree.parent(reading)
    return change if together and isinstance(change, cst.Call) else None


def _is_zeros(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether an expression creates a matrix of zeros."""
    if not isinstance(node, cst.Call):
        return False
    if script.name(node.func) in _ZEROS:
        return True
    if script.name(node.func) is not None:
        return False
    cast = receiver_of(node, *_CASTS)
    zeros = cast is not None and _is_zeros(script, cast)
    return zeros or method_of(node) in _METHODS


def _fills(script: Script, change: cst.CSTNode) -> bool:
    """Return whether a call is `scatter_` of one in the last dimension, once per row."""
    if not isinstance(change, cst.Call) or method_of(change) != "scatter_":
        return False
    if len(change.args) != 3:
        return False
    dim = script.values.value_of(change.args[0].value).literal
    one = script.values.value_of(change.args[2].value)
    return (
        dim in _LAST
        and isinstance(one.literal, (int, float))
        and one.literal == 1
        and _is_column(script, change.args[1].value)
    )


def _is_column(script: Script, ids: cst.BaseExpression) -> bool:
    """Return whether there is one index per row: the last dimension was added with size one."""
    made = script.values.value_of(ids).node or ids
    if not isinstance(made, cst.Call) or not isinstance(made.func, cst.Attribute):
        return False
    word = made.func.attr.value
    given = [arg.value for arg in made.args]
    if script.name(made.func) is not None:
        given = given[1:]
    last = script.values.value_of(given[-1]).literal if given else None
    if word in ("long", "cuda", "to", "detach", "contiguous"):
        return script.name(made.func) is None and script.answer(_is_column, made.func.value, False)
    if word == "unsqueeze":
        return last in _LAST
    return word in ("view", "reshape") and len(given) == 2 and last == 1
