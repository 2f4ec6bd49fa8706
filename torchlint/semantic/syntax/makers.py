"""Makes LibCST nodes from what a parser has already accepted, without checking it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

import libcst as cst

__all__ = ["Maker", "maker"]

Maker = Callable[..., Any]


def maker(kind: type[cst.CSTNode], *names: str) -> Maker:
    """Give a function that makes nodes of a type from the fields named, in this order.

    All other fields get their defaults, one object shared by all nodes.
    """
    known: dict[str, Any] = {"new": object.__new__, "kind": kind}
    lines = [f"def make({', '.join(names)}):", " node = new(kind)"]
    for field in fields(kind):
        name = field.name
        known[f"set_{name}"] = getattr(kind, name).__set__
        if name not in names:
            known[name] = field.default if field.default is not MISSING else _made(field)
        lines.append(f" set_{name}(node, {name})")
    exec("\n".join([*lines, " return node"]), known)
    made: Maker = known["make"]
    return made


def _made(field: Any) -> Any:
    return None if field.default_factory is MISSING else field.default_factory()
