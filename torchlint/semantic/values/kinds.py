"""Kinds: the kinds of expressions, through assignments, unpacking, returns and calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.applied import applied
from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.calls.instances import PREPARING
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.syntax.methods import (
    choices_of,
    container_of,
    index_of,
    last_word,
    method_of,
    receiver_of,
    replaces_itself,
)
from torchlint.semantic.values.annotated import Annotations
from torchlint.semantic.values.datasetfields import kind_of_field
from torchlint.semantic.values.drawing import MOVES, Drawing
from torchlint.semantic.values.iteration import COUNTER, Iteration
from torchlint.semantic.values.kind import (
    LITERALS,
    PASSED_ON,
    TENSORS,
    Kind,
    are_parameters,
    called,
    combined,
    conventional,
    conventional_attribute,
    derived,
    dimension,
    draws_number,
    joined,
    literal_index,
    method_result,
    takes_many,
)
from torchlint.semantic.values.losses import Losses
from torchlint.semantic.values.narrowing import Narrowing
from torchlint.semantic.values.origins import Origins, Steps
from torchlint.semantic.values.placing import (
    Used,
    is_no_network,
    made_as_networks,
    places_a_network,
    used,
    used_as_networks,
    used_otherwise,
)
from torchlint.semantic.values.torchinputs import TorchInputs

# Attributes of an `Enum` are slow before Python 3.12, and these are used very often.
_UNKNOWN: Final = Kind.UNKNOWN
_NOTHING: Final = Kind.NOTHING
_TENSOR: Final = Kind.TENSOR
_LOSS: Final = Kind.LOSS
_MODULE: Final = Kind.MODULE
_LOADER: Final = Kind.LOADER
_SEQUENCE: Final = Kind.SEQUENCE
_NDARRAY: Final = Kind.NDARRAY
_NUMBER: Final = Kind.NUMBER
_PARAMETER: Final = How.PARAMETER
_ASSIGN: Final = How.ASSIGN
_LOOP: Final = How.LOOP
_AUGMENTED: Final = How.AUGMENTED
_DEFINED: Final = (How.FUNCTION, How.CLASS)
_OVER_PROCESSES: Final = frozenset(
    "gather gather_for_metrics reduce all_gather all_reduce pad_across_processes".split()
)
"""The methods by which frameworks send a tensor through all processes."""
_ENGINE: Final = (Kind.MODULE, Kind.OPTIMIZER, Kind.LOADER, Kind.SCHEDULER)
"""What DeepSpeed makes of a network: its engine, and what the engine trains with."""
_OF_BATCHES: Final = frozenset("to cuda sum mean eq ne".split())
"""Methods that tensors have, not texts or lists, which may be parts of a batch as well."""


class Kinds(Analysis):
    """Finds the kind of an expression, UNKNOWN if the file does not show it."""

    def __init__(
        self, functions: Functions, iteration: Iteration, origins: Origins, losses: Losses
    ) -> None:
        super().__init__(functions)
        self.iteration, self.origins, self.losses = iteration, origins, losses
        self.inputs = TorchInputs(functions)
        self.annotations = Annotations(functions)
        self.narrowing = Narrowing(functions)
        self.drawing = Drawing(functions, origins, self.kind)
        self.loader = self.drawing.loader
        """Return the loader that a loop over a value, or `next(value)`, takes its batches from."""

    # -- expressions ----------------------------------------------------------

    @memoized(_NOTHING)
    def kind(self, node: cst.CSTNode) -> Kind:
        """Return the kind of an expression, or of the value assigned to a target."""
        if type(node) is cst.Name:
            return self._kind_of_name(node)
        if type(node) is cst.Call:
            found = self._kind_of_call(node)
            return _MODULE if found is _UNKNOWN and node in self._made_networks else found
        if type(node) is cst.Attribute:
            return self._kind_of_attribute(node)
        if type(node) is cst.Subscript:
            return self._kind_of_item(node)
        if type(node) is cst.BinaryOperation:
            return combined(self.kind(node.left), self.kind(node.right))
        if type(node) is cst.UnaryOperation:
            return _UNKNOWN if type(node.operator) is cst.Not else self.kind(node.expression)
        if type(node) is cst.Comparison:
            return self._kind_of_comparison(node)
        if choices := choices_of(node):
            return joined([*map(self.kind, choices)])
        if isinstance(node, (cst.Await, cst.NamedExpr)):
            return self.kind(node.expression if isinstance(node, cst.Await) else node.value)
        return LITERALS.get(type(node), _UNKNOWN)

    def _kind_of_name(self, node: cst.Name) -> Kind:
        if node.value in ("True", "False"):
            return _NUMBER
        if node.value == "None":
            return _NOTHING
        target = self.scopes.stored(node)
        if target is not None and self.scopes.reads(node) is False:
            return self.kind_of_binding(target)
        found = self._or_network(self._kind_of_all(self.scopes.reaching(node), node.value), node)
        if found in (_UNKNOWN, _MODULE) and self.narrowing.is_tensor(node):
            return _TENSOR if found is _UNKNOWN and self._may_be_tensor(node) else _UNKNOWN
        return _UNKNOWN if found in TENSORS and self.narrowing.is_no_tensor(node) else found

    def _may_be_tensor(self, node: cst.Name) -> bool:
        """Return whether one of the values in sight that a name can stand for is a tensor."""
        origin = self.origins.of(node)
        given = [each for each in origin.values if each is not node]
        return any(self.kind(each) in TENSORS for each in given) or any(
            map(self.losses.holds_losses, origin.members)
        )

    def _or_network(self, found: Kind, node: cst.Name | cst.Attribute) -> Kind:
        """Return MODULE for an otherwise unknown object that is used as a network somewhere."""
        if found is not _UNKNOWN or not self._networks:
            return found
        clear = conventional(last_word(node)) in (_UNKNOWN, _MODULE)
        return _MODULE if clear and used(self.functions, node) in self._networks else found

    @cached_property
    def _networks(self) -> frozenset[Used]:
        return used_as_networks(self.functions)

    @cached_property
    def _made_networks(self) -> frozenset[cst.BaseExpression]:
        return made_as_networks(self.functions, self.origins)

    def _kind_of_attribute(self, node: cst.Attribute) -> Kind:
        target = self.scopes.stored(node)
        if target is not None and self.scopes.reads(node) is False:
            return self.kind_of_binding(target)
        if self.losses.is_attribute(node):
            return _LOSS
        base = self.kind(node.value)
        attribute = node.attr.value
        if base in TENSORS:
            if attribute in ("data", "T", "mT", "real", "imag"):
                return base
            return _TENSOR if attribute == "grad" else _UNKNOWN
        if base is Kind.DISTRIBUTION:
            return method_result(base, attribute)
        if attribute == "grad" and base is _UNKNOWN and self.drawing.is_drawn(node.value):
            return _TENSOR
        if base is _LOADER:
            return {"dataset": Kind.DATASET, "sampler": Kind.SAMPLER}.get(attribute, _UNKNOWN)
        if base is Kind.DATASET:
            kept = kind_of_field(self.names, self.origins, node)
            if kept is not _UNKNOWN:
                return kept
        if base is _MODULE and attribute == "module":
            return _MODULE
        if base is _NDARRAY and attribute == "T":
            return _NDARRAY
        if attribute == "values" and self.names.name(node) is None and base is _UNKNOWN:
            return _UNKNOWN
        bindings = self.functions.attribute(node)
        if bindings:
            return self._or_network(self._kind_of_all(bindings, attribute), node)
        if self.names.name(node) is not None:
            return _UNKNOWN
        return self._or_network(conventional_attribute(node), node)

    def among(self, args: Sequence[cst.Arg], kind: Kind) -> cst.BaseExpression | None:
        """Return the first argument of a kind, None without one."""
        given = (arg.value for arg in args if not arg.star)
        return next((each for each in given if self.kind(each) is kind), None)

    def _kind_of_item(self, node: cst.Subscript) -> Kind:
        if self.losses.hooks.is_loss_of_batch(node) or self.losses.is_entry(node):
            return _LOSS
        base = self.kind(node.value)
        if base in TENSORS:
            return _TENSOR
        if base is _NDARRAY:
            return _NDARRAY if takes_many(node) else _UNKNOWN
        index = literal_index(node)
        if base is _LOADER or (base is _MODULE and index is not None):
            return base
        if isinstance(node.value, cst.Name) and index is not None and self._is_batch(node.value):
            return _TENSOR
        if base in (Kind.MAPPING, _SEQUENCE) and not isinstance(node.value, cst.Call):
            found = self._kind_of_member(node)
            one = index is not None or (base is _SEQUENCE and not takes_many(node))
            if found is _UNKNOWN and one:
                found = self._element(node.value, (index,))
            by_name = conventional(last_word(node.value))
            return by_name if found is _UNKNOWN and by_name is _LOADER else found
        if isinstance(node.value, cst.Call) and index is not None:
            return self._element(node.value, (index,))
        return _UNKNOWN

    @memoized(False)
    def _is_batch(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is a whole batch of a loader, or an element of one."""
        reaching = self.scopes.reaching(container_of(node))
        return bool(reaching) and all(
            (
                binding.how in (_ASSIGN, How.UNPACKED)
                and binding.value is not None
                and self.iteration.draws(binding.value)
                and self.loader(binding.value) is not None
            )
            or (
                binding.how is _LOOP
                and binding.value is not None
                and (source := self.iteration.source(binding.value, binding.path)[0]) is not None
                and (self.kind(source) is _LOADER or self._is_entry_of_batch(source, binding))
            )
            for binding in reaching
        )

    def _is_entry_of_batch(self, source: cst.BaseExpression, binding: Binding) -> bool:
        """Return whether a loop draws the values of a batch: `for k, v in batch.items():`."""
        whole = receiver_of(source)
        drawn = {"items": (1,), "values": ()}.get(method_of(source))
        return whole is not None and drawn == binding.path and self._is_batch(whole)

    def _kind_of_comparison(self, node: cst.Comparison) -> Kind:
        if any(
            isinstance(c.operator, (cst.Is, cst.IsNot, cst.In, cst.NotIn)) for c in node.comparisons
        ):
            return _UNKNOWN
        sides = [self.kind(node.left), *(self.kind(c.comparator) for c in node.comparisons)]
        if any(s in TENSORS for s in sides):
            return combined(sides[0], sides[-1])
        return _NDARRAY if _NDARRAY in sides else _UNKNOWN

    # -- calls ----------------------------------------------------------------

    def _kind_of_call(self, node: cst.Call) -> Kind:
        name = self.names.name(node.func)
        if name is not None:
            found = self._kind_of_named_call(name, node)
            if found is not _UNKNOWN:
                return found
        if (alone := self.losses.inherited(node)) is not None:
            return _LOSS if alone else _SEQUENCE
        definition = self.functions.definition(node.func)
        if type(definition) is cst.ClassDef:
            return derived(self.functions.bases(definition))
        made_by = self.functions.partial(node)
        if made_by is not None:
            return called(made_by)
        if applied(self.functions, node.func) is not None:
            return _TENSOR
        callees = self.functions.callees(node)
        returned = joined([self._returned(each) for each in callees]) if callees else _UNKNOWN
        if returned not in (_TENSOR, _UNKNOWN):
            return returned
        kind = self.kind(node.func)
        if kind is not _MODULE and self.losses.gives(node):
            return _LOSS
        if returned is _TENSOR:
            return returned
        if kind is Kind.CRITERION:
            return _LOSS
        if kind is _MODULE and not callees:
            return kind if replaces_itself(node, self.tree.parent(node)) else _TENSOR
        if type(node.func) is cst.Attribute and not callees:
            return self._kind_of_method(node.func, name)
        return _UNKNOWN

    def _kind_of_named_call(self, name: str, node: cst.Call) -> Kind:
        if draws_number(name, node):
            known = all(self.kind(arg.value) is _NUMBER for arg in node.args)
            return _NUMBER if known else _UNKNOWN
        if name.startswith("einops.") and node.args:
            return self.kind(node.args[0].value)
        if name in PASSED_ON and node.args:
            inner = self.kind(node.args[0].value)
            return inner if inner is not _UNKNOWN else called(name)
        if name in ("builtins.sum", "builtins.max", "builtins.min", "builtins.abs") and node.args:
            given = node.args[0].value
            found = (self.kind(given), self._kind_of_member(given, (None,)))
            return next((each for each in found if each in TENSORS), _UNKNOWN)
        if name.startswith("numpy.") and any(
            self.kind(arg.value) in TENSORS for arg in node.args[:1]
        ):
            return _NDARRAY
        if name in ("torch.max", "torch.min", "torch.sort", "torch.topk", "torch.kthvalue"):
            return self._kind_of_extremes(name.rpartition(".")[2], node)
        return called(name)

    def _kind_of_method(self, func: cst.Attribute, name: str | None) -> Kind:
        method = func.attr.value
        base = self.kind(func.value)
        if base is _NOTHING:
            # a method of the value in question: `model = model.to(device)` in a loop
            return base
        if base is _UNKNOWN:
            moved = method in _OF_BATCHES and (
                self._is_batch(func.value)
                # a tensor picks items of tensors and arrays alone
                or self.kind(index_of(func.value) or func.value) in TENSORS
            )
            moved = moved or (method in MOVES and self.drawing.is_drawn(func.value))
            if name is None and (moved or self._is_sent_round(func)):
                return _TENSOR
            if name is None and self.inputs.is_tensors(func):
                return Kind.SEQUENCE if method in ("max", "min") else _TENSOR
            if method in PREPARING and name is None:
                return self._kind_of_prepared(func)
            return _NDARRAY if method in ("to_numpy", "asnumpy") and name is None else base
        call = self.tree.parent(func)
        if method == "size" and base in TENSORS and isinstance(call, cst.Call):
            return _NUMBER if call.args else _UNKNOWN
        if method in ("max", "min", "sort", "topk", "kthvalue") and base in TENSORS:
            return self._kind_of_extremes(method, call, bound=True)
        return method_result(base, method)

    def _kind_of_extremes(self, method: str, call: cst.CSTNode | None, bound: bool = False) -> Kind:
        """Return the kind of what `max` and the like give: with a dimension, indices as well."""
        if method in ("sort", "topk", "kthvalue"):
            return _SEQUENCE
        over = dimension(call, bound) if isinstance(call, cst.Call) else None
        return _TENSOR if over is None or self.kind(over) in TENSORS else _SEQUENCE

    def _kind_of_prepared(self, func: cst.Attribute) -> Kind:
        """Return the kind of what a framework prepares alone: `fabric.setup(network)`."""
        call = self.tree.parent(func)
        args = call.args if type(call) is cst.Call else []
        found = self.kind(args[0].value) if args else _UNKNOWN
        alone = sum(arg.keyword is None for arg in args) == 1
        return found if alone and found in _ENGINE else _UNKNOWN

    def _is_sent_round(self, func: cst.Attribute) -> bool:
        """Return whether a method of a framework sends a tensor through all processes."""
        call = self.tree.parent(func)
        args = call.args if type(call) is cst.Call and func.attr.value in _OVER_PROCESSES else []
        return bool(args) and self.kind(args[0].value) in TENSORS

    def _returned(self, function: cst.FunctionDef) -> Kind:
        told = self.annotations.kind(function.returns.annotation) if function.returns else _UNKNOWN
        if told not in (_UNKNOWN, _NUMBER) or self.functions.is_generator(function):
            return told
        returned = self.functions.returns(function)
        found = joined([self.kind(value) for value in returned]) if returned else _UNKNOWN
        # the losses of `-> float` are tensors all the same
        return found if found in TENSORS or told is _UNKNOWN else told

    # -- bindings -------------------------------------------------------------

    def _kind_of_all(self, bindings: Sequence[Binding], name: str) -> Kind:
        kinds = [self._kind_or_convention(binding, name) for binding in bindings]
        if len(kinds) == 1:
            found = kinds[0]
        else:
            found = joined(kinds, numbers_too=any(map(self._accumulates, bindings)))
        if found in (_UNKNOWN, _TENSOR, _NUMBER) and self.losses.sent_backward(bindings):
            return _LOSS
        shown = [kind for kind in kinds if kind not in (_UNKNOWN, _NOTHING)]
        if not shown or (found is _UNKNOWN and len({*shown}) == 1):
            if any(binding.how in _DEFINED for binding in bindings):
                return _UNKNOWN
            if not shown and self.inputs.take(bindings):
                return _TENSOR
            if {*shown} == {_TENSOR} and any(map(self.drawing.moves_itself, bindings)):
                return _TENSOR
            by_name = self._conventional(name, bindings)
            is_clear = by_name is not _UNKNOWN and by_name in (shown or (by_name,))
            return by_name if is_clear else found
        return found

    def _kind_or_convention(self, binding: Binding, name: str) -> Kind:
        found = self.kind_of_binding(binding)
        if found is _UNKNOWN and binding.how is _PARAMETER:
            return self._conventional(name, [binding])
        return found

    def _accumulates(self, binding: Binding) -> bool:
        """Return whether a binding adds to the previous value of its name."""
        if binding.how is _AUGMENTED:
            return True
        value = binding.value
        return type(value) is cst.BinaryOperation and any(
            name.value == binding.name for name in self.tree.within(value, cst.Name)
        )

    def _conventional(self, name: str, bindings: Sequence[Binding]) -> Kind:
        """Return the kind by the name, unless the file shows where the value comes from."""
        found = conventional(name)
        if found is _UNKNOWN:
            return found
        for binding in bindings:
            if isinstance(binding.node, cst.Param) and binding.node.annotation is not None:
                annotated = self.annotations.kind(binding.node.annotation.annotation)
                if annotated not in (_UNKNOWN, found):
                    return _UNKNOWN
            if binding.how is How.IMPORT:
                return _UNKNOWN
            if isinstance(binding.value, (cst.Dict, cst.List, cst.Lambda, cst.SimpleString)):
                return _UNKNOWN
            if found is _MODULE and is_no_network(self.functions, self.origins, binding):
                return _UNKNOWN
            against = self._used_otherwise.get(name, ())
            if any(binding in self.scopes.reaching(each) for each in against):
                return _UNKNOWN
        return found

    @cached_property
    def _used_otherwise(self) -> dict[str, list[cst.Name]]:
        return used_otherwise(self.tree)

    @memoized(_NOTHING)
    def kind_of_binding(self, binding: Binding) -> Kind:
        """Return the kind of the value that one binding assigns."""
        node = binding.node
        if type(node) is cst.AnnAssign:
            found = self.annotations.kind(node.annotation.annotation)
            if found is not _UNKNOWN or binding.value is None:
                return found
        if type(node) is cst.Param:
            return self._kind_of_parameter(node)
        if binding.value is None:
            return _UNKNOWN
        if binding.how is _LOOP:
            return self._kind_of_loop_target(binding)
        if type(node) is cst.AugAssign:
            return combined(self._kind_before(node.target), self.kind(node.value))
        if binding.how is How.UNPACKED:
            return _SEQUENCE if binding.starred else self._element(binding.value, binding.path)
        if binding.how is How.WITH:
            return _LOADER if self.loader(binding.value) is not None else _UNKNOWN
        return self.kind(binding.value)

    def _kind_before(self, target: cst.CSTNode) -> Kind:
        """Return the kind that the target of `+=` has before the addition."""
        if not isinstance(target, cst.Name):
            return self.kind(target)
        reaching = self.scopes.reaching(target)
        started = [b for b in reaching if b.how is not _AUGMENTED]
        found = joined([self.kind_of_binding(binding) for binding in started])
        if found is _NUMBER and len(started) < len(reaching):
            grown = joined([self.kind_of_binding(b) for b in reaching], numbers_too=True)
            return grown if grown in TENSORS else found
        return found

    def _kind_of_parameter(self, parameter: cst.Param) -> Kind:
        if parameter.star in ("*", "**"):
            return _SEQUENCE if parameter.star == "*" else Kind.MAPPING
        if parameter.annotation is not None:
            found = self.annotations.kind(parameter.annotation.annotation)
            if found is _MODULE and conventional(parameter.name.value) is Kind.CRITERION:
                return Kind.CRITERION
            if found is not _UNKNOWN:
                return found
        own = self.functions.owner_of_self(parameter)
        if own is not None:
            return derived(self.functions.bases(own))
        given = [self.kind(value) for value in self.functions.given(parameter)]
        found = joined(given) if given else _UNKNOWN
        if found is not _UNKNOWN:
            return found
        function = self.tree.parent(self.tree.parent(parameter))
        if isinstance(function, cst.FunctionDef) and function.name.value == "forward":
            owner = self.scopes.scope(function).node
            first = function.params.params[1:2]
            if isinstance(owner, cst.ClassDef) and first and first[0] is parameter:
                module = derived(self.functions.bases(owner)) in (_MODULE, Kind.CRITERION)
                return _TENSOR if module else _UNKNOWN
        return Kind.DEVICE if places_a_network(self.functions, parameter) else _UNKNOWN

    def _kind_of_loop_target(self, binding: Binding) -> Kind:
        assert binding.value is not None
        source, path = self.iteration.source(binding.value, binding.path)
        if source is None:
            return _NUMBER if path == (COUNTER,) else _UNKNOWN
        if isinstance(source, (cst.List, cst.Tuple)):
            return joined([self._element(each.value, path) for each in source.elements])
        kind = self.kind(source)
        if kind in TENSORS or (kind is _LOADER and path) or are_parameters(source, path):
            return _UNKNOWN if (dotted(source), binding.name) in self._indices else _TENSOR
        if not path and self._is_batch(source) and (None, binding.name) not in self._indices:
            return _TENSOR
        if kind is _MODULE and not path:
            return _MODULE
        found = self._kind_of_member(source, (None, *path))
        if found is _UNKNOWN and kind is _SEQUENCE:
            found = self._element(source, (None, *path))
        lost = found is _UNKNOWN and path != (0,)
        return _TENSOR if lost and self.losses.in_container(source) else found

    def _kind_of_member(self, node: cst.BaseExpression, steps: Steps = ()) -> Kind:
        """Return the kind of all values that a file puts into containers at some steps."""
        origin = self.origins.of(node, steps)
        summed = [each for each in origin.members if self.losses.holds_losses(each)]
        known = origin.complete or (summed and len(summed) == len(origin.members))
        if not known or node in origin.values:
            return self._kind_of_drawn(node) if steps == (None,) else _UNKNOWN
        return joined([*map(self.kind, origin.values), *(_LOSS for _ in summed)])

    def _kind_of_drawn(self, node: cst.BaseExpression) -> Kind:
        """Return the kind of the items of a comprehension, or of a name for one."""
        reaching = self.scopes.reaching(node)
        made = [each.value for each in reaching] if reaching else [node]
        drawn = all(isinstance(each, (cst.ListComp, cst.GeneratorExp)) for each in made)
        return self._element(node, (0,)) if drawn else _UNKNOWN

    @cached_property
    def _indices(self) -> frozenset[tuple[str | None, str]]:
        """The names that are used as an index, into a path if there is one, and into any."""
        taken = ((dotted(item.value), item.slice[0].slice) for item in self.tree.all(cst.Subscript))
        found = [(of, dotted(at.value)) for of, at in taken if isinstance(at, cst.Index)]
        return frozenset((path, at) for of, at in found for path in (of or None, None))

    def _element(self, value: cst.BaseExpression, path: tuple[int | None, ...]) -> Kind:
        """Return the kind of an element of a value, of all its elements for None."""
        return self._kind_of_element((value, path)) if path else self.kind(value)

    @memoized(_NOTHING)
    def _kind_of_element(self, element: tuple[cst.BaseExpression, tuple[int | None, ...]]) -> Kind:
        value, path = element
        if isinstance(value, (cst.Tuple, cst.List)) and path:
            at = path[0]
            taken = value.elements if at is None else value.elements[at : at + 1]
            return joined([self._element(each.value, path[1:]) for each in taken])
        if isinstance(value, cst.IfExp):
            return joined([self._element(value.body, path), self._element(value.orelse, path)])
        if isinstance(value, cst.Name):
            reaching = self.scopes.reaching(value)
            held = [self.functions.held(b) for b in reaching if b.how in (_ASSIGN, How.PARAMETER)]
            if held and len(held) == len(reaching) and all(held):
                found = joined([self._element(one, path) for given in held for one in given])
                if found is not _UNKNOWN or reaching[0].parameter is None:
                    return self._kind_of_member(value, path) if found is _UNKNOWN else found
            return _TENSOR if self._is_batch(value) else _UNKNOWN
        if isinstance(value, (cst.ListComp, cst.GeneratorExp)):
            return self.kind(value.elt)
        return self._element_of_call(value, path) if isinstance(value, cst.Call) else _UNKNOWN

    def _element_of_call(self, value: cst.Call, path: tuple[int | None, ...]) -> Kind:
        if self.losses.inherited(value) is False:
            return _LOSS if path == (0,) else _UNKNOWN
        name = self.names.name(value.func)
        if self.iteration.draws(value):
            return _TENSOR if self.loader(value) is not None else _UNKNOWN
        if callees := self.functions.callees(value):
            returned = (one for each in callees for one in self.functions.returns(each))
            several = (one for one in returned if self.kind(one) not in (_LOADER, _NOTHING))
            return joined([self._element(one, path) for one in several])
        method = method_of(value)
        if method in PREPARING:
            plain = [arg.value for arg in value.args if arg.keyword is None]
            return _UNKNOWN if path[0] is None else joined([*map(self.kind, plain[path[0] :][:1])])
        sent = name in ("builtins.list", "builtins.tuple") or method in _OVER_PROCESSES
        if sent and value.args:
            return self._element(value.args[0].value, path)
        if name == "builtins.map":
            made = self.names.name(value.args[0].value) if value.args else None
            moved = len(value.args) == 2 and self._is_batch(value.args[1].value)
            return _TENSOR if moved or made == "torch.autograd.Variable" else _UNKNOWN
        if name == "torch.utils.data.random_split":
            return Kind.DATASET
        if name == "deepspeed.initialize":
            parts: dict[int | None, Kind] = {**dict(enumerate(_ENGINE))}
            return parts.get(path[0], _UNKNOWN) if len(path) == 1 else _UNKNOWN
        if self.kind(value) is _SEQUENCE and (
            (name is not None and name.startswith("torch."))
            or (isinstance(value.func, cst.Attribute) and self.kind(value.func.value) in TENSORS)
        ):
            return _TENSOR
        run = self.kind(value.func)
        if run is _MODULE or self.kind(value) in TENSORS:
            return _UNKNOWN if run is Kind.CRITERION and path != (0,) else _TENSOR
        return _UNKNOWN
