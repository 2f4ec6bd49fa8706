"""What things are by their classes and uses, where their names alone would mislead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Functions
from torchlint.semantic.scope.scopes import Binding, dotted
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import index_of, last_word, word_of
from torchlint.semantic.syntax.tree import Tree
from torchlint.semantic.values.kind import ENGINES, Kind, conventional
from torchlint.semantic.values.origins import Origins

_OF_NETWORKS: Final = ("eval", "train", "parameters", "forward", "state_dict")


def is_no_network(functions: Functions, origins: Origins, binding: Binding) -> bool:
    """Return whether nothing that a binding can be in view is or acts as a network."""
    values: Sequence[cst.BaseExpression | None] = [binding.value]
    if isinstance(binding.node, cst.Param):
        given = functions.given(binding.node)
        values = [value for each in given for value in origins.of(each).values]
    return bool(values) and all(_is_plain_object(functions, each) for each in values)


def _is_plain_object(functions: Functions, value: cst.BaseExpression | None) -> bool:
    """Return whether a value is no network: of a class in view, or an engine of another library."""
    owner = functions.definition(value.func) if isinstance(value, cst.Call) else None
    if isinstance(value, cst.Call) and owner is None:
        spoken = words(f"{functions.names.name(value.func) or ''}.{word_of(value)}")
        return not ENGINES.isdisjoint(spoken)
    if not isinstance(owner, cst.ClassDef):
        return False
    line = functions.lineage(owner)
    bases = [base for each in line for base in each.bases]
    known = all(
        functions.names.name(base.value) == "builtins.object"
        or isinstance(functions.definition(base.value), cst.ClassDef)
        for base in bases
    )
    return known and not any(functions.method(owner, word) for word in _OF_NETWORKS)


Used = tuple[object, str]
"""The scope of a name and the name; of attributes the path alone."""


def used(functions: Functions, node: cst.CSTNode) -> Used:
    """Return what tells one name or attribute from others that are spelled alike."""
    scopes = functions.scopes
    if type(node) is cst.Name:
        return scopes.lookup(node.value, scopes.scope(node)), node.value
    return None, dotted(node)


def used_as_networks(functions: Functions) -> frozenset[Used]:
    """Return what a file asks for its parameters, or calls and puts in a mode."""
    asked, moded = set[Used](), set[Used]()
    for word in ("parameters", "named_parameters", "eval", "train"):
        for method in functions.attributes(word):
            call = functions.tree.parent(method)
            if isinstance(call, cst.Call) and call.func is method:
                if word.endswith("parameters"):
                    asked.add(used(functions, method.value))
                elif not call.args:
                    moded.add(used(functions, method.value))
    called = {used(functions, call.func) for call in functions.tree.all(cst.Call) if call.args}
    return frozenset(asked | moded & called) - {(None, "")}


def made_as_networks(functions: Functions, origins: Origins) -> frozenset[cst.BaseExpression]:
    """Return what may make the objects that a file asks for their parameters."""
    asked = (*functions.attributes("parameters"), *functions.attributes("named_parameters"))
    return frozenset(
        made
        for method in asked
        if conventional(last_word(method.value)) in (Kind.UNKNOWN, Kind.MODULE)
        for made in origins.of(method.value).values
    )


def used_otherwise(tree: Tree) -> dict[str, list[cst.Name]]:
    """Return the names that are indexed by a string, or called without arguments.

    So are mappings and what gives values; networks, losses and optimizers are not.
    """
    found: dict[str, list[cst.Name]] = {}
    for item in tree.all(cst.Subscript):
        if type(item.value) is cst.Name and type(index_of(item)) is cst.SimpleString:
            found.setdefault(item.value.value, []).append(item.value)
    for call in tree.all(cst.Call):
        if type(call.func) is cst.Name and not call.args:
            found.setdefault(call.func.value, []).append(call.func)
    return found


def places_a_network(functions: Functions, parameter: cst.Param) -> bool:
    """Return whether a statement `x.to(p)` stands alone: only networks move in place."""
    tree = functions.tree
    function = tree.parent(tree.parent(parameter))
    word = parameter.name.value
    for method in functions.attributes("to"):
        call = tree.parent(method)
        if not isinstance(call, cst.Call) or len(call.args) != 1 or "type" in word:
            continue
        given = call.args[0].value
        if not isinstance(given, cst.Name) or given.value != word:
            continue
        if isinstance(tree.parent(call), cst.Expr) and functions.scopes.function(call) is function:
            return True
    return False
