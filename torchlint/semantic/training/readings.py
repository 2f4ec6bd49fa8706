"""Readings: expressions where the host reads a tensor, which is a host sync."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.loops.frequency import Frequencies, Frequency
from torchlint.semantic.loops.loops import LoopNode
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.syntax.methods import receiver_of, root_of, word_of
from torchlint.semantic.values.facts import ValueFacts
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import ValueAnalysis

Region = LoopNode | cst.FunctionDef


class Form(Enum):
    """The form in which the host gets the value."""

    NUMBER = auto()
    ARRAY = auto()
    LIST = auto()
    TENSOR = auto()


_ASKING: Final = frozenset(
    {
        *(f"builtins.{each}" for each in "isinstance hasattr type id len callable dir".split()),
        "torch.is_tensor",
        "torch.is_floating_point",
    }
)
_ABOUT: Final = frozenset("shape dtype device ndim requires_grad size dim numel".split())
"""Functions and attributes that tell what a tensor is, for which nothing waits."""


class Reading(NamedTuple):
    """An expression that copies `tensor` to the host, looking through `detach()` and `data`."""

    node: cst.Call
    tensor: cst.BaseExpression
    form: Form
    cast: str
    """The builtin, or the lambda, that does it (`float(loss)`), empty for methods."""


_FORMS: Final = {
    "item": Form.NUMBER,
    "tolist": Form.LIST,
    "numpy": Form.ARRAY,
    "cpu": Form.TENSOR,
    "to": Form.TENSOR,
}
_CASTS: Final = ("builtins.float", "builtins.int")
_NUMPY: Final = frozenset(
    "argmax argmin mean sum sqrt abs exp log log2 log10 round squeeze array asarray".split()
)
_DENSE: Final = (Kind.TENSOR, Kind.LOSS, Kind.NDARRAY)
_REDUCTIONS: Final = frozenset(
    "sum mean item tolist size float int long double argmax squeeze flatten reshape view".split()
)
_ELSEWHERE: Final = re.compile(r"(?:builtins|math|numpy|scipy|sklearn|random|time|collections)\.")
_LEAVES: Final = re.compile(r"numpy|\bnp\.|item\(|float\(|int\(|cpu\(|tolist\(")
_SINKS: Final = frozenset(
    "print log log_dict log_metric log_metrics log_scalar info debug warning error critical "
    "write add_scalar add_scalars add_histogram set_postfix set_postfix_str set_description "
    "set_description_str progress_bar format report scalar_summary".split()
)
_USES: Final = _SINKS | {"isnan", "isinf", "isfinite"}


class Readings(ValueAnalysis):
    """Finds the host syncs, and whether the same pass needs their value."""

    values: ValueFacts

    def __init__(self, values: ValueFacts, frequencies: Frequencies) -> None:
        super().__init__(values)
        self.frequencies = frequencies
        self._seen: dict[tuple[int, frozenset[int] | str], tuple[cst.BaseExpression, ...]] = {}

    @cached_property
    def are_in_file(self) -> bool:
        """Whether the file itself, not only what is linked to it, reads a tensor."""
        return any(True for _ in self._among(self.tree.own(cst.Call)))

    def within(self, region: cst.CSTNode) -> Iterator[Reading]:
        """Yield the readings inside a node, of nested ones only the outermost."""
        return self._among(self.tree.within(region, cst.Call))

    def _among(self, calls: Iterable[cst.Call]) -> Iterator[Reading]:
        last = -1
        for call in calls:
            if self.tree.order(call) < last:
                continue
            reading = self.reading(call)
            if reading is not None:
                last = self.tree.end(call)
                yield reading

    @cached_method
    def reading(self, call: cst.Call) -> Reading | None:
        """Return the reading that a call is, None if it reads nothing that may be on a device."""
        form, cast, inner = self._outermost(call)
        if form is None:
            return None
        copied = form is not Form.ARRAY or bool(call.args)
        shown = False
        while True:
            if isinstance(inner, cst.Attribute) and inner.attr.value == "data":
                inner = inner.value
                continue
            found, _, below = self._outermost(inner, casts=False)
            detached = receiver_of(inner, "detach") is not None
            if found is None and not detached:
                break
            if found in (Form.TENSOR, Form.NUMBER):
                copied = True
            shown = shown or detached or receiver_of(inner, "cpu") is not None
            assert isinstance(inner, cst.Call)
            inner = inner.func.value if isinstance(inner.func, cst.Attribute) else below
        unknown = shown and self.kinds.kind(inner) is Kind.UNKNOWN
        if not copied or not (unknown or self._is_tensor(inner)):
            if cast or not copied or not self._comes_of_tensors(inner):
                return None
        if self.values.placement.on_host(inner):
            return None
        return Reading(call, inner, form, cast)

    def numbered(self, node: cst.CSTNode) -> cst.BaseExpression | None:
        """Return `x` of `x.item()`, `float(x)` and `int(x)`, whatever it is."""
        if not isinstance(node, cst.Call):
            return None
        if len(node.args) == 1 and self.names.name(node.func) in _CASTS:
            return node.args[0].value
        return receiver_of(node, "item") if not node.args else None

    def held_by(self, node: cst.BaseExpression) -> Reading | None:
        """Return the reading that is all that a name holds."""
        held = self.kinds.origins.of(node)
        values = held.values if held.complete and len(held.values) == 1 else ()
        return next((self.reading(each) for each in values if isinstance(each, cst.Call)), None)

    def _is_tensor(self, node: cst.BaseExpression) -> bool:
        return self.kinds.kind(node) in (Kind.TENSOR, Kind.LOSS)

    @memoized(False)
    def _comes_of_tensors(self, node: cst.BaseExpression) -> bool:
        """Return whether unseen functions computed a value from tensors that may be on a device."""
        if self.kinds.kind(node) is not Kind.UNKNOWN:
            return False
        if isinstance(node, (cst.Name, cst.Subscript, cst.Attribute)):
            root = root_of(node, items=True)
            if isinstance(root, cst.Call):
                return self._is_tensor(root) or self._comes_of_tensors(root)
            sources = [self._source(binding) for binding in self.scopes.reaching(root)]
            return bool(sources) and all(
                source is not None and (self._is_tensor(source) or self._comes_of_tensors(source))
                for source in sources
            )
        if isinstance(node, cst.BinaryOperation):
            return any(
                self._is_tensor(each) or self._comes_of_tensors(each)
                for each in (node.left, node.right)
            )
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            return self._is_tensor(node.expression) or self._comes_of_tensors(node.expression)
        return isinstance(node, cst.Call) and self._is_made_of_tensors(node)

    def _source(self, binding: Binding) -> cst.BaseExpression | None:
        """Return what a name is assigned, or the dictionary of which it is drawn as a value."""
        if binding.how is not How.LOOP or binding.value is None:
            return binding.value if binding.how in (How.ASSIGN, How.UNPACKED) else None
        drawn, path = self.kinds.iteration.source(binding.value, binding.path)
        if drawn is None:
            return None
        return receiver_of(drawn, "items" if path == (1,) else "values")

    def _is_made_of_tensors(self, call: cst.Call) -> bool:
        """Return whether an unseen function is called with tensors, and no array."""
        func = call.func
        if self.names.name(func) == "builtins.sum":
            return self._sums_members(call)
        if isinstance(func, cst.Attribute):
            if func.attr.value in _NUMPY and self._comes_of_tensors(func.value):
                return True
            if func.attr.value == "step":
                return False
            if self.frequencies.loops.module_call(call) is not None:
                return True
        if _ELSEWHERE.match(self.names.name(func) or ""):
            return False
        given = [(arg.value, self.kinds.kind(arg.value)) for arg in call.args if not arg.star]
        callee = self.kinds.functions.callee(call)
        if callee is not None and _LEAVES.search(self.tree.code(callee)):
            return False
        if any(kind is Kind.NDARRAY for _, kind in given):
            return False
        return any(
            not self.values.placement.on_host(each)
            if kind in (Kind.TENSOR, Kind.LOSS)
            else self._comes_of_tensors(each) or self.kinds.losses.in_container(each)
            for each, kind in given
        )

    def _sums_members(self, call: cst.Call) -> bool:
        """Return whether a call adds up the values of a dictionary that holds tensors."""
        added = call.args[0].value if call.args else None
        if not isinstance(added, (cst.GeneratorExp, cst.ListComp)) or added.for_in.ifs:
            return False
        held = receiver_of(added.for_in.iter, "values")
        if held is None or self.tree.code(added.elt) != self.tree.code(added.for_in.target):
            return False
        return self._comes_of_tensors(held) or self.kinds.losses.in_container(held)

    def _outermost(
        self, node: cst.BaseExpression, casts: bool = True
    ) -> tuple[Form | None, str, cst.BaseExpression]:
        nothing = None, "", node
        if not isinstance(node, cst.Call):
            return nothing
        name = self.names.name(node.func)
        if casts and name in _CASTS and len(node.args) == 1 and node.args[0].keyword is None:
            return Form.NUMBER, str(name).rpartition(".")[2], node.args[0].value
        if casts and isinstance(node.func, cst.Name):
            copying = self._copying_lambda(node)
            return (copying, node.func.value, node.args[0].value) if copying else nothing
        if not isinstance(node.func, cst.Attribute) or name is not None:
            return nothing
        form = _FORMS.get(node.func.attr.value)
        if form is None:
            return nothing
        if node.func.attr.value == "to":
            if len(node.args) != 1 or not self.values.placement.on_host(node):
                return nothing
        elif node.args and not (
            form is Form.ARRAY and self.values.argument(node, "force", 0).equals(True)
        ):
            return nothing
        return form, "", node.func.value

    def _copying_lambda(self, call: cst.Call) -> Form | None:
        """Return the form of what a call of `lambda x: x.detach().cpu().numpy()` copies."""
        made = self.scopes.only(call.func).value
        if not isinstance(made, cst.Lambda) or len(made.params.params) != 1 or len(call.args) != 1:
            return None
        methods: list[str] = []
        inner = made.body
        while isinstance(inner, cst.Call) and isinstance(inner.func, cst.Attribute):
            methods.append(inner.func.attr.value)
            inner = inner.func.value
        taken = isinstance(inner, cst.Name) and inner.value == made.params.params[0].name.value
        copies = taken and "cpu" in methods and {"detach", *_FORMS}.issuperset(methods)
        return next((_FORMS[each] for each in methods if each in _FORMS), None) if copies else None

    def named(
        self, region: cst.CSTNode, loop: LoopNode, besides: list[cst.CSTNode]
    ) -> Iterator[Reading]:
        """Yield the readings behind names in a node that no other code uses in each pass.

        `besides` are statements whose uses of such names do not count.
        """
        for name in self.tree.within(region, cst.Name):
            assign, value = self.scopes.only(name).node, self.scopes.only(name).value
            if not isinstance(assign, cst.Assign) or self._is_key(name, region):
                continue
            target = assign.targets[0].target
            if value is None or not isinstance(target, cst.Name) or len(assign.targets) != 1:
                continue
            if not self.tree.inside(assign, loop.body) or not self.is_arithmetic(value):
                continue
            if assign in besides or self.hot_uses(target, loop, besides):
                continue
            found = list(self.within(value))
            yield from found or self.named(value, loop, [*besides, assign])

    def _is_key(self, name: cst.Name, region: cst.CSTNode) -> bool:
        """Return whether a name is a key or index into something other than a tensor."""
        for child, outer in self.tree.outward(name):
            if child is region:
                return False
            if isinstance(outer, cst.Subscript) and child is not outer.value:
                if self.kinds.kind(outer.value) not in _DENSE:
                    return True
        return False

    # -- other uses of the value ---------------------------------------

    def needed_in(self, loop: Region, reading: Reading, besides: list[cst.CSTNode]) -> bool:
        """Return whether each pass of a loop, or run of a function, needs the value anyway.

        `besides` are statements whose uses do not count.
        """
        places = self._looked_at(reading.tensor, loop)
        apart = set(besides)
        return any(
            self._on_host_at(place, loop, besides)
            and not self.works_between(place, reading.node, loop)
            for place in places
            if place not in apart and apart.isdisjoint(self.tree.ancestors(place))
        )

    @memoized(False)
    def is_logged(self, node: cst.CSTNode) -> bool:
        """Return whether a value is only shown or recorded, at once or under a name."""
        line = self._line_unless_logged(node)
        if not isinstance(line, cst.Assign) or len(line.targets) != 1:
            return line is None
        held = line.targets[0].target
        bound = self.scopes.stored(held)
        if isinstance(held, cst.Subscript) and isinstance(held.value, cst.Name):
            held = held.value
            made = self.scopes.only(held)
            bound = (
                made
                if isinstance(made.value, cst.Dict) or self.names.is_empty(made.value)
                else None
            )
        if bound is None or not isinstance(held, cst.Name):
            return False
        uses = [one for one in self.scopes.uses(bound, self.scopes.home(line)) if one is not held]
        shown = [one for one in uses if self.is_logged(one)]
        return bool(shown) and all(one in shown or self._is_filled(one) for one in uses)

    def _line_unless_logged(self, node: cst.CSTNode) -> cst.BaseSmallStatement | None:
        """Return the statement around a value, None where a call there shows or records it."""
        for outer in self.tree.ancestors(node):
            if isinstance(outer, cst.Call) and word_of(outer) in _SINKS:
                return None
            if isinstance(outer, cst.BaseSmallStatement):
                return outer
        return cst.Pass()

    def _is_filled(self, name: cst.Name) -> bool:
        """Return whether a dictionary only gets one more entry."""
        entry = self.tree.parent(name)
        target = self.tree.parent(entry) if isinstance(entry, cst.Subscript) else None
        return isinstance(target, cst.AssignTarget)

    def works_between(self, one: cst.CSTNode, other: cst.CSTNode, loop: Region) -> bool:
        """Return whether the device gets work between two places, so that a read at each waits."""
        first, last = sorted((self.tree.order(one), self.tree.order(other)))
        return any(first < self.tree.order(call) < last for call in self._work(loop))

    @cached_method
    def _work(self, region: Region) -> tuple[cst.Call, ...]:
        """Return the calls of a region that run a network, go backward or step."""
        loops = self.frequencies.loops
        return tuple(
            call
            for call in self.tree.within(region.body, cst.Call)
            if loops.is_step(call) or loops.module_call(call) is not None
        )

    def follows_update(self, node: cst.CSTNode) -> bool:
        """Return whether code before a node, in its function or its loop, steps an optimizer."""
        for child, outer in self.tree.outward(node):
            if isinstance(outer, cst.IndentedBlock):
                for line in outer.body:
                    if line is child:
                        break
                    if self._steps(line):
                        return True
            if isinstance(outer, (cst.FunctionDef, cst.For, cst.While)):
                return False
        return False

    def _steps(self, line: cst.CSTNode) -> bool:
        """Return whether a statement, or what it calls, steps an optimizer or goes backward."""
        functions = self.kinds.functions
        return any(self.frequencies.loops.is_step(call) for call in functions.run_in(line))

    def _looked_at(
        self, tensor: cst.BaseExpression, loop: Region
    ) -> tuple[cst.BaseExpression, ...]:
        """Return the places in a loop where the host uses a tensor in every pass."""
        key = id(loop), self._meant(tensor)
        if key not in self._seen:
            self._seen[key] = tuple(
                place
                for place in (*self._same(tensor, loop), *self._computed_from(tensor, loop))
                if self._is_hot(place, loop) and self._on_host_at(place, loop, [])
            )
        return self._seen[key]

    def _meant(self, tensor: cst.BaseExpression) -> frozenset[int] | str:
        """Return a key that is equal for expressions that refer to the same tensor."""
        if isinstance(tensor, cst.Name):
            return frozenset(map(id, self.scopes.reaching(tensor)))
        return self.tree.code(tensor) if isinstance(tensor, (cst.Attribute, cst.Subscript)) else ""

    def _is_hot(self, place: cst.CSTNode, region: Region) -> bool:
        if isinstance(region, cst.FunctionDef):
            return self.frequencies.below(place, region) is Frequency.EVERY_PASS
        return self.frequencies.frequency(place) is Frequency.EVERY_PASS

    def _same(self, tensor: cst.BaseExpression, loop: Region) -> Iterator[cst.BaseExpression]:
        """Yield the places in a loop that refer to the same tensor."""
        if isinstance(tensor, cst.Name):
            bindings = set(map(id, self.scopes.reaching(tensor)))
            for name in self.tree.among(self.tree.spelled(tensor.value), loop.body):
                if self.scopes.reads(name):
                    if bindings & set(map(id, self.scopes.reaching(name))):
                        yield name
        elif isinstance(tensor, (cst.Attribute, cst.Subscript)):
            text = self.tree.code(tensor)
            for each in self.tree.within(loop.body, type(tensor)):
                is_set = isinstance(self.tree.parent(each), cst.AssignTarget)
                if not is_set and self.tree.code(each) == text:
                    yield each

    def _computed_from(
        self, tensor: cst.BaseExpression, loop: Region
    ) -> Iterator[cst.BaseExpression]:
        """Yield the places that read what a loop computes from a tensor by arithmetic."""
        for place in self._same(tensor, loop):
            outer = self.tree.parent(place)
            while isinstance(outer, cst.BinaryOperation):
                outer = self.tree.parent(outer)
            if isinstance(outer, cst.Assign) and len(outer.targets) == 1:
                if isinstance(outer.value, cst.BinaryOperation):
                    yield from self._same_as_target(outer.targets[0].target, loop)

    def _same_as_target(
        self, target: cst.BaseExpression, loop: Region
    ) -> Iterator[cst.BaseExpression]:
        """Yield the places in a loop that read an assigned name."""
        binding = self.scopes.stored(target) if isinstance(target, cst.Name) else None
        if binding is not None:
            yield from self.scopes.uses(binding, loop.body)

    def _on_host_at(self, place: cst.CSTNode, loop: Region, besides: list[cst.CSTNode]) -> bool:
        """Return whether the value is used on the host at a place."""
        for child, outer in self.tree.outward(place):
            if self._asks_no_value(outer):
                return False
            if isinstance(outer, (cst.If, cst.While, cst.IfExp, cst.Assert)):
                return child is outer.test
            if self.is_text(outer):
                return not self._set_aside(place, loop, besides)
            if isinstance(outer, cst.Call):
                if word_of(outer) in _USES and child is not outer.func:
                    return True
                if self.reading(outer) is not None and not self._set_aside(outer, loop, besides):
                    return True
            if isinstance(outer, cst.BaseSmallStatement):
                return False
        return False

    def asks_form(self, use: cst.BaseExpression) -> bool:
        """Return whether a use of a value asks what it is, which no number decides."""
        return any(map(self._asks_no_value, (self.tree.parent(use), self.tree.taker(use))))

    def _asks_no_value(self, node: cst.CSTNode | None) -> bool:
        """Return whether an expression asks what a tensor is, not which numbers it holds."""
        if isinstance(node, cst.Comparison):
            return isinstance(node.comparisons[0].operator, (cst.Is, cst.IsNot))
        if isinstance(node, cst.Attribute):
            return node.attr.value in _ABOUT
        return isinstance(node, cst.Call) and self.names.name(node.func) in _ASKING

    def is_text(self, node: cst.CSTNode) -> bool:
        """Return whether an expression formats values (`f"{loss}"`, `"%f" % loss`)."""
        if isinstance(node, cst.FormattedString):
            return True
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo):
            return self.kinds.kind(node.left) is Kind.STRING
        return (
            isinstance(node, cst.Call)
            and isinstance(node.func, cst.Attribute)
            and node.func.attr.value == "format"
            and isinstance(node.func.value, (cst.SimpleString, cst.ConcatenatedString))
        )

    def _set_aside(self, node: cst.CSTNode, loop: Region, besides: list[cst.CSTNode]) -> bool:
        """Return whether a value is only assigned to names that no pass uses further."""
        assign = self.tree.smallest_statement(node)
        if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
            return False
        target = assign.targets[0].target
        if not isinstance(target, cst.Name) or not self.packs(assign.value):
            return False
        besides = [*besides, assign]
        return all(
            self._set_aside(use, loop, besides) for use in self.hot_uses(target, loop, besides)
        )

    def packs(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression only computes, or collects computed values."""
        if isinstance(node, cst.Dict):
            return all(
                isinstance(each, cst.DictElement) and self.packs(each.value)
                for each in node.elements
            )
        if isinstance(node, (cst.Tuple, cst.List)):
            return all(self.packs(each.value) for each in node.elements)
        if isinstance(node, cst.FormattedString):
            return all(
                self.packs(part.expression)
                for part in node.parts
                if isinstance(part, cst.FormattedStringExpression)
            )
        if self.is_text(node):
            given = node.args if isinstance(node, cst.Call) else ()
            right = [node.right] if isinstance(node, cst.BinaryOperation) else []
            return all(map(self.packs, [*(arg.value for arg in given), *right]))
        return isinstance(node, cst.SimpleString) or self.is_arithmetic(node)

    def is_arithmetic(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression only computes."""
        if isinstance(node, cst.BinaryOperation):
            return self.is_arithmetic(node.left) and self.is_arithmetic(node.right)
        if isinstance(node, cst.Subscript):
            return self.is_arithmetic(node.value)
        if isinstance(node, cst.Call):
            name = self.names.name(node.func) or ""
            if name in (*_CASTS, "builtins.len", "builtins.max", "builtins.round"):
                return True
            return self.reading(node) is not None or self._only_computes(node, name)
        return isinstance(node, (cst.Name, cst.Attribute, cst.Integer, cst.Float))

    def _only_computes(self, call: cst.Call, name: str) -> bool:
        """Return whether a call is a mathematical function of arithmetic arguments."""
        module, _, last = name.rpartition(".")
        if module == "math" or (module == "numpy" and last in _NUMPY):
            return all(self.is_arithmetic(arg.value) for arg in call.args)
        if name or not isinstance(call.func, cst.Attribute):
            return False
        owner, method = call.func.value, call.func.attr.value
        is_read = self.is_arithmetic(owner) and any(True for _ in self.within(owner))
        return method in _REDUCTIONS and (method == "size" or is_read)

    def hot_uses(
        self, target: cst.Name, loop: Region, besides: list[cst.CSTNode]
    ) -> list[cst.Name]:
        """Return the places of a loop that read an assigned `target` in every pass."""
        binding = self.scopes.stored(target)
        if binding is None or binding.how is not How.ASSIGN:
            return []
        return [
            name
            for name in self.scopes.uses(binding, loop.body)
            if not any(self.tree.inside(name, each) for each in besides)
            and self._is_hot(name, loop)
            and not self._is_filled(name)
        ]
