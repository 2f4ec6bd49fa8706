"""Makes LibCST nodes from what a parser has already accepted, without checking it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from types import FunctionType
from typing import Any

import libcst as cst

__all__ = ["Maker", "maker", "plain"]

Maker = Callable[..., Any]


def maker(kind: type[cst.CSTNode], *names: str) -> Maker:
    """Give a function that makes nodes of a type from the fields named, in this order.

    All other fields get their defaults, one object shared by all nodes. What it does is compiled
    when it is called for the first time: a file has few of the types that there are.
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
    """Be a maker that is not ready; its code has the names of the maker around it."""
    get_ready()  # type: ignore[name-defined]  # noqa: F821
    return made(*values)  # type: ignore[name-defined]  # noqa: F821


def _definition(kind: type[cst.CSTNode], names: tuple[str, ...], known: dict[str, Any]) -> str:
    """Give the text of a maker, and make known what it uses."""
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
