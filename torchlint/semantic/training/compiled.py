"""Compiled: what `torch.compile` gets, with which options, and which code runs inside it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.calls.applied import STEPS, applied
from torchlint.semantic.scope.scopes import How
from torchlint.semantic.syntax.methods import is_none, last_line, method_of
from torchlint.semantic.training.submodules import Submodules
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import KnownValues, ValueAnalysis
from torchlint.semantic.values.values import State, Value

_COMPILE: Final = "torch.compile"
_PARTIAL: Final = "functools.partial"
_KERAS: Final = frozenset("optimizer loss metrics loss_weights".split())
_EXCLUDED: Final = frozenset({
    "torch.compiler.disable", "torch._dynamo.disable", "torch.compiler.allow_in_graph",
    "torch._dynamo.allow_in_graph", "torch.compiler.assume_constant_result",
    "torch._dynamo.disallow_in_graph", "torch.compiler.nonstrict_trace", "torch.jit.script",
    "torch._dynamo.nonstrict_trace", "torch.library.custom_op", "torch.jit.ignore",
})  # fmt: skip
"""Decorators of functions that the compiler calls without looking inside."""
_COMPILING: Final = frozenset({
    "torch.compiler.is_compiling", "torch.compiler.is_dynamo_compiling",
    "torch._dynamo.is_compiling", "torch._utils.is_compiling",
})  # fmt: skip
_NEVER: Final = frozenset({
    "torch.jit.is_scripting", "torch.jit.is_tracing", "torch.onnx.is_in_onnx_export",
    "torch.compiler.is_exporting",
})  # fmt: skip
_RUNNING_FIRST: Final = frozenset({"torch.utils.checkpoint.checkpoint"})
"""Functions that run what they are given first."""
_HOOKING: Final = ("register_forward_hook", "register_forward_pre_hook")
_MOST: Final = 400
_WITHOUT_CUDA_GRAPHS: Final = (None, "default", "max-autotune-no-cudagraphs")
"""The modes of `torch.compile` that use no CUDA graphs."""
_CUDA_GRAPHS: Final = "triton.cudagraphs"


class Compilation(NamedTuple):
    """One place that compiles something.

    `call` has the options, None for a bare decorator. `subject` is what is compiled: an expression,
    or the decorated function. `in_place`: `net.compile()`.
    """

    node: cst.Call | cst.Decorator
    call: cst.Call | None
    subject: cst.BaseExpression | cst.FunctionDef
    in_place: bool = False


class Frame(NamedTuple):
    """A function that compiled code runs, as a method of `owner`.

    `skipped` is a caller that runs it inside a loop or a `try`: where the graph breaks in the
    frame, that caller is not compiled at all.
    """

    function: cst.FunctionDef
    owner: cst.ClassDef | None
    compilation: Compilation
    skipped: cst.FunctionDef | None


class Compiled(ValueAnalysis):
    """Follows what is compiled to the functions that run inside it."""

    def __init__(self, values: KnownValues, submodules: Submodules) -> None:
        super().__init__(values)
        self.submodules = submodules

    # -- what is compiled -------------------------------------------------------

    @cached_property
    def all(self) -> tuple[Compilation, ...]:
        """Every compilation that some run makes, in source order."""
        found = (*self._decorated(), *self._called())
        return tuple(each for each in found if not self.option(each, "disable").equals(True))

    def option(self, compilation: Compilation, name: str) -> Value:
        """Return the value of an option of a compilation."""
        call = compilation.call
        return self.values.argument(call if call is not None else _NO_CALL, name)

    @cached_property
    def replayed(self) -> tuple[Compilation, ...]:
        """The compilations that may use CUDA graphs: their next call overwrites the outputs."""
        return tuple(each for each in self.all if self._may_use_cuda_graphs(each))

    def _may_use_cuda_graphs(self, compilation: Compilation) -> bool:
        mode, options = (self.option(compilation, word) for word in ("mode", "options"))
        if mode.state is not State.ABSENT and mode.literal not in _WITHOUT_CUDA_GRAPHS:
            return True
        if options.node is None:
            return options.state is not State.ABSENT
        graphs = self.values.entry(options.node, _CUDA_GRAPHS)
        return graphs.state is not State.ABSENT and not graphs.equals(False)

    def classes(self, compilation: Compilation) -> tuple[cst.ClassDef, ...]:
        """Return the classes in view of the networks that a compilation gets."""
        subject = compilation.subject
        return () if isinstance(subject, cst.FunctionDef) else self.submodules.classes(subject)

    def compiles_nothing(self, network: cst.BaseExpression) -> bool:
        """Return whether `network.compile()` has no effect, as with torch's own layers."""
        return self.submodules.is_of_torch(network)

    def _decorated(self) -> Iterator[Compilation]:
        for mark in self.tree.all(cst.Decorator):
            function = self.tree.parent(mark)
            call = self._options(mark.decorator)
            compiles = call is not None or self.names.name(mark.decorator) == _COMPILE
            if compiles and isinstance(function, cst.FunctionDef):
                yield Compilation(mark, call, function)

    def _called(self) -> Iterator[Compilation]:
        for call in self.tree.all(cst.Call):
            func = call.func
            if type(self.tree.parent(call)) is cst.Decorator:
                continue
            if self.names.name(func) == _COMPILE:
                given = self.values.argument_node(call, "model", 0)
                if given is not None and not given.star:
                    yield Compilation(call, call, given.value)
            elif (type(func) is cst.Call or type(func) is cst.Name) and call.args:
                made = self._options(func)
                if made is not None and not call.args[0].star:
                    yield Compilation(call, made, call.args[0].value)
            elif type(func) is cst.Attribute and func.attr.value == "compile":
                if self._is_network(func.value, call):
                    yield Compilation(call, call, func.value, in_place=True)

    def _options(self, node: cst.BaseExpression) -> cst.Call | None:
        """Return the call with the options if a value compiles what it is given."""
        if isinstance(node, cst.Name):
            made = self.scopes.only(node).value
            return self._options(made) if isinstance(made, cst.Call) else None
        if not isinstance(node, cst.Call):
            return None
        plain = [arg.value for arg in node.args if arg.keyword is None]
        name = self.names.name(node.func)
        if name == _COMPILE and not plain:
            return node
        partial = name == _PARTIAL and len(plain) == 1
        return node if partial and self.names.name(plain[0]) == _COMPILE else None

    def _is_network(self, node: cst.BaseExpression, call: cst.Call) -> bool:
        keywords = {arg.keyword.value for arg in call.args if arg.keyword is not None}
        if keywords & _KERAS or self.names.name(call.func) is not None:
            return False
        if self.functions.definition(call.func) is not None:
            return False
        return self.kinds.kind(node) is Kind.MODULE or bool(self.submodules.classes(node))

    # -- what runs inside -------------------------------------------------------

    @cached_property
    def frames(self) -> tuple[Frame, ...]:
        """The functions in view that compiled code runs; one under a loop comes twice."""
        found: dict[tuple[cst.CSTNode, cst.CSTNode | None, bool], Frame] = {}
        edge = [frame for each in self.all for frame in self._roots(each)]
        while edge and len(found) < _MOST:
            frame = edge.pop(0)
            key = (frame.function, frame.owner, frame.skipped is not None)
            if key not in found and not self._is_excluded(frame.function):
                found[key] = frame
                edge += self._callees(frame)
        return tuple(found.values())

    def frames_of(self, node: cst.CSTNode) -> list[Frame]:
        """Return the frames that run a node, those that a broken graph costs most first."""
        function = self.scopes.function(node)
        found = self._by_function.get(function, []) if function is not None else []
        return [] if found and self.is_left_out(node) else found

    @cached_property
    def _by_function(self) -> dict[cst.CSTNode, list[Frame]]:
        found: dict[cst.CSTNode, list[Frame]] = {}
        for frame in sorted(self.frames, key=lambda each: each.skipped is None):
            found.setdefault(frame.function, []).append(frame)
        return found

    def is_left_out(self, node: cst.CSTNode) -> bool:
        """Return whether the code keeps a node out of what is compiled, with `is_compiling()`."""
        for child, outer in self.tree.outward(node):
            if isinstance(outer, cst.If) and child is not outer.test:
                compiling = self._asks(outer.test)
                if compiling is not None and compiling is not (child is outer.body):
                    return True
            if isinstance(outer, cst.FunctionDef):
                return self._has_returned(node, outer)
        return False

    def _has_returned(self, node: cst.CSTNode, function: cst.FunctionDef) -> bool:
        """Return whether `if is_compiling(): return …` stands above a node."""
        for line in function.body.body:
            if self.tree.order(line) >= self.tree.order(node) or self.tree.inside(node, line):
                return False
            if isinstance(line, cst.If) and self._asks(line.test) is True:
                if isinstance(last_line(line.body), (cst.Return, cst.Raise)):
                    return True
        return False

    def _asks(self, test: cst.BaseExpression) -> bool | None:
        """Return what a test is under compilation if it asks for it, None for other tests."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            inner = self._asks(test.expression)
            return None if inner is None else not inner
        if isinstance(test, cst.BooleanOperation):
            sides = (self._asks(test.left), self._asks(test.right))
            if isinstance(test.operator, cst.And):
                return False if False in sides else None
            return True if True in sides else None
        if isinstance(test, cst.Call):
            name = self.names.name(test.func)
            return True if name in _COMPILING else False if name in _NEVER else None
        return None

    def is_taken(self, node: cst.CSTNode) -> bool:
        """Return whether every training pass through a function reaches a node, or every few.

        What stands under a flag that this file does not show, or under an error, does not count.
        """
        for child, outer in self.tree.outward(node):
            if isinstance(outer, (cst.ExceptHandler, cst.Raise, cst.Assert, cst.Match, cst.Lambda)):
                return False
            if isinstance(outer, (cst.If, cst.IfExp)) and child is not outer.test:
                if self._outcome(outer.test) is not (child is outer.body):
                    return False
            if isinstance(outer, cst.BooleanOperation) and child is outer.right:
                if self._outcome(outer.left) is not isinstance(outer.operator, cst.And):
                    return False
            if isinstance(outer, cst.FunctionDef):
                return True
        return True

    def _outcome(self, test: cst.BaseExpression) -> bool | None:
        """Return what a test is in training, sometimes at least; None if it is unknown."""
        asked = self._asks(test)
        if asked is not None:
            return asked
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            inner = self._outcome(test.expression)
            return None if inner is None else not inner
        if isinstance(test, cst.Attribute):
            return True if test.attr.value == "training" else None
        if isinstance(test, cst.Name) and test.value in ("True", "False"):
            return test.value == "True"
        if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
            both = self._outcome(test.left) is True and self._outcome(test.right) is True
            return True if both else None
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            return self._compared(test)
        return None

    def _compared(self, test: cst.Comparison) -> bool | None:
        right = test.comparisons[0]
        if is_none(right.comparator):
            return {cst.IsNot: True, cst.Is: False}.get(type(right.operator))
        counts = any(
            binding.how is How.LOOP
            for name in self.tree.within(test, cst.Name)
            for binding in self.scopes.reaching(name)
        )
        modulo = any(
            isinstance(each.operator, cst.Modulo)
            for each in self.tree.within(test, cst.BinaryOperation)
        )
        return True if counts and modulo else None

    def _is_excluded(self, function: cst.FunctionDef) -> bool:
        if function in self._handed_out:
            return True
        return not _EXCLUDED.isdisjoint(self.names.marks(function))

    @cached_property
    def _handed_out(self) -> frozenset[cst.CSTNode]:
        """The functions that calls exclude (`torch.compiler.disable(helper)`)."""
        found: set[cst.CSTNode] = set()
        for call in self.tree.all(cst.Call):
            if self.names.name(call.func) not in _EXCLUDED or not call.args:
                continue
            given = call.args[0].value
            definition = self.functions.definition(given)
            classes = () if definition is not None else self.submodules.classes(given)
            found |= {definition} if definition is not None else set()
            found |= {each for owner in classes if (each := self._forward(owner)) is not None}
        return frozenset(found)

    def _roots(self, compilation: Compilation) -> Iterator[Frame]:
        subject = compilation.subject
        if isinstance(subject, cst.FunctionDef):
            yield Frame(subject, self.scopes.class_of(subject), compilation, None)
            return
        definition = self.functions.definition(subject)
        if isinstance(definition, cst.FunctionDef):
            if self._is_replaced(compilation.node, definition):
                return
            owner = None
            if isinstance(subject, cst.Attribute):
                owner = self.functions.instance_of(subject.value)
            yield Frame(definition, owner, compilation, None)
            return
        for owner in self.submodules.classes(subject):
            forward = self._forward(owner)
            if forward is not None:
                yield Frame(forward, owner, compilation, None)

    def _is_replaced(self, node: cst.CSTNode, definition: cst.FunctionDef) -> bool:
        """Return whether the class of a method overrides the method that would compile it."""
        compiling, owner = self.scopes.function(node), self.scopes.class_of(definition)
        if compiling is None or owner is None or self.scopes.class_of(compiling) in (None, owner):
            return False
        return self.functions.method(owner, compiling.name.value) not in (None, compiling)

    def _forward(self, owner: cst.ClassDef) -> cst.FunctionDef | None:
        return self.functions.method(owner, "forward") or self.functions.method(owner, "__call__")

    def _callees(self, frame: Frame) -> Iterator[Frame]:
        for call in self.functions.own(frame.function, cst.Call):
            if self.is_left_out(call):
                continue
            skipped = self.unbroken(call)
            for function, owner in self._run_by(call, frame.owner):
                if function.name.value != "__init__":
                    yield Frame(function, owner, frame.compilation, skipped or frame.skipped)
        if frame.owner is not None and frame.function is self._forward(frame.owner):
            for owner in self.functions.lineage(frame.owner):
                for hook in self._hooks.get(owner, ()):
                    yield Frame(hook, self.scopes.class_of(hook), frame.compilation, frame.skipped)

    @cached_property
    def _hooks(self) -> dict[cst.CSTNode, list[cst.FunctionDef]]:
        """The functions that run with the forward of a class, or of one of its parts."""
        found: dict[cst.CSTNode, list[cst.FunctionDef]] = {}
        for call in self.tree.all(cst.Call):
            if method_of(call) not in _HOOKING or not call.args or not self._keeps_hook(call):
                continue
            hook = self.functions.run_by(call.args[0].value)
            if hook is not None and isinstance(call.func, cst.Attribute):
                for owner in self._hooked(call.func.value):
                    found.setdefault(owner, []).append(hook)
        return found

    def _keeps_hook(self, call: cst.Call) -> bool:
        """Return whether a hook certainly stays: none that a test or a later line takes away."""
        is_dropped = isinstance(self.tree.parent(call), cst.Expr)
        return self.is_taken(call) and (is_dropped or not self.functions.attributes("remove"))

    def _hooked(self, network: cst.BaseExpression) -> Iterator[cst.ClassDef]:
        """Yield the classes in view of a network that gets a hook, or of the whole it is part of.

        The hooks of what `torch.compile` returns run outside of the graph.
        """
        made = self.values.value_of(network).node
        if isinstance(made, cst.Call) and self.names.name(made.func) == _COMPILE:
            return
        owner = self.functions.instance_of(network)
        classes = (owner,) if owner is not None else self.submodules.classes(network)
        if classes or not isinstance(network, cst.Attribute):
            yield from classes
        else:
            yield from self._hooked(network.value)

    def unbroken(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """Return the function that is not compiled at all if the graph breaks at a node.

        Torch goes on after a break, but not inside a loop or a `try` of the same function.
        """
        for child, outer in self.tree.outward(node):
            if isinstance(outer, cst.FunctionDef):
                return None
            if isinstance(outer, (cst.For, cst.While, cst.Try)) and child is outer.body:
                return self.scopes.function(outer)
        return None

    def _run_by(
        self, call: cst.Call, owner: cst.ClassDef | None
    ) -> Iterator[tuple[cst.FunctionDef, cst.ClassDef | None]]:
        """Yield the functions that a call runs in a method of a class, with their classes."""
        func = call.func
        if self.names.name(func) in _RUNNING_FIRST and call.args:
            func = call.args[0].value
        if (
            isinstance(func, cst.Attribute)
            and owner is not None
            and self.functions.is_self(func.value)
        ):
            method = self.functions.method(owner, func.attr.value)
            if method is not None:
                yield method, owner
                return
        function = applied(self.functions, func)
        if function is not None:
            for name in STEPS:
                step = self.functions.method(function, name)
                if step is not None:
                    yield step, function
            return
        definition = self.functions.definition(func)
        if isinstance(definition, cst.FunctionDef):
            inherits = isinstance(func, cst.Attribute) and isinstance(func.value, cst.Call)
            made = (
                self.functions.instance_of(func.value) if isinstance(func, cst.Attribute) else None
            )
            yield definition, owner if inherits else made
            return
        for each in self.submodules.classes(func) if definition is None else ():
            forward = self._forward(each)
            if forward is not None:
                yield forward, each


_NO_CALL: Final = cst.Call(cst.Name("compile"))
