"""Values: the one expression that a name or an argument can be."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from functools import cached_property
from typing import Any, Final, NamedTuple

import libcst as cst

from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.scope.libraries import DICTIONARIES
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.syntax.methods import choices_of, container_of, index_of, root_of
from torchlint.semantic.values.argumentfiles import ArgumentFiles
from torchlint.semantic.values.configurations import Configurations


class State(Enum):
    """What is known of a value."""

    KNOWN = auto()
    DECIDED = auto()
    ABSENT = auto()
    UNKNOWN = auto()


class Value(NamedTuple):
    """An expression or an argument: one expression, a decision made elsewhere, or nothing.

    DECIDED: it is set deliberately, but this file shows no single expression (argparse, a
    configuration, several call sites). ABSENT: the argument is certainly not passed.
    UNKNOWN: it may or may not be passed.
    """

    state: State
    node: cst.BaseExpression | None = None

    @property
    def is_literal(self) -> bool:
        """Whether the value is one literal."""
        return self.literal is not _NOTHING

    @property
    def literal(self) -> Any:
        """The Python value of a literal number, string, boolean, None or a tuple of these."""
        node = self.node
        if type(node) not in _LITERALS or self.state is not State.KNOWN:
            return _NOTHING
        if type(node) is cst.Name:
            return _CONSTANTS.get(node.value, _NOTHING)
        if type(node) is cst.Integer and node.value.isdigit():
            return int(node.value)
        if type(node) is cst.SimpleString and _PLAIN.fullmatch(node.value):
            return node.value[1:-1]
        try:
            if isinstance(node, (cst.SimpleString, cst.Integer, cst.Float)):
                return ast.literal_eval(node.value)
            assert node is not None
            return ast.literal_eval(cst.Module([]).code_for_node(node).strip())
        except (ValueError, SyntaxError):
            return _NOTHING

    def equals(self, value: object) -> bool:
        """Return whether the value is this literal (`1` is not `True`)."""
        found = self.literal
        return type(found) is type(value) and found == value


_PLAIN: Final = re.compile(r"""'[^'\\]*'|"[^"\\]*\"""")
_LITERALS: Final = frozenset({
    cst.Integer, cst.Float, cst.SimpleString, cst.Name, cst.UnaryOperation, cst.Tuple,
})  # fmt: skip
_NOTHING: Final = object()
_ABSENT: Final = Value(State.ABSENT)
_DECIDED: Final = Value(State.DECIDED)
_UNKNOWN: Final = Value(State.UNKNOWN)
_READING: Final = (cst.Attribute, cst.Arg, cst.Comparison, cst.ComparisonTarget)
"""What reads a dictionary and gives it no other name."""
_CHANGES: Final = frozenset("update pop setdefault clear".split())
_CONSTANTS: Final = {"True": True, "False": False, "None": None}


class Values(Analysis):
    """Follows names, attributes, parameters and dictionaries to their values."""

    def __init__(self, functions: Functions) -> None:
        super().__init__(functions)
        self._made: list[cst.Dict] = []
        self.files = ArgumentFiles(functions, self._literal)
        self.configurations = Configurations(functions, self.files, self._literal)

    def _literal(self, node: cst.BaseExpression) -> Any:
        return self.value_of(node).literal

    @memoized(_UNKNOWN)
    def value_of(self, node: cst.BaseExpression) -> Value:
        """Return the one expression that `node` can be."""
        bindings = self.functions.bindings(node)
        if bindings:
            found = [self._bound(binding) for binding in bindings]
            return _agree([*found, _DECIDED] if self.comes_set(node, bindings) else found)
        if type(node) is cst.Attribute:
            return self._option(node)
        return self._item(node) if type(node) is cst.Subscript else Value(State.KNOWN, node)

    def comes_set(self, node: cst.BaseExpression, bindings: Sequence[Binding]) -> bool:
        """Return whether an attribute comes with its object, as it is only set under `if`s."""
        around = (map(self.tree.parent, self.scopes.blocks(each.node)) for each in bindings)
        others = isinstance(node, cst.Attribute) and not self.functions.is_self(node.value)
        return others and all(
            any(type(at) is cst.If and "__name__" not in self.tree.code(at.test) for at in outer)
            for outer in around
        )

    def code_of(self, node: cst.BaseExpression) -> str:
        """Return the code of the one expression that a node can be, else of the node."""
        value = self.value_of(node)
        return self.tree.code(value.node if value.node is not None else node)

    def key(self, node: cst.BaseExpression) -> int | str | None:
        """Return the index or the key of an item, None if it is not known or no item."""
        index = index_of(node)
        literal = self.value_of(index).literal if index is not None else None
        return literal if type(literal) in (int, str) else None

    def _option(self, node: cst.Attribute) -> Value:
        """Return an option of a configuration that nothing in view changes: `cfg.trainer.steps`."""
        root = root_of(node)
        if not isinstance(root, cst.Name) or not self.files.is_configuration(
            self.value_of(root).node
        ):
            return _DECIDED
        found = self.entry(node.value, node.attr.value)
        changed = self._is_changed(dotted(node.value), node.attr.value)
        return found if found.state is State.KNOWN and not changed else _DECIDED

    def _item(self, node: cst.Subscript) -> Value:
        """Return an entry that a dictionary always has: nothing in view changes it."""
        key = self.key(node)
        if not isinstance(key, str):
            return _DECIDED
        found = self.entry(node.value, key)
        if found.state is not State.KNOWN or self._is_changed(dotted(node.value), key):
            return _DECIDED
        return found

    def _is_changed(self, path: str, key: str) -> bool:
        """Return whether code may change an entry of a dictionary after it was made."""
        for line in self._touching.get(path, ()):
            if isinstance(line, cst.Call):
                name = self.names.name(line.func)
                library = name is not None and not name.startswith(".")
                if not library and self._entry_of_change(line, path, key) is not None:
                    return True
            elif self._assigned_entry(line, path, key) is not None:
                return True
        return any(
            isinstance(line.target, cst.Subscript) and dotted(line.target.value) == path
            for line in self.tree.all(cst.AugAssign)
        )

    def is_given(self, owner: cst.ClassDef, field: str) -> bool:
        """Return whether code in view may give a field of a class another value than its own."""
        stored = (each for each in self.functions.attributes(field) if self.scopes.stored(each))
        if any(self.functions.instance_of(each.value) in (None, owner) for each in stored):
            return True
        plain = self.functions.method(owner, "__init__") is None
        made = map(self.tree.parent, self.functions.mentions(owner.name.value))
        return any(
            bool(arg.star) or (plain if arg.keyword is None else arg.keyword.value == field)
            for call in made
            if isinstance(call, cst.Call) and self.functions.definition(call.func) is owner
            for arg in call.args
        )

    def _bound(self, binding: Binding) -> Value:
        owner = self.scopes.scope(binding.node).node
        if isinstance(owner, cst.ClassDef) and self.is_given(owner, binding.name):
            return _DECIDED
        if binding.how is How.ASSIGN and binding.value is not None:
            return self.value_of(binding.value)
        if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
            given = [self.value_of(one) for one in self.functions.given(binding.node)]
            given += self._unpacked(binding.node)
            unseen = self.functions.given_unseen(binding.node)
            return _agree(given) if given and not unseen else _DECIDED
        return _DECIDED

    def _unpacked(self, parameter: cst.Param) -> Iterator[Value]:
        """Yield what the dictionaries that calls unpack may pass to a parameter."""
        name = parameter.name.value
        function = self.tree.parent(self.tree.parent(parameter))
        if not isinstance(function, cst.FunctionDef):
            return
        for call in self.functions.callers(function):
            for arg in call.args:
                if arg.star == "**" and self.functions.passed(call, function, name) is None:
                    value = self.entry(arg.value, name)
                    if value.state is not State.ABSENT:
                        yield value if value.state is State.KNOWN else _DECIDED

    # -- arguments ------------------------------------------------------------

    def argument(self, call: cst.Call, name: str, position: int | None = None) -> Value:
        """Return the value that a call passes for a parameter, also through `**` dictionaries.

        `position` is the parameter's place among positional arguments, None if keyword-only.
        """
        found = self.argument_node(call, name, position)
        if found is not None:
            return self.value_of(found.value)
        if position is not None:
            plain = [arg for arg in call.args if arg.keyword is None and arg.star != "**"]
            if any(arg.star == "*" for arg in plain[: position + 1]):
                return _UNKNOWN
        splats = [self.entry(arg.value, name) for arg in call.args if arg.star == "**"]
        present = [value for value in splats if value.state is not State.ABSENT]
        return present[0] if present else _ABSENT

    def argument_node(
        self, call: cst.Call, name: str, position: int | None = None
    ) -> cst.Arg | None:
        """Return the argument node if the call spells it out."""
        for arg in call.args:
            if arg.keyword is not None and arg.keyword.value == name:
                return arg
        if position is None:
            return None
        plain = [arg for arg in call.args if arg.keyword is None and arg.star != "**"]
        if position < len(plain) and not any(arg.star for arg in plain[: position + 1]):
            return plain[position]
        return None

    def expression(
        self, call: cst.Call, name: str, position: int | None = None
    ) -> cst.BaseExpression | None:
        """Return what a call passes for a parameter, also in a dictionary that a name holds."""
        found = self.argument_node(call, name, position)
        if found is not None:
            return found.value
        splats = [arg.value for arg in call.args if arg.star == "**"]
        return self._only_entry(splats[0], name) if len(splats) == 1 else None

    def _only_entry(self, node: cst.BaseExpression, key: str) -> cst.BaseExpression | None:
        """Return the expression for a key where a dictionary is made, if nothing changes it."""
        if isinstance(node, (cst.Name, cst.Attribute)):
            made = self.scopes.only(node).value
            changed = any(True for _ in self._changes(node, key))
            return None if made is None or changed else self._only_entry(made, key)
        if isinstance(node, cst.Call) and self.names.name(node.func) in DICTIONARIES:
            arg = self.argument_node(node, key)
            return arg.value if arg is not None else None
        elements = node.elements if isinstance(node, cst.Dict) else ()
        found = [e for e in elements if not isinstance(e, cst.DictElement) or _is_key(e, key)]
        return found[0].value if len(found) == 1 and isinstance(found[0], cst.DictElement) else None

    def entry(self, node: cst.BaseExpression, key: str) -> Value:
        """Return the value of a dictionary at a key, ABSENT if it certainly lacks the key."""
        return self._entry((node, key))

    @memoized(_UNKNOWN)
    def _entry(self, place: tuple[cst.BaseExpression, str]) -> Value:
        node, key = place
        if isinstance(node, cst.Dict):
            return self._entry_of_literal(node, key)
        if isinstance(node, cst.Call):
            return self._entry_of_call(node, key)
        if choices := choices_of(node):
            return _either([self.entry(each, key) for each in choices])
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitOr):
            right = self.entry(node.right, key)
            return self.entry(node.left, key) if right.state is State.ABSENT else right
        if isinstance(node, (cst.Name, cst.Attribute)):
            return self._entry_of_name(node, key)
        if isinstance(node, cst.Subscript):
            return self._entry_of_inner(node, key)
        return _UNKNOWN

    def _entry_of_inner(self, node: cst.Subscript, key: str) -> Value:
        """Return the value in a dictionary of a dictionary: of any where it is not known which."""
        index, inner = index_of(node), self.value_of(node).node
        if index is None or self._is_changed_inside(node):
            return _UNKNOWN
        if isinstance(inner, cst.Dict):
            return self.entry(inner, key)
        table = self.value_of(node.value).node
        held = table.elements if isinstance(table, cst.Dict) else ()
        if self.value_of(index).is_literal or not all(isinstance(e, cst.DictElement) for e in held):
            return _UNKNOWN
        return _either([self.entry(each.value, key) for each in held])

    def _is_changed_inside(self, node: cst.Subscript) -> bool:
        """Return whether a line sets entries of a dictionary that is itself an entry of one."""
        path = dotted(container_of(node))
        targets = [line.targets[0].target for line in self.tree.all(cst.Assign)]
        targets += [line.target for line in self.tree.all(cst.AugAssign)]
        owners = [each.value for each in targets if isinstance(each, cst.Subscript)]
        owners += [
            call.func.value
            for call in self.tree.all(cst.Call)
            if isinstance(call.func, cst.Attribute) and call.func.attr.value in _CHANGES
        ]
        return any(
            isinstance(each, cst.Subscript) and dotted(container_of(each)) == path
            for each in owners
        )

    def _entry_of_literal(self, node: cst.Dict, key: str) -> Value:
        found = _ABSENT
        for element in node.elements:
            if isinstance(element, cst.StarredDictElement):
                inner = self.entry(element.value, key)
                found = found if inner.state is State.ABSENT else inner
            elif isinstance(element, cst.DictElement):
                name = self.value_of(element.key).literal
                if name == key:
                    found = self.value_of(element.value)
                elif name is _NOTHING and found.state is State.ABSENT:
                    found = _UNKNOWN
        return found

    def _entry_of_call(self, node: cst.Call, key: str) -> Value:
        if self.names.name(node.func) in DICTIONARIES:
            found = self.argument(node, key)
            if found.state is not State.ABSENT:
                return found
            first = [arg.value for arg in node.args if arg.keyword is None and not arg.star]
            return self.entry(first[0], key) if first else _ABSENT
        if isinstance(node.func, cst.Attribute) and node.func.attr.value == "copy":
            return self.entry(node.func.value, key)
        function = self.functions.definition(node.func)
        if isinstance(function, cst.FunctionDef):
            returned = self.functions.returns(function)
            if returned:
                return _either([self.entry(one, key) for one in returned])
        read = self.files.read_by(node)
        return self.entry(read, key) if read is not None else _UNKNOWN

    def _entry_of_name(self, node: cst.Name | cst.Attribute, key: str) -> Value:
        bindings = self.functions.bindings(node)
        if not bindings:
            inner = self.value_of(node).node
            return self.entry(inner, key) if isinstance(inner, cst.Dict) else _UNKNOWN
        found = _either([self._entry_of_binding(binding, key) for binding in bindings])
        around = {id(block) for block in self.scopes.blocks(node)}
        for place, value in self._changes(node, key):
            if value.state is State.ABSENT:
                continue
            always = id(self.scopes.blocks(place)[0]) in around
            found = value if always else _either([found, value])
        return found

    def _entry_of_binding(self, binding: Binding, key: str) -> Value:
        parameter = binding.parameter
        rest = parameter if parameter is not None and parameter.star == "**" else None
        function = self.tree.parent(self.tree.parent(rest))
        calls = self.functions.callers(function) if isinstance(function, cst.FunctionDef) else ()
        found = [self.argument(call, key) for call in calls]
        found = found or [self.entry(one, key) for one in self.functions.held(binding)]
        for given in self._unpacked(parameter) if parameter is not None and not rest else ():
            found.append(self.entry(given.node, key) if given.node is not None else _UNKNOWN)
        return _either(found)

    def _changes(
        self, node: cst.Name | cst.Attribute, key: str
    ) -> Iterator[tuple[cst.CSTNode, Value]]:
        """Yield the later lines that change an entry of a dictionary, in source order."""
        path, use = dotted(node), self.tree.order(node)
        here = self.scopes.home(node)
        for line in self._touching.get(path, ()):
            if self.tree.order(line) > use:
                return
            if self.scopes.home(line) is not here or self.tree.inside(node, line):
                continue
            change = (
                self._assigned_entry(line, path, key)
                if isinstance(line, cst.Assign)
                else self._entry_of_change(line, path, key)
            )
            if change is not None:
                yield line, change

    @cached_property
    def _touching(self) -> dict[str, list[cst.Assign | cst.Call]]:
        """The nodes that may change the entries of a dictionary, by the dictionary's path."""
        found: dict[str, dict[int, cst.Assign | cst.Call]] = {}
        lines: list[cst.Assign | cst.Call] = [*self.tree.all(cst.Assign), *self.tree.all(cst.Call)]
        for line in sorted(lines, key=self.tree.order):
            touched = [arg.value for arg in line.args] if isinstance(line, cst.Call) else []
            owner = line.func if isinstance(line, cst.Call) else line.targets[0].target
            if isinstance(owner, (cst.Attribute, cst.Subscript)):
                touched.append(owner.value)
            for node in touched:
                path = dotted(node)
                if path:
                    found.setdefault(path, {})[id(line)] = line
        return {path: list(lines.values()) for path, lines in found.items()}

    def _assigned_entry(self, line: cst.Assign, path: str, key: str) -> Value | None:
        """Read `node["key"] = value`, which may set any entry if the key is not known."""
        target = line.targets[0].target
        if not isinstance(target, cst.Subscript) or dotted(target.value) != path:
            return None
        index = index_of(target)
        if index is None:
            return None
        named = self.value_of(index)
        if named.equals(key):
            return self.value_of(line.value)
        return None if named.is_literal else _UNKNOWN

    def _entry_of_change(self, call: cst.Call, path: str, key: str) -> Value | None:
        """Return the entry set by `node.update(...)`; UNKNOWN after other calls with it."""
        func = call.func
        if isinstance(func, cst.Attribute) and dotted(func.value) == path:
            if func.attr.value == "setdefault" and call.args:
                named = self.value_of(call.args[0].value)
                return None if named.is_literal and not named.equals(key) else _DECIDED
            if func.attr.value != "update":
                return None
            inner = [arg.value for arg in call.args if arg.keyword is None]
            inner += [self._single(a.keyword.value, a.value) for a in call.args if a.keyword]
            entries = [self.entry(one, key) for one in inner]
            present = [entry for entry in entries if entry.state is not State.ABSENT]
            return present[-1] if present else _ABSENT
        if isinstance(func, cst.Attribute) and func.attr.value in ("update", "append"):
            return None
        if (self.names.name(func) or "").startswith("builtins."):
            return None
        handed = [arg.value for arg in call.args if not arg.star and dotted(arg.value) == path]
        return _UNKNOWN if any(self._may_change((call, each, key)) for each in handed) else None

    @memoized(False)
    def _may_change(self, place: tuple[cst.Call, cst.BaseExpression, str]) -> bool:
        """Return whether what a call runs may change an entry of a dictionary that it gets."""
        call, given, key = place
        run = self.functions.callees(call)
        taken = [self.functions.taken(call, function, given) for function in run]
        return not taken or any(
            each is None
            or self._is_changed(each.name, key)
            or any(map(self._keeps_or_changes, map(self.tree.parent, self.scopes.readers(each))))
            for each in taken
        )

    def _keeps_or_changes(self, holder: cst.CSTNode | None) -> bool:
        """Return whether what reads a dictionary gives it a name, or changes inside an entry."""
        if isinstance(holder, cst.Subscript):
            return self._is_changed_inside(holder)
        return not isinstance(holder, _READING)

    def _single(self, key: str, value: cst.BaseExpression) -> cst.Dict:
        """Return a dictionary node with one entry, cached because facts are keyed by identity."""
        made = cst.Dict([cst.DictElement(cst.SimpleString(repr(key)), value)])
        self._made.append(made)
        return made


def _either(values: list[Value]) -> Value:
    """Combine the values of an entry on several paths."""
    if not values or any(value.state is State.UNKNOWN for value in values):
        return _UNKNOWN
    if all(value.state is State.ABSENT for value in values):
        return _ABSENT
    return _agree(values)


def _agree(values: list[Value]) -> Value:
    """Return the value if all are the same literal or expression, else DECIDED."""
    first = values[0] if values else _UNKNOWN
    if len(values) == 1:
        return first
    if any(value.state is State.UNKNOWN for value in values):
        return _UNKNOWN
    if first.is_literal and all(value.equals(first.literal) for value in values):
        return first
    if first.node is not None and all(value.node is first.node for value in values):
        return first
    return _DECIDED


def _is_key(element: cst.DictElement, key: str) -> bool:
    return isinstance(element.key, cst.SimpleString) and element.key.evaluated_value == key
