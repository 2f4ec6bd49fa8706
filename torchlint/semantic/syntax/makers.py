"""Makers: constructors of LibCST nodes that skip validation, as the code has been parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from types import FunctionType
from typing import Any, Final

import libcst as cst

Maker = Callable[..., Any]


def maker(kind: type[cst.CSTNode], *names: str) -> Maker:
    """Return a function that makes nodes of a type from the named fields, in this order.

    All other fields get their defaults, shared by all nodes. The function compiles itself on its
    first call, as a file uses few node types.
    """
    known: dict[str, Any] = {}
    make = FunctionType(_first.__code__, known, "make")

    def get_ready() -> None:
        exec(_definition(kind, names, known), known)
        make.__code__ = known["make"].__code__

    known |= {"get_ready": get_ready, "made": make}
    return make


def plain(kind: type[cst.CSTNode], **given: Any) -> Any:
    """Make one node with some fields; all others get their defaults."""
    node = object.__new__(kind)
    for name, value in {**dict(_defaults(kind)), **given}.items():
        getattr(kind, name).__set__(node, value)
    return node


def _first(*values: Any) -> Any:
    """Compile the maker on its first call; its code runs with this function's variables."""
    get_ready()  # type: ignore[name-defined]  # noqa: F821
    return made(*values)  # type: ignore[name-defined]  # noqa: F821


def _definition(kind: type[cst.CSTNode], names: tuple[str, ...], known: dict[str, Any]) -> str:
    """Return the source of a maker, and define the names it uses."""
    known |= {"new": object.__new__, "kind": kind, **dict(_defaults(kind))}
    lines = [f"def make({', '.join(names)}):", " node = new(kind)"]
    frozen = kind.__setattr__ is not object.__setattr__
    for field in fields(kind):
        name = field.name
        known[f"set_{name}"] = getattr(kind, name).__set__
        lines.append(f" set_{name}(node, {name})" if frozen else f" node.{name} = {name}")
    return "\n".join([*lines, " return node"])


def _defaults(kind: type[cst.CSTNode]) -> Iterator[tuple[str, Any]]:
    for field in fields(kind):
        if field.default is not MISSING:
            yield field.name, field.default
        elif field.default_factory is not MISSING:
            yield field.name, field.default_factory()


ASYNC: Final = plain(cst.Asynchronous)
CLOSE: Final = plain(cst.RightParen)
SPACE: Final = plain(cst.SimpleWhitespace, value=" ")
_NO_SPACE: Final = plain(cst.SimpleWhitespace, value="")
COMMA: Final = plain(cst.Comma, whitespace_after=SPACE)
EQUAL: Final = plain(cst.AssignEqual, whitespace_before=_NO_SPACE, whitespace_after=_NO_SPACE)
NONE: Final = cst.MaybeSentinel.DEFAULT
OPEN: Final = plain(cst.LeftParen)
