"""Unseen: the search through everything a value is made of for parts not visible here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import libcst as cst

from torchlint.semantic.data.itemwork import ItemWork
from torchlint.semantic.scope.libraries import (
    COLLATORS,
    DATA_PACKAGES,
    FACTORIES,
    HOST_CONSTRUCTORS,
    OBJECTS,
    OPAQUE,
    PLAIN_RESULTS,
    TENSOR_METHODS,
    TO_HOST,
    TRANSFORM_ARGUMENTS,
    is_data_library,
    takes_transform,
)
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.syntax.methods import is_none, method_of, named_arguments
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import ValueAnalysis

_Search = Callable[[cst.BaseExpression], cst.CSTNode | None]

_ITEM_METHODS: Final = ("__getitem__", "__getitems__", "__iter__")
_CALLED: Final = ("__call__", "forward")
_KNOWN: Final = ("torch.nn.", *OBJECTS)
_INHERITED: Final = ("torchvision.datasets.", "torch.nn.")
_KNOWN_BASES: Final = ("torch.utils.data.", *DATA_PACKAGES)


class UnseenSearch(ValueAnalysis):
    """One search; nodes that it has visited are not searched again."""

    def __init__(self, work: ItemWork, *, handles: bool) -> None:
        super().__init__(work.values)
        self.work = work
        self.handles = handles
        """Whether to search for open files, which NumPy reads too, instead of device tensors."""
        self._seen: set[int] = set()
        self._datasets: set[int] = set()
        self._ambient: set[int] = set()
        self._called: set[int] = set()

    # -- datasets and functions -----------------------------------------------

    def items(self, node: cst.BaseExpression) -> cst.CSTNode | None:
        """Return the first unseen part of a dataset's items."""
        return self._among(node, self._datasets, self._items)

    def _among(
        self, node: cst.BaseExpression, searched: set[int], search: _Search
    ) -> cst.CSTNode | None:
        """Return the first unseen part that a search finds in what a value can be."""
        if id(node) in searched:
            return None
        searched.add(id(node))
        origin = self.origins.of(node)
        if origin.given is not None:
            return origin.given
        if not origin.complete or not origin.values:
            return self._value(node) or node
        return _first(map(search, origin.values))

    def _items(self, value: cst.BaseExpression) -> cst.CSTNode | None:
        if not isinstance(value, cst.Call):
            if isinstance(value, cst.BinaryOperation):
                return self.items(value.left) or self.items(value.right)
            return self._value(value)
        owner = self.functions.definition(value.func)
        if isinstance(owner, cst.ClassDef):
            return self._class_items(owner) or self._inherited_items(owner, value)
        name = self.names.name(value.func) or ""
        if name.startswith("torch.utils.data."):
            return _first(map(self._part, value.args))
        if name.startswith(DATA_PACKAGES):
            return self._transforms(value, name) or self._assigned_transform(None)
        return self._value(value)

    def _inherited_items(self, owner: cst.ClassDef, made: cst.Call) -> cst.CSTNode | None:
        """Return the first unseen transform of a class of this file on a library dataset."""
        bases = [name for name in self.functions.bases(owner) if name.startswith(DATA_PACKAGES)]
        if not bases:
            return None
        start = self.functions.method(owner, "__init__")
        ran = self.functions.own(start.body, cst.Call) if start is not None else ()
        calls = [made] if start is None else [c for c in ran if method_of(c) == "__init__"]
        return (
            _first(self._transforms(call, bases[0]) for call in calls)
            or self._assigned_transform(owner)
            or self._assigned_transform(None)
        )

    def _assigned_transform(self, owner: cst.ClassDef | None) -> cst.CSTNode | None:
        """Return an unseen transform that a class sets on itself, or code on any other object."""
        region = owner or self.tree.module
        return _first(
            self.made(line.value)
            for line in self.tree.within(region, cst.Assign)
            for each in line.targets
            if isinstance(each.target, cst.Attribute)
            and each.target.attr.value in TRANSFORM_ARGUMENTS
            and (dotted(each.target.value) == "self") is (owner is not None)
        )

    def _part(self, arg: cst.Arg) -> cst.CSTNode | None:
        """Return the first unseen part of a dataset, or tensors, that another dataset wraps."""
        if self.kinds.kind(arg.value) is Kind.NUMBER:
            return None
        return self._each(arg.value) if arg.keyword is None else None

    def _each(self, node: cst.BaseExpression) -> cst.CSTNode | None:
        if id(node) in self._datasets:
            return None
        self._datasets.add(id(node))
        origin = self.origins.of(node)
        if origin.given is not None:
            return origin.given
        plain = origin.complete and bool(origin.values)
        if plain and all(isinstance(value, cst.Call) for value in origin.values):
            return _first(map(self._items, origin.values))
        if plain and all(isinstance(value, (cst.List, cst.Tuple)) for value in origin.values):
            return _first(
                self._each(element.value)
                for value in origin.values
                if isinstance(value, (cst.List, cst.Tuple))
                for element in value.elements
            )
        return self._value(node)

    def _transforms(self, made: cst.Call, name: str) -> cst.CSTNode | None:
        """Return the first unseen part of the transforms passed to a library dataset."""
        return _first(
            self._transform(
                arg, takes_transform(name, arg.keyword.value if arg.keyword else None, at)
            )
            for at, arg in enumerate(made.args)
        )

    def _transform(self, arg: cst.Arg, is_transform: bool) -> cst.CSTNode | None:
        if arg.star:
            return self._value(arg.value)
        if not is_transform or self.kinds.kind(arg.value) in (Kind.NUMBER, Kind.STRING):
            return None
        return self.made(arg.value)

    def owner(self, owner: cst.ClassDef, method: cst.FunctionDef) -> cst.CSTNode | None:
        """Return an unseen base, decorator or replacement of a method."""
        found = self._unseen_base(owner) or self._replaced(owner)
        return found or _first(map(self._decorator, method.decorators))

    def _class_items(self, owner: cst.ClassDef) -> cst.CSTNode | None:
        """Return the first unseen part of the items of a dataset class in this file."""
        unseen = self._unseen_base(owner) or self._replaced(owner)
        if unseen is not None:
            return unseen
        methods = [self.functions.method(owner, name) for name in _ITEM_METHODS]
        found = [method for method in methods if method is not None]
        for method in found:
            self._ambient.update(map(id, self.tree.children(method.params)))
        return _first(map(self._answers, found))

    def _unseen_base(self, owner: cst.ClassDef) -> cst.CSTNode | None:
        """Return an unseen base or decorator of a class."""
        for line in self.functions.lineage(owner):
            for base in line.bases:
                value = base.value.value if isinstance(base.value, cst.Subscript) else base.value
                name = self.names.name(value) or ""
                inner = isinstance(self.functions.definition(value), cst.ClassDef)
                if not inner and not name.startswith((*_KNOWN_BASES, *OBJECTS)):
                    return value
            unseen = _first(map(self._decorator, line.decorators))
            if unseen is not None:
                return unseen
        return None

    def _replaced(self, owner: cst.ClassDef) -> cst.CSTNode | None:
        """Return the value that the file assigns over an item method of a class."""
        for line in self.tree.all(cst.Assign):
            for each in line.targets:
                target = each.target
                if isinstance(target, cst.Attribute) and target.attr.value in _ITEM_METHODS:
                    if self.functions.definition(target.value) is owner:
                        return line.value
        return None

    def _decorator(self, decorator: cst.Decorator) -> cst.CSTNode | None:
        node = decorator.decorator
        named = node.func if isinstance(node, cst.Call) else node
        name = self.names.name(named)
        if name is not None and is_data_library(name):
            return None
        return named

    def of_class(self, node: cst.BaseExpression) -> cst.CSTNode | None:
        """Return the unseen class of an object."""
        if id(node) in self._seen:
            return None
        self._seen.add(id(node))
        owner = self.functions.instance_of(node)
        if owner is not None:
            named = (
                (self.names.name(each) or "", each) for each in self.functions.outer_bases(owner)
            )
            return _first(each for name, each in named if not name.startswith(_KNOWN))
        origin = self.origins.of(node)
        if origin.given is not None or not origin.complete or not origin.values:
            return origin.given or node
        for value in origin.values:
            called = value.func if isinstance(value, cst.Call) else value
            name = self.names.name(called) or ""
            if isinstance(called, cst.Attribute) and not name and isinstance(value, cst.Call):
                found = self.of_class(called.value)
                if found is not None:
                    return found
            elif not name.startswith(("torch.", "torchvision.")):
                return called
        return None

    def made(self, node: cst.BaseExpression) -> cst.CSTNode | None:
        """Return the first unseen part of what a function, or calling an object, returns."""
        return self._among(node, self._called, self._made)

    def _made(self, value: cst.BaseExpression) -> cst.CSTNode | None:
        if is_none(value):
            return None
        if isinstance(value, cst.Lambda):
            self._ambient.update(map(id, self.tree.children(value.params)))
            return self._value(value.body)
        called = value.func if isinstance(value, cst.Call) else value
        definition = self.functions.definition(called)
        if isinstance(definition, cst.FunctionDef) and called is value:
            self._ambient.update(map(id, self.tree.children(definition.params)))
            return self._answers(definition)
        if isinstance(definition, cst.ClassDef) and called is not value:
            methods = [self.functions.method(definition, name) for name in _CALLED]
            found = [method for method in methods if method is not None]
            for method in found:
                self._ambient.update(map(id, self.tree.children(method.params)))
            return self._unseen_object(definition) or (
                _first(map(self._answers, found)) if found else called
            )
        name = self.names.name(called)
        if name in COLLATORS:
            return None
        if name is None or not is_data_library(name):
            return called
        return _first(map(self._argument, value.args)) if isinstance(value, cst.Call) else None

    def _argument(self, arg: cst.Arg) -> cst.CSTNode | None:
        """Return the first unseen argument of a library transform."""
        values = self.origins.of(arg.value).values
        if any(isinstance(value, (cst.List, cst.Tuple)) for value in values):
            return _first(
                self._argument(cst.Arg(element.value))
                for value in values
                if isinstance(value, (cst.List, cst.Tuple))
                for element in value.elements
            )
        callables = (cst.Lambda, cst.Call, cst.Name, cst.Attribute)
        if not any(isinstance(value, callables) for value in values):
            return None
        kind = self.kinds.kind(arg.value)
        return self.made(arg.value) if kind in (Kind.UNKNOWN, Kind.MODULE) else None

    def _unseen_object(self, owner: cst.ClassDef) -> cst.CSTNode | None:
        return _first(
            each for each in self.functions.outer_bases(owner) if not self._is_public(each)
        )

    def _answers(self, function: cst.FunctionDef) -> cst.CSTNode | None:
        """Return the first unseen part of what a function of this file returns or yields."""
        if id(function) in self._seen:
            return None
        self._seen.add(id(function))
        unseen = _first(map(self._decorator, function.decorators))
        yielded = [
            node.value.item if isinstance(node.value, cst.From) else node.value
            for node in self.functions.own(function.body, cst.Yield)
            if node.value is not None
        ]
        return unseen or _first(map(self._value, [*self.functions.returns(function), *yielded]))

    # -- tensors --------------------------------------------------------------

    def tensor(self, node: cst.BaseExpression) -> cst.CSTNode | None:
        """Return an unseen function whose result a value is: it may not be a tensor."""
        if id(node) in self._seen:
            return None
        self._seen.add(id(node))
        if isinstance(node, cst.Name):
            bindings = self.scopes.reaching(node)
            return _first(self._bound_tensor(binding) for binding in bindings)
        if isinstance(node, (cst.Attribute, cst.Subscript)):
            return self.tensor(node.value)
        if isinstance(node, cst.UnaryOperation):
            return self.tensor(node.expression)
        if isinstance(node, cst.BinaryOperation):
            return self._mixed(node.left, node.right)
        if isinstance(node, cst.Comparison):
            return self._mixed(node.left, node.comparisons[0].comparator)
        return self._tensor_of_call(node) if isinstance(node, cst.Call) else None

    def _mixed(self, *sides: cst.BaseExpression) -> cst.CSTNode | None:
        """Return what may keep an operation from being a tensor; one tensor operand is enough."""
        found = [self.tensor(side) for side in sides]
        proved = [
            each is None and self._is_made(side) for each, side in zip(found, sides, strict=True)
        ]
        return None if any(proved) else _first(found)

    def _is_made(self, node: cst.BaseExpression) -> bool:
        """Return whether the file shows what creates a value, so that it is not a plain number."""
        if isinstance(node, cst.Name):
            bindings = self.scopes.reaching(node)
            return bool(bindings) and all(
                binding.how is How.ASSIGN and isinstance(binding.value, cst.Call)
                for binding in bindings
            )
        return isinstance(node, (cst.Call, cst.Comparison))

    def _bound_tensor(self, binding: Binding) -> cst.CSTNode | None:
        if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
            if self.functions.given_unseen(binding.node):
                return binding.node
            return _first(map(self.tensor, self.functions.given(binding.node)))
        followed = binding.how in (How.ASSIGN, How.UNPACKED, How.AUGMENTED)
        return self.tensor(binding.value) if followed and binding.value is not None else None

    def _tensor_of_call(self, node: cst.Call) -> cst.CSTNode | None:
        definition = self.functions.definition(node.func)
        if isinstance(definition, cst.FunctionDef):
            return _first(map(self.tensor, self.functions.returns(definition)))
        if self.functions.callee(node) is not None:
            return None
        name = self.names.name(node.func)
        if name is not None:
            return None if is_data_library(name) else node.func
        kind = self.kinds.kind(node.func)
        if kind is Kind.MODULE:
            return None
        if isinstance(node.func, cst.Attribute) and kind is not Kind.CRITERION:
            shown = node.func.attr.value in TENSOR_METHODS
            return None if shown else self.tensor(node.func.value)
        return self.of_class(node.func)

    # -- values ---------------------------------------------------------------

    def _value(self, node: cst.BaseExpression) -> cst.CSTNode | None:
        """Return the first unseen part of a value."""
        if id(node) in self._seen:
            return None
        self._seen.add(id(node))
        if isinstance(node, cst.Name):
            return self._name(node)
        if isinstance(node, cst.Attribute):
            return self._attribute(node)
        if isinstance(node, cst.Call):
            return self._call(node)
        if isinstance(node, cst.Lambda):
            return None
        if isinstance(node, cst.Subscript):
            return self._value(node.value)
        if isinstance(node, cst.IfExp):
            return self._value(node.body) or self._value(node.orelse)
        if isinstance(node, (cst.ListComp, cst.SetComp, cst.GeneratorExp)):
            return self._value(node.elt)
        if isinstance(node, (cst.FormattedString, cst.SimpleString, cst.ConcatenatedString)):
            return None
        return _first(map(self._inside, self.tree.children(node)))

    def _inside(self, child: cst.CSTNode) -> cst.CSTNode | None:
        if isinstance(child, cst.BaseExpression):
            return self._value(child)
        if isinstance(child, (cst.CompFor, cst.Annotation)):
            return None
        return _first(map(self._inside, self.tree.children(child)))

    def _name(self, node: cst.Name) -> cst.CSTNode | None:
        bindings = self.scopes.reaching(node)
        if not bindings:
            return None if self._is_public(node) else node
        found = _first(self._bound(binding, node) for binding in bindings)
        return found or self._added(node)

    def _is_public(self, node: cst.BaseExpression) -> bool:
        name = self.names.name(node)
        return name is not None and is_data_library(name)

    def _added(self, node: cst.Name | cst.Attribute) -> cst.CSTNode | None:
        """Return the first unseen value that is put into a container later."""
        return _first(map(self._value, self.origins.additions(node)))

    def _bound(self, binding: Binding, use: cst.BaseExpression) -> cst.CSTNode | None:
        value = binding.value
        if binding.how in (How.FUNCTION, How.CLASS):
            return None
        if binding.how is How.IMPORT:
            return None if is_data_library(binding.qualified) else use
        if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
            return self._parameter(binding.node)
        if value is None:
            return None if isinstance(binding.node, cst.ExceptHandler) else use
        if binding.how is How.UNPACKED and isinstance(value, (cst.Tuple, cst.List)):
            if len(binding.path) == 1 and not binding.starred:
                return self._value(value.elements[binding.path[0]].value)
        if binding.how is How.LOOP:
            source, _ = self.origins.iteration.source(value, binding.path)
            return self._value(source) if source is not None else None
        return self._value(value)

    def _parameter(self, node: cst.Param) -> cst.CSTNode | None:
        if id(node) in self._ambient or id(node) in self._seen:
            return None
        self._seen.add(id(node))
        parameters = self.tree.parent(node)
        function = self.tree.parent(parameters)
        if isinstance(function, cst.Lambda) or self.functions.owner_of_self(node) is not None:
            return None
        given = self.functions.given(node)
        if not given or self.functions.given_unseen(node):
            return node
        return _first(map(self._value, given))

    def _attribute(self, node: cst.Attribute) -> cst.CSTNode | None:
        if self.names.name(node) is not None and not isinstance(node.value, cst.Call):
            return None if self._is_public(node) else node
        linked = self.names.linked(node)
        if linked:
            return _first(self._bound(binding, node) for binding in linked)
        owner = self.functions.instance_of(node.value)
        if owner is None:
            return self._value(node.value)
        method = self.functions.method(owner, node.attr.value)
        if method is not None:
            return self._answers(method)
        bindings = self.functions.attribute(node)
        if bindings:
            found = _first(self._bound(binding, node) for binding in bindings)
            return found or self._added(node)
        bases = self.functions.bases(owner)
        inherited = any(name.startswith(_INHERITED) for name in bases)  # `self.data` of MNIST
        return None if inherited else node

    # -- calls ----------------------------------------------------------------

    def _call(self, node: cst.Call) -> cst.CSTNode | None:
        definition = self.functions.definition(node.func)
        if isinstance(definition, cst.FunctionDef):
            return self._answers(definition)
        if isinstance(definition, cst.ClassDef):
            return self._unseen_object(definition) or self._arguments(node)
        callee = self.functions.callee(node)
        if callee is not None:
            return self._answers(callee)
        name = self.names.name(node.func)
        if name is not None:
            return self._library_call(node, name)
        if isinstance(node.func, cst.Attribute):
            return self._method_call(node, node.func)
        return self.made(node.func) or self._arguments(node)

    def _arguments(self, node: cst.Call) -> cst.CSTNode | None:
        return _first(self._value(arg.value) for arg in node.args)

    def _library_call(self, node: cst.Call, name: str) -> cst.CSTNode | None:
        module, _, last = name.rpartition(".")
        if name in OPAQUE or not is_data_library(name):
            return node.func
        if module == "builtins":
            return None if last in PLAIN_RESULTS else self._arguments(node)
        if told := named_arguments(node, "device"):
            return self._place(told[0])
        if name == "torch.load":
            return None if self.handles or self._stays_on_host(node) else node.func
        if last in FACTORIES or (last in HOST_CONSTRUCTORS and not self.handles):
            return None
        if name.startswith(("torch.", "torchvision.transforms.")) or (
            self.handles and name.startswith("numpy.")
        ):
            return _first(self._value(arg.value) for arg in node.args[:1])
        return None

    def _place(self, node: cst.BaseExpression) -> cst.CSTNode | None:
        """Return the argument that may move a tensor to an unseen device."""
        if self._is_public(node) or self.work.stays(node):
            return None
        return self._value(node) if self.kinds.kind(node) is Kind.TENSOR else node

    def _stays_on_host(self, call: cst.Call) -> bool:
        """Return whether `torch.load` is told to keep its tensors in host memory."""
        given = self.values.argument_node(call, "map_location")
        return given is not None and self.tree.code(given.value).strip("'\"") == "cpu"

    def _method_call(self, node: cst.Call, func: cst.Attribute) -> cst.CSTNode | None:
        method = func.attr.value
        if method in TO_HOST and not self.handles:
            return None
        if self.functions.instance_of(func.value) is not None:
            return self.made(func) or self._arguments(node)
        if method == "cuda":
            return func
        moved = node.args if method in ("to", "type_as") else ()
        found = self._value(func.value)
        if found is not None:
            return func if found is func.value and isinstance(found, cst.Name) else found
        return _first(
            self._place(arg.value)
            for arg in moved
            if arg.keyword is None or arg.keyword.value == "device"
        )


def _first(found: Iterable[cst.CSTNode | None]) -> cst.CSTNode | None:
    return next((each for each in found if each is not None), None)
