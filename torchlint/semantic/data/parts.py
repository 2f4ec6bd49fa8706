"""Parts: pieces of batches, followed back to the loaders that yield them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.data.loaders import Loader, Loaders
from torchlint.semantic.scope.libraries import VIEWS
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import is_none, word_of
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import KnownValues, ValueAnalysis
from torchlint.semantic.values.origins import Steps

_SAME: Final = ("data", "T", "mT")
"""Attributes of a tensor that are views of it."""
_MAPPERS: Final = frozenset("map apply recursive recursively".split())
"""Words in names of functions that call a function on all tensors of a nested container."""
_DEPTH: Final = 16


class Part(NamedTuple):
    """A piece of a loader's batches; empty `steps` mean the whole batch."""

    loader: Loader
    steps: Steps
    place: cst.CSTNode
    """The loop that takes the batch from the loader, or the place of `next`."""


class Parts(ValueAnalysis):
    """Follows expressions back to the batches that they are a piece of."""

    def __init__(self, values: KnownValues, loaders: Loaders) -> None:
        super().__init__(values)
        self.loaders = loaders
        self.engines = loaders.ownership.engines
        self.kinds = loaders.kinds
        self._open: set[int] = set()

    def of(self, node: cst.BaseExpression) -> tuple[Part, ...]:
        """Return every piece that an expression can be; nothing if it may be something else."""
        return tuple(self._follow(node, (), _DEPTH) or ())

    def _follow(self, node: cst.BaseExpression, steps: Steps, depth: int) -> list[Part] | None:
        if not depth:
            return None
        if isinstance(node, cst.Name):
            return self._of_bindings(self.scopes.reaching(node), steps, depth - 1)
        if isinstance(node, cst.Subscript):
            return self._of_item(node, steps, depth - 1)
        if isinstance(node, cst.Call):
            return self._of_call(node, steps, depth - 1)
        if isinstance(node, cst.Attribute):
            known = self.functions.attribute(node)
            bound = [each for each in known if not self.tree.inside(node, each.node)]
            if bound:
                return self._of_bindings(bound, steps, depth - 1)
            within = steps if node.attr.value in _SAME else (f".{node.attr.value}", *steps)
            return self._follow(node.value, within, depth - 1)
        if isinstance(node, (cst.Tuple, cst.List)) and steps:
            return self._of_literal(node, steps, depth - 1)
        return None

    def _of_literal(
        self, node: cst.Tuple | cst.List, steps: Steps, depth: int
    ) -> list[Part] | None:
        first, chosen = steps[0], node.elements
        if isinstance(first, int):
            chosen = chosen[first : first + 1] if first >= 0 else ()
        elif first is not None:
            return None
        if not chosen or any(isinstance(each, cst.StarredElement) for each in chosen):
            return None
        return self._of_all([each.value for each in chosen], steps[1:], depth)

    def _of_all(
        self, nodes: Sequence[cst.BaseExpression], steps: Steps, depth: int
    ) -> list[Part] | None:
        """Return the pieces that several expressions can be; None if one is something else."""
        return _joined(self._follow(node, steps, depth) for node in nodes)

    def _of_bindings(
        self, bindings: Sequence[Binding], steps: Steps, depth: int
    ) -> list[Part] | None:
        return _joined(self._of_binding(binding, steps, depth) for binding in bindings)

    def _of_binding(self, binding: Binding, steps: Steps, depth: int) -> list[Part] | None:
        value = binding.value
        if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
            place = id(binding.node)
            if place in self._open:
                # a recursive function that passes itself the pieces of its argument
                return []
            self._open.add(place)
            try:
                return self._of_parameter(binding.node, steps, depth)
            finally:
                self._open.discard(place)
        if value is None or binding.starred:
            return None
        if binding.how is How.ASSIGN:
            return self._follow(value, steps, depth)
        if binding.how is How.UNPACKED:
            return self._follow(value, (*binding.path, *steps), depth)
        if binding.how is How.LOOP:
            source, path = self.iteration.source(value, binding.path)
            if source is None:
                return None
            return self._drawn(source, (*path, *steps), binding.node, depth)
        return None

    def _drawn(
        self, source: cst.BaseExpression, steps: Steps, place: cst.CSTNode, depth: int
    ) -> list[Part] | None:
        """Return the piece that each element drawn from a loader or a container is."""
        if self.kinds.kind(source) is Kind.LOADER:
            found = self._handed_out(source, steps, place)
            if found is not None:
                return found
        owner = self.functions.instance_of(source)
        drawing = self.functions.method(owner, "__next__") if owner is not None else None
        if drawing is not None:
            return self._of_all(self.functions.returns(drawing), steps, depth)
        passing = self.functions.method(owner, "__iter__") if owner is not None else None
        if passing is not None:
            return self._of_generator(passing, (None, *steps), depth)
        return self._follow(source, (None, *steps), depth)

    def _of_parameter(self, node: cst.Param, steps: Steps, depth: int) -> list[Part] | None:
        parameters = self.tree.parent(node)
        owner = self.tree.parent(parameters)
        if isinstance(owner, cst.Lambda) and isinstance(parameters, cst.Parameters):
            mapped = self._of_mapped(owner, parameters.params.index(node), steps, depth)
            return mapped or self._of_all_loaders(owner, node, steps)
        if node.star == "*":
            return None
        given = self.functions.given(node)
        if not given and isinstance(owner, cst.FunctionDef) and node.name.value != "self":
            return self._of_all_loaders(owner, node, steps)
        return self._of_given(given, steps, depth)

    def _of_given(
        self, given: Sequence[cst.BaseExpression], steps: Steps, depth: int
    ) -> list[Part] | None:
        """Return the pieces that all callers hand over as a parameter."""
        return self._of_all(given, steps, depth)

    def _of_all_loaders(
        self, function: cst.FunctionDef | cst.Lambda, batch: cst.Param, steps: Steps
    ) -> list[Part] | None:
        """Follow the batch that a framework gives a step to the loaders that it gets itself."""
        fed = [each.args[0].value for each in self.engines.runs(batch) if each.args]
        if isinstance(function, cst.FunctionDef):
            fed += self.loaders.lightning.fitting(function)
        return _joined(self._handed_out(source, steps, function) for source in fed) or None

    def _of_mapped(
        self, function: cst.Lambda, position: int, steps: Steps, depth: int
    ) -> list[Part] | None:
        """Follow the parameter of `map(lambda x: …, things)`, or of another's `tree_map`."""
        arg = self.tree.parent(function)
        call = self.tree.taker(function)
        if not isinstance(call, cst.Call):
            return None
        others = [each.value for each in call.args if each is not arg]
        if self.names.name(call.func) == "builtins.map":
            if call.args[0] is not arg or position >= len(others):
                return None
        elif len(others) != 1 or _MAPPERS.isdisjoint(words(word_of(call))):
            return None
        return self._follow(others[position], (None, *steps), depth)

    def _of_item(self, node: cst.Subscript, steps: Steps, depth: int) -> list[Part] | None:
        indices = [element.slice for element in node.slice]
        first = indices[0]
        if len(indices) == 1 and isinstance(first, cst.Index):
            if isinstance(first.value, cst.SimpleString):
                return self._follow(node.value, (str(first.value.evaluated_value), *steps), depth)
            if isinstance(first.value, cst.Integer):
                return self._follow(node.value, (int(first.value.value, 0), *steps), depth)
            if self._is_key(first.value, node.value):
                return self._follow(node.value, (None, *steps), depth)
        if all(self._keeps_storage(index) for index in indices):
            return self._follow(node.value, steps, depth)
        return None

    def _is_key(self, index: cst.BaseExpression, container: cst.BaseExpression) -> bool:
        """Return whether an index is a key of a container: a string, or a loop target over it."""
        if self.kinds.kind(index) is Kind.STRING:
            return True
        path = dotted(container)
        return any(
            binding.how is How.LOOP and self._hands_out_keys(binding.value, path)
            for binding in self.scopes.reaching(index)
        )

    def _hands_out_keys(self, iterated: cst.BaseExpression | None, path: str) -> bool:
        if isinstance(iterated, cst.Call):
            func = iterated.func
            if isinstance(func, cst.Attribute) and func.attr.value in ("keys", "items"):
                return dotted(func.value) == path != ""
            listed = self.names.name(func) in ("builtins.list", "builtins.sorted")
            return listed and self._hands_out_keys(iterated.args[0].value, path)
        if isinstance(iterated, (cst.Tuple, cst.List)):
            return all(self.kinds.kind(each.value) is Kind.STRING for each in iterated.elements)
        return iterated is not None and dotted(iterated) == path != ""

    def _keeps_storage(self, index: cst.BaseSlice) -> bool:
        """Return whether indexing takes a view of a tensor."""
        if isinstance(index, cst.Slice):
            return True
        value = index.value if isinstance(index, cst.Index) else None
        return isinstance(value, (cst.Integer, cst.Ellipsis)) or (
            value is not None and self.kinds.kind(value) in (Kind.NUMBER, Kind.NOTHING)
        )

    def _of_call(self, node: cst.Call, steps: Steps, depth: int) -> list[Part] | None:
        name = self.names.name(node.func)
        if name == "builtins.next":
            return self._of_next(node, steps, depth)
        if name == "builtins.iter" and node.args and steps[:1] == (None,):
            return self._drawn(node.args[0].value, steps[1:], node, depth)
        if name in ("builtins.tuple", "builtins.list") and node.args and steps:
            return self._follow(node.args[0].value, (None, *steps[1:]), depth)
        if name == "torch.autograd.Variable" and node.args:
            return self._follow(node.args[0].value, steps, depth)
        functions = self.functions.surely_held(node.func)
        if functions:
            return _joined(self._of_result(each, steps, depth) for each in functions)
        if name is not None or not isinstance(node.func, cst.Attribute):
            return None
        method = node.func.attr.value
        if method in ("next", "__next__") and not node.args:
            return self._of_next(node, steps, depth)
        if method == "items" and steps[1:2] == (1,):
            return self._follow(node.func.value, (None, *steps[2:]), depth)
        if method == "values" and steps:
            return self._follow(node.func.value, steps, depth)
        if method in VIEWS:
            return self._follow(node.func.value, steps, depth)
        return None

    def _of_result(self, function: cst.FunctionDef, steps: Steps, depth: int) -> list[Part] | None:
        """Follow what a function returns or yields."""
        if self.functions.is_generator(function):
            return self._of_generator(function, steps, depth)
        return self._of_all(self.functions.returns(function), steps, depth)

    def _of_next(self, node: cst.Call, steps: Steps, depth: int) -> list[Part] | None:
        source, path = self.iteration.source(node)
        if source is None or source is node:
            return None
        drawn = self._iterated(source)
        return _joined(self._drawn(each, (*path, *steps), node, depth) for each in drawn)

    def _iterated(self, iterator: cst.BaseExpression) -> list[cst.BaseExpression]:
        """Return what something is an iterator over: `self.batches = iter(loader)`."""
        if self.kinds.kind(iterator) is Kind.LOADER:
            return [iterator]
        made = self.origins.of(iterator).values
        drawn = [self.iteration.source(each)[0] for each in made if isinstance(each, cst.Call)]
        found = [source for source in drawn if source is not None]
        return found if found and len(found) == len(drawn) else [iterator]

    def _of_generator(
        self, function: cst.FunctionDef, steps: Steps, depth: int
    ) -> list[Part] | None:
        """Follow what a generator of this file yields."""
        if steps[:1] != (None,):
            return None
        found: list[Part] = []
        for node in self.functions.own(function.body, cst.Yield):
            given = node.value.item if isinstance(node.value, cst.From) else node.value
            if given is None:
                return None
            within = steps if isinstance(node.value, cst.From) else steps[1:]
            if isinstance(node.value, cst.From) and self.kinds.kind(given) is Kind.LOADER:
                parts = self._handed_out(given, steps[1:], node)
            else:
                parts = self._follow(given, within, depth)
            if parts is None:
                return None
            found += parts
        return found

    def _handed_out(
        self, source: cst.BaseExpression, steps: Steps, place: cst.CSTNode
    ) -> list[Part] | None:
        origin = self.origins.of(source)
        loaders = self.loaders.made_by(source)
        others = [
            value
            for value in origin.values
            if self.loaders.made_as(value) is None and not is_none(value)
        ]
        if others or not origin.complete:
            return None
        return [Part(loader, steps, place) for loader in loaders]


class PartsOfSomeCallers(Parts):
    """Follows expressions like `Parts`, past callers that hand over something else."""

    def _of_given(
        self, given: Sequence[cst.BaseExpression], steps: Steps, depth: int
    ) -> list[Part] | None:
        """Return the pieces that some callers hand over as a parameter."""
        found = (self._follow(each, steps, depth) for each in given)
        return _joined(parts for parts in found if parts is not None)


def _joined(alternatives: Iterable[list[Part] | None]) -> list[Part] | None:
    """Return the pieces of all alternatives; None if there is none or one is something else."""
    found: list[list[Part]] = []
    for parts in alternatives:
        if parts is None:
            return None
        found.append(parts)
    return [part for parts in found for part in parts] if found else None
