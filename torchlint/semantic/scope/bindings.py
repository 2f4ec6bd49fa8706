"""Bindings: the places that give names their values, and the scopes that hold them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

import libcst as cst

_NOTHING: Final[Mapping[str, list[Binding]]] = MappingProxyType({})


class How(Enum):
    """The kind of statement that binds a name."""

    ASSIGN = auto()
    AUGMENTED = auto()
    DECLARED = auto()
    UNPACKED = auto()
    LOOP = auto()
    WITH = auto()
    PARAMETER = auto()
    IMPORT = auto()
    FUNCTION = auto()
    CLASS = auto()
    OTHER = auto()


REGISTERING: Final = frozenset(("register_buffer", "register_parameter"))
"""The methods by which networks get an attribute that goes to the device with them."""


class Binding(NamedTuple):
    """One place that gives a name a value.

    `value` is the assigned expression (for `UNPACKED` and `LOOP` the expression that is unpacked,
    with `path` the indices into it); `qualified` is the imported name.
    """

    name: str
    how: How
    node: cst.CSTNode
    at: int
    value: cst.BaseExpression | None = None
    path: tuple[int, ...] = ()
    qualified: str = ""
    starred: bool = False

    @property
    def assigned(self) -> cst.BaseExpression | None:
        """The value of a plain assignment, None for any other binding."""
        return self.value if self.how is How.ASSIGN else None

    @property
    def is_registered(self) -> bool:
        """Whether it is an attribute that a network takes along to a device."""
        return type(self.node) is cst.Call

    @property
    def parameter(self) -> cst.Param | None:
        """The parameter of a function or a lambda, None for any other binding."""
        return self.node if type(self.node) is cst.Param else None


# Bindings compare by identity, as nodes do, and are keys of many dictionaries.
Binding.__eq__ = object.__eq__  # type: ignore[method-assign]
Binding.__hash__ = object.__hash__  # type: ignore[method-assign]

UNBOUND: Final = Binding("", How.OTHER, cst.Module([]), -1)
"""What stands for the binding of a name that has no binding, or no certain one."""


class Scope:
    """A module, class, function, lambda or comprehension with the names bound in it."""

    def __init__(self, node: cst.CSTNode, parent: Scope | None) -> None:
        self.node = node
        self.parent = parent
        self.bindings: dict[str, list[Binding]] = {}
        self.outward: dict[str, str] = {}
        """Names declared `global` or `nonlocal`."""
        self.unlinked: Mapping[str, list[Binding]] = _NOTHING
        """The bindings as written, of names that are imported from a module in view."""

    @cached_property
    def function(self) -> cst.FunctionDef | None:
        """The function whose code this scope belongs to, None for a module or a class."""
        if isinstance(self.node, cst.FunctionDef):
            return self.node
        return None if self.is_class or self.parent is None else self.parent.function

    @cached_property
    def owner(self) -> cst.ClassDef | None:
        """The innermost class around this scope."""
        if isinstance(self.node, cst.ClassDef):
            return self.node
        return self.parent.owner if self.parent is not None else None

    @cached_property
    def is_class(self) -> bool:
        """Whether nested functions cannot see the names bound here."""
        return type(self.node) is cst.ClassDef

    @cached_property
    def is_function(self) -> bool:
        """Whether this is a function or a lambda."""
        return type(self.node) in (cst.FunctionDef, cst.Lambda)


def holds(outer: str, inner: str) -> bool:
    """Return whether one dotted path is that of another, or of a part of it."""
    return inner == outer or inner.startswith(f"{outer}.")


def dotted(node: cst.CSTNode) -> str:
    """Return `a.b.c` for a chain of attributes on a name, else ""."""
    path = ""
    while type(node) is cst.Attribute:
        path = f".{node.attr.value}{path}"
        node = node.value
    return node.value + path if type(node) is cst.Name else ""
