"""LibCST without the checks that its classes make, for a process that is all our own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__all__ = ["expect_libcst"]

_LIBCST: Final = "libcst"
_NODES: Final = "libcst._nodes."


def expect_libcst() -> None:
    """Make the import of LibCST, where it comes to one, take two thirds of its time.

    Left out is what makes its nodes refuse assignments, a text form that LibCST replaces by its
    own, and what makes abstract classes refuse instances, which has every `isinstance` call Python
    code. Nothing is different for code that does neither. The classes belong to the whole process:
    only the program calls this, no function of the Python API.
    """
    sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds LibCST as anybody does, and has its classes made with less."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name != _LIBCST:
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = _with_less(loader.exec_module)
        return spec


def _with_less(execute: Callable[[Any], None]) -> Callable[[Any], None]:
    def lean(module: Any) -> None:
        with _plain_abstract_classes(), _assignable_nodes():
            execute(module)

    return lean


class _Plain:
    """Stands for `abc.ABC`."""

    __slots__ = ()


@contextmanager
def _plain_abstract_classes() -> Iterator[None]:
    """Make abstract classes of the type of all others."""
    import abc

    real = abc.ABC
    setattr(abc, real.__name__, _Plain)
    try:
        yield
    finally:
        setattr(abc, real.__name__, real)


@contextmanager
def _assignable_nodes() -> Iterator[None]:
    """Make dataclasses of LibCST's nodes without what is not needed."""
    import dataclasses

    real: Any = dataclasses.dataclass

    def dataclass(cls: Any = None, /, **options: Any) -> Any:
        if cls is None:
            return lambda decorated: dataclass(decorated, **options)
        if cls.__module__.startswith(_NODES):
            options |= {"frozen": False, "repr": False}
            # Most nodes get their `__eq__` by other means, and `dataclass` makes one for nothing.
            options["eq"] = "__eq__" not in vars(cls)
        return real(cls, **options)

    setattr(dataclasses, real.__name__, dataclass)
    try:
        yield
    finally:
        setattr(dataclasses, real.__name__, real)
