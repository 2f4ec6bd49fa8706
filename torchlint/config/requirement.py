"""The lowest version of torch that a project's own requirements allow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any


def lowest_torch(pyproject: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the lowest version of torch that a `pyproject.toml` allows, or None."""
    for specifiers in (list(_required(pyproject)), list(_optional(pyproject))):
        lowest = [version for version in map(_lower_bound, specifiers) if version is not None]
        if lowest:
            return min(lowest)
    return None


def _required(pyproject: Mapping[str, Any]) -> Iterator[str]:
    """Yield the constraints on torch among the required dependencies."""
    project = _table(pyproject, "project")
    yield from _torch_among(project.get("dependencies"))
    yield from _in_poetry(_table(pyproject, "tool", "poetry", "dependencies"))


def _optional(pyproject: Mapping[str, Any]) -> Iterator[str]:
    """Yield the constraints on torch among extras and dependency groups."""
    extras = _table(pyproject, "project", "optional-dependencies")
    groups = _table(pyproject, "dependency-groups")
    for requirements in (*extras.values(), *groups.values()):
        yield from _torch_among(requirements)
    for group in _table(pyproject, "tool", "poetry", "group").values():
        if isinstance(group, dict):
            yield from _in_poetry(_table(group, "dependencies"))


def _table(mapping: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    value: Any = mapping
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _torch_among(requirements: Any) -> Iterator[str]:
    """Yield the specifiers of torch in a list of PEP 508 requirements."""
    from packaging.requirements import InvalidRequirement, Requirement

    for text in requirements if isinstance(requirements, list) else ():
        if isinstance(text, str) and re.match(r"\s*torch\b(?![-_.])", text, re.IGNORECASE):
            try:
                yield str(Requirement(text).specifier)
            except InvalidRequirement:
                continue


def _in_poetry(dependencies: Mapping[str, Any]) -> Iterator[str]:
    """Yield Poetry's constraints on torch as PEP 440 specifiers."""
    value = dependencies.get("torch")
    for each in value if isinstance(value, list) else [value]:
        text = each.get("version") if isinstance(each, dict) else each
        if isinstance(text, str):
            bare = re.sub(r"(^|,)\s*(?=\d)", r"\1==", text)
            yield re.sub(r"(^|,)\s*(\^|~(?!=))\s*", r"\1>=", bare)


def _lower_bound(specifiers: str) -> tuple[int, int] | None:
    """Return the lowest version that a set of specifiers allows, None if it has no bound."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import Version

    try:
        each = list(SpecifierSet(specifiers))
    except InvalidSpecifier:
        return None
    bounds = [
        Version(one.version.removesuffix(".*"))
        for one in each
        if one.operator in (">=", ">", "~=", "==")
    ]
    if not bounds:
        return None
    lowest = max(bounds)
    return lowest.major, lowest.minor
