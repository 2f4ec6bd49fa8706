"""Batches: what a script does with the batches that its loaders yield."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.data.loaders import Loader, Loaders
from torchlint.semantic.scope.libraries import factory
from torchlint.semantic.scope.limits import ASSIGNED, CALLED
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import index_of, method_of, named_arguments, receiver_of
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import KnownValues, ValueAnalysis

_OF_TENSORS: Final = frozenset(
    "size dim view unsqueeze squeeze permute transpose contiguous detach float long half "
    "requires_grad_ eq ne narrow expand masked_fill argmax".split()
)
_IN_SIGHT: Final = ("builtins.", "torch.", "numpy.", "torchvision.", "random.", "math.")
_COLLATING: Final = (
    "builtins.len",
    "torch.stack",
    "torch.cat",
    "torch.tensor",
    "torch.nn.utils.rnn.pad_sequence",
)
"""Functions whose result lies in memory of its own, wherever the items lay."""
_MOVING: Final = ("to", "cuda", "xpu", "type", "copy_")
_OF_TEXTS: Final = ("strip", "lower", "upper", "startswith", "endswith", "splitlines", "encode")
_TOKENIZERS: Final = frozenset("tok tokenizer tokeniser tokenize tokenise".split())


class Batches(ValueAnalysis):
    """Follows the batches of a loader through the code that receives them."""

    def __init__(self, values: KnownValues, loaders: Loaders) -> None:
        super().__init__(values)
        self.loaders = loaders

    def are_mappings(self, place: cst.CSTNode) -> bool:
        """Return whether a pass uses its batches as mappings: `batch["x"]`, `model(**batch)`."""
        if not isinstance(place, cst.For):
            return False
        names = {node.value for node in self._names_in(place.target)}
        for item in self.tree.within(place.body, cst.Subscript):
            if isinstance(item.value, cst.Name) and item.value.value in names:
                if isinstance(index_of(item), cst.SimpleString):
                    return True
        return any(
            arg.star == "**" and isinstance(arg.value, cst.Name) and arg.value.value in names
            for arg in self.tree.within(place.body, cst.Arg)
        )

    def shows_tensor(self, place: cst.CSTNode, word: str) -> bool:
        """Return whether code of a pass uses a name in a way that only a tensor allows."""
        return any(
            node.value == word and self._is_used_as_tensor(node)
            for node in self._names_in(self._region(place))
        )

    def hold_tensors(self, place: cst.CSTNode) -> bool:
        """Return whether a pass unpacks its batches and one piece is known to be a tensor."""
        if not isinstance(place, cst.For):
            return False
        pieces = [element.value for element in _pieces(place.target)]
        names = {node.value for node in pieces if isinstance(node, cst.Name)}
        return any(self.shows_tensor(place, name) for name in names)

    @memoized(False)
    def _is_used_as_tensor(self, node: cst.Name) -> bool:
        at: cst.CSTNode = node
        holder = self.tree.parent(at)
        while isinstance(holder, cst.Attribute) and holder.value is at:
            call = self.tree.parent(holder)
            if not isinstance(call, cst.Call) or call.func is not holder:
                return False
            if holder.attr.value in _OF_TENSORS:
                return True
            if holder.attr.value not in ("to", "cuda"):
                return False
            at, holder = call, self.tree.parent(call)
        outer = self.tree.taker(at)
        callee = self.functions.callee(outer) if outer is not None else None
        if outer is not None and callee is not None and isinstance(at, cst.BaseExpression):
            taken = self.functions.taken(outer, callee, at)
            uses = self.scopes.readers(taken) if taken is not None else ()
            return any(map(self._is_used_as_tensor, uses))
        if outer is not None:
            return (self.names.name(outer.func) or "").startswith("torch.")
        return isinstance(holder, (cst.BinaryOperation, cst.ComparisonTarget))

    def are_moved(self, loader: Loader) -> bool:
        """Return whether any pass over a loader moves its batches to a device."""
        if loader.receivers:
            return True
        if loader.batch_size.equals(None):  # the items may be anything, as no batch is made of them
            return self._sends(loader)
        places = loader.passes
        regions = [self._region(place) for place in places]
        if any(self._hands_on(place) for place in places):
            return True
        if any(
            method_of(call) == "pin_memory"
            for region in regions
            for call in self.functions.run_in(region)
        ):
            return False
        drawn = map(self._batch_names, places, regions)
        return not places or any(map(self._moves, regions, drawn))

    def are_sent(self, loader: Loader) -> bool:
        """Return whether a pass makes something of its batches for a device, or moves them."""
        return self.are_moved(loader) or self._sends(loader)

    def _sends(self, loader: Loader) -> bool:
        """Return whether the code of a pass itself copies something of a batch to a device."""
        return any(
            _moves(call) and not names.isdisjoint(each.value for each in self._names_in(call))
            for place in loader.passes
            for names in [self._batch_names(place, self._region(place))]
            for call in self.functions.own(self._region(place), cst.Call)
        )

    def _moves(self, region: cst.CSTNode, drawn: set[str], depth: int = CALLED) -> bool:
        """Return whether code moves the batches that it gets: if they are texts, these alone."""
        names = self._computed(region, {*drawn})
        if self._are_texts(region, names):
            return any(
                node.value in drawn
                for call in self.functions.own(region, cst.Call)
                if _moves(call)
                for node in self._moved(call)
            )
        return self._moves_what(region, names, depth)

    def _hands_on(self, place: cst.CSTNode) -> bool:
        """Return whether other code gets the batches: of a generator, or a returned `iter(x)`."""
        function = self.scopes.function(place)
        return function is not None and (
            self.functions.is_generator(function)
            or (isinstance(place, cst.Call) and isinstance(self.tree.parent(place), cst.Return))
        )

    def _region(self, place: cst.CSTNode) -> cst.CSTNode:
        """Return the code that sees the batches of a pass: the loop, or the enclosing function."""
        if isinstance(place, cst.For):
            return place
        return self.scopes.home(place)

    def _batch_names(self, place: cst.CSTNode, region: cst.CSTNode) -> set[str]:
        """Return the names that hold a batch, or a part of one."""
        if isinstance(place, (cst.For, cst.CompFor)):
            return {node.value for node in self._names_in(place.target)}
        names: set[str] = set()
        for call in self.tree.within(region, cst.Call):
            if self.iteration.draws(call):
                names |= self._targets_around(call)
        return names

    def _computed(self, region: cst.CSTNode, names: set[str]) -> set[str]:
        """Return some names, and those of what code computes from what they hold."""
        drawn = [each for each in self._drawn if self.tree.inside(each.node, region)]
        for _ in range(ASSIGNED):
            for assign in self.tree.within(region, cst.Assign):
                made = assign.value
                if isinstance(made, cst.Call) and self.kinds.kind(made.func) is Kind.MODULE:
                    continue  # the output of a network
                if any(node.value in names for node in self._roots(assign.value)):
                    names |= {n.value for each in assign.targets for n in self._names_in(each)}
            for inner in drawn:
                assert inner.value is not None
                if any(node.value in names for node in self._names_in(inner.value)):
                    names.add(inner.name)
        return names

    @cached_property
    def _drawn(self) -> list[Binding]:
        """The names that run over something: those of loops and comprehensions."""
        found = (each for each in self.scopes.bindings() if each.how is How.LOOP)
        return [each for each in found if each.value is not None]

    def _targets_around(self, call: cst.Call) -> set[str]:
        line = self.tree.statement(call)
        return {
            node.value
            for assign in self.tree.within(line, cst.Assign)
            for each in assign.targets
            for node in self._names_in(each)
        }

    def _names_in(self, node: cst.CSTNode) -> Iterator[cst.Name]:
        return self.tree.within(node, cst.Name)

    def _moves_what(self, region: cst.CSTNode, names: set[str], depth: int) -> bool:
        """Return whether code moves one of these names, or passes one to code that moves it."""
        for call in self.functions.own(region, cst.Call):
            if self.is_lost(call):
                continue
            callee = self.functions.callee(call)
            if callee is None and _moves(call) and (depth == CALLED or not _follows(call)):
                if any(node.value in names for node in self._moved(call)):
                    return True
                if isinstance(call.func, cst.Attribute) and isinstance(call.func.value, cst.Call):
                    if self.iteration.draws(call.func.value):
                        return True
                continue
            if not any(node.value in names for arg in call.args for node in self._roots(arg.value)):
                continue
            if callee is not None and depth:
                if self._moves(callee, self._taken(call, callee, names), depth - 1):
                    return True
            if callee is not None and self._moves_kept(call, callee, names):
                return True
            if callee is None and not _tokenises(call) and self._out_of_sight(call):
                return True
        return False

    def _are_texts(self, region: cst.CSTNode, names: set[str]) -> bool:
        """Return whether a tokenizer gets what has one of some names, or it has a string method."""
        return any(
            node.value in names
            for call in self.functions.own(region, cst.Call)
            for taken in self._taken_as_text(call)
            for node in self._roots(taken)
        )

    def _taken_as_text(self, call: cst.Call) -> list[cst.BaseExpression]:
        """Return what a call takes for texts."""
        if _tokenises(call):
            return [arg.value for arg in call.args]
        receiver = receiver_of(call, *_OF_TEXTS)
        return [receiver] if receiver is not None else []

    def is_lost(self, call: cst.Call) -> bool:
        """Return whether a call copies a tensor to a device and throws the copy away."""
        moved = receiver_of(call, "to", "cuda", "xpu")
        is_line = isinstance(self.tree.parent(call), cst.Expr)
        return is_line and moved is not None and self.kinds.kind(moved) is Kind.TENSOR

    def _moves_kept(self, call: cst.Call, callee: cst.FunctionDef, names: set[str]) -> bool:
        """Return whether a method keeps what it is given, and code moves what is kept."""
        given = self._taken(call, callee, names)
        kept = (
            binding
            for line in self.functions.own(callee, cst.Assign)
            if any(node.value in given for node in self._roots(line.value))
            for each in line.targets
            if (binding := self.scopes.stored(each.target)) and "." in binding.name
        )
        return any(self._is_moved(each) for each in kept)

    def _is_moved(self, kept: Binding) -> bool:
        """Return whether code moves what an attribute holds, or a part of it."""
        return any(
            kept in self.functions.attribute(each) and _moves(call)
            for each in self.functions.attributes(kept.name.rpartition(".")[2])
            for call in self.tree.ancestors(each)
            if isinstance(call, cst.Call)
            and isinstance(call.func, cst.Attribute)
            and self.tree.inside(each, call.func.value)
        )

    def _taken(self, call: cst.Call, callee: cst.FunctionDef, names: set[str]) -> set[str]:
        """Return the parameters that get something of one of some names."""
        parameters = (*callee.params.params, *callee.params.kwonly_params)
        values = {each: self.functions.passed(call, callee, each.name.value) for each in parameters}
        starred = [arg.value for arg in call.args if arg.star]
        return {
            each.name.value
            for each, value in values.items()
            for given in (starred if value is None else [value])
            if any(node.value in names for node in self._roots(given))
        }

    def _out_of_sight(self, call: cst.Call) -> bool:
        """Return whether a project function, or DataParallel, receives a batch and may move it."""
        if self.kinds.kind(call.func) is Kind.MODULE:
            return any(
                self.names.name(other.func) == "torch.nn.DataParallel"
                for other in self.tree.all(cst.Call)
            )
        name = self.names.name(call.func)
        if name is not None:
            return not name.startswith(_IN_SIGHT)
        owner = call.func.value if isinstance(call.func, cst.Attribute) else call.func
        root = next(self._names_in(owner), None)
        return root is not None and root.value == "self" and self.kinds.kind(owner) is Kind.UNKNOWN

    def _moved(self, call: cst.Call) -> Iterator[cst.Name]:
        """Yield the names in what a call moves, except those used only as indices."""
        new = self._makes_new(call)
        sources: list[cst.CSTNode] = [] if new else [arg.value for arg in call.args]
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _MOVING:
            sources = [call.func.value]
        for source in sources:
            yield from self._roots(source)

    def _roots(self, source: cst.CSTNode) -> Iterator[cst.Name]:
        """Yield the names in an expression, except indices and what is made into new tensors."""
        apart: list[cst.CSTNode] = [*self.tree.within(source, cst.SubscriptElement)]
        apart += self.tree.within(source, cst.BinaryOperation)
        apart += (each for each in self.tree.within(source, cst.Call) if self._makes_new(each))
        apart += (
            each
            for each in self.tree.within(source, cst.Attribute)
            if each.attr.value in ("shape", "dtype", "device")
        )
        for node in self._names_in(source):
            if not any(self.tree.inside(node, each) for each in apart):
                yield node

    def _makes_new(self, call: cst.Call) -> bool:
        """Return whether a call's result lies in memory of its own, or is no tensor."""
        name = self.names.name(call.func)
        return _tokenises(call) or name in _COLLATING or factory(name) is not None


def _pieces(target: cst.CSTNode) -> Iterator[cst.BaseElement]:
    """Yield the innermost targets when a target unpacks a value."""
    if isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            if isinstance(element.value, (cst.Tuple, cst.List)):
                yield from _pieces(element.value)
            else:
                yield element


def _tokenises(call: cst.Call) -> bool:
    """Return whether a call turns texts into tensors, by a tokenizer that it is of or is given."""
    func = call.func.value if isinstance(call.func, cst.Attribute) else call.func
    said = [call.func, func]
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _MOVING:
        said += [arg.value for arg in call.args]
    return any(
        not _TOKENIZERS.isdisjoint(words(dotted(name)))
        for name in said
        if isinstance(name, (cst.Name, cst.Attribute))
    )


def _moves(call: cst.Call) -> bool:
    if named_arguments(call, "device"):
        return True
    if isinstance(call.func, cst.Name):
        return "device" in call.func.value or "cuda" in call.func.value
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _MOVING:
        return False
    return not any(
        isinstance(arg.value, cst.SimpleString) and "cpu" in arg.value.value for arg in call.args
    )


def _follows(call: cst.Call) -> bool:
    """Return whether a call moves something to where another tensor is: `x.to(y.device)`."""
    given = call.args[0].value if len(call.args) == 1 else None
    path = dotted(given) if given is not None else ""
    return path.count(".") == 1 and path.endswith(".device") and path != "self.device"
