"""What packs of others build on: the names and signatures of `torchlint.api`.

A line that changes here breaks somebody's rules, unless it is only added. `pytest
--snapshot-update` writes the list anew: read that diff, and name what changed in CHANGELOG.md.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from functools import cached_property
from typing import Any, get_origin

from syrupy.assertion import SnapshotAssertion

from torchlint import api, testing


def test_the_names_are_sorted_and_all_there() -> None:
    assert api.__all__ == sorted(api.__all__, key=lambda name: (not name.isupper(), name))
    public = {name for name in vars(api) if not name.startswith("_")}
    assert public == set(api.__all__)


def test_names_and_signatures(snapshot: SnapshotAssertion) -> None:
    assert "\n".join(_lines(api)) == snapshot


def test_names_and_signatures_of_the_test_kit(snapshot: SnapshotAssertion) -> None:
    assert "\n".join(_lines(testing)) == snapshot


def _is_ours(value: object) -> bool:
    return getattr(value, "__module__", "").startswith("torchlint.")


def _lines(module: Any) -> Iterator[str]:
    for name in module.__all__:
        value = getattr(module, name)
        if get_origin(value) is not None or isinstance(value, int):
            yield f"{name} = {value}"
        elif isinstance(value, (tuple, frozenset)):
            yield f"{name} = {sorted(map(str, value))}"
        elif inspect.isclass(value):
            yield from _class(name, value)
        else:
            yield f"{name}{inspect.signature(value)}"


def _class(name: str, made: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in made.__bases__ if base is not object)
    yield f"class {name}({bases})" if bases else f"class {name}"
    if issubclass(made, enum.Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in made)
    for field, kind in _fields(made).items():
        yield f"    {field}: {kind}"
    for member in sorted(dir(made)):
        value = inspect.getattr_static(made, member)
        if member.startswith("_") and member != "__init__":
            continue
        line = _member(member, value)
        if line is not None:
            yield f"    {line}"


def _fields(made: type) -> dict[str, str]:
    """Return the annotations that stand in a class, those of its bases first."""
    kinds: dict[str, str] = {}
    for base in reversed(made.__mro__):
        if _is_ours(base):
            written = inspect.get_annotations(base)
            kinds |= {name: _kind(each) for name, each in written.items() if name[0] != "_"}
    return kinds


def _kind(annotation: Any) -> str:
    return str(getattr(annotation, "__forward_arg__", annotation))


def _member(name: str, value: Any) -> str | None:
    if isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    if isinstance(value, (property, cached_property)):
        function = value.fget if isinstance(value, property) else value.func
        if not _is_ours(function):
            return None
        return f"{name} -> {_kind(inspect.signature(function).return_annotation)}"  # type: ignore[arg-type]
    if inspect.isfunction(value) and _is_ours(value):
        return f"{name}{inspect.signature(value)}"
    return None
