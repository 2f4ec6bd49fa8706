"""LibCST without the checks that its classes make, for a process that is all our own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from torchlint.record import Record

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__all__ = ["expect_libcst"]

_LIBCST: Final = "libcst"
_NODES: Final = "libcst._nodes."
_WITHIN: Final = "libcst."
_MAKE: Final = "__init__"
_OF_INSTANCES: Final = frozenset({"__dict__", "__weakref__"})
_LATER: Final = (
    "libcst._parser.entrypoints",
    "libcst._parser.types.config",
    "libcst.helpers",
    "libcst.metadata",
    "libcst.metadata.base_provider",
    "libcst.metadata.wrapper",
)
"""What LibCST offers beside its nodes: torchlint has a parser and metadata of its own."""
_TYPED: Final = "libcst._typed_visitor"
"""A module of some thousand functions that do nothing, for visitors to have them."""


def expect_libcst() -> None:
    """Make the import of LibCST, where it comes to one, take less than a fifth of its time.

    Left out is what makes its nodes refuse assignments, a text form that LibCST replaces by its
    own, and what makes abstract classes refuse instances, which has every `isinstance` call Python
    code. Nothing is different for code that does neither. Parsers and metadata are imported when
    they are asked for, what makes a node when the first of its type is made, and what visitors
    inherit when somebody writes one. The classes belong
    to the whole process: only the program calls this, no function of the Python API.
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
        with ExitStack() as less:
            for each in (_plain_abstract_classes, _assignable_nodes, _parts_for_later):
                less.enter_context(each())
            execute(module)
        _import_when_asked(module)

    return lean


class _Base:
    """Stands for `abc.ABC`, which classes of LibCST do without."""

    def __init__(self, real: type) -> None:
        self.real = real

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        module = str(sys._getframe(1).f_globals["__name__"])
        return () if module.startswith(_WITHIN) else (self.real,)


@contextmanager
def _plain_abstract_classes() -> Iterator[None]:
    """Make abstract classes of nodes of the type of all others."""
    import abc

    real = abc.ABC
    setattr(abc, real.__name__, _Base(real))
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
        return (_node if cls.__module__.startswith(_NODES) else real)(cls, **options)

    def _node(cls: Any, **options: Any) -> Any:
        # Most nodes get their `__eq__` by other means, and `dataclass` makes one for nothing.
        options |= {"frozen": False, "repr": False, "eq": "__eq__" not in vars(cls)}
        if cls.__name__ == "CSTNode":
            # All nodes take these over; LibCST's own say the same in Python code.
            cls.__eq__, cls.__hash__ = object.__eq__, object.__hash__
        cls.__doc__ = cls.__doc__ or cls.__name__  # else `dataclass` makes one of the signature
        written = {name: each for name, each in vars(cls).items() if name not in _OF_INSTANCES}

        def make(self: Any, *args: Any, **fields: Any) -> None:
            kind: Any = next(each for each in type(self).mro() if vars(each).get(_MAKE) is make)
            kind.__init__ = real(type(cls.__name__, cls.__bases__, written), **options).__init__
            kind.__init__(self, *args, **fields)

        if _MAKE in written:
            return real(cls, **options)
        made = real(cls, **options, init=False)
        made.__init__ = make
        return made

    setattr(dataclasses, real.__name__, dataclass)
    try:
        yield
    finally:
        setattr(dataclasses, real.__name__, real)


class _Thing(Record):
    """Something that a module has which was not imported yet."""

    module: str
    name: str


class _Later(ModuleType):
    """Stands for a module."""

    __path__: Any = ()

    def __getattr__(self, name: str) -> _Thing:
        return _Thing(self.__name__, name)


@contextmanager
def _parts_for_later() -> Iterator[None]:
    """Have LibCST take what it passes on from modules that are not imported."""
    typed = ModuleType(_TYPED)
    bases = [
        _inherited(name) for name in ("CSTTypedVisitorFunctions", "CSTTypedTransformerFunctions")
    ]
    vars(typed).update({base.__name__: base for base in bases})
    sys.modules |= {name: _Later(name) for name in _LATER} | {_TYPED: typed}
    try:
        yield
    finally:
        for name in (*_LATER, _TYPED):
            sys.modules.pop(name, None)
        for base in bases:
            base.__init_subclass__ = classmethod(partial(_fill, base))


def _inherited(name: str) -> Any:
    """Give a class that stands for one of the functions that visitors inherit."""
    return type(name, (), {})


def _fill(base: Any, cls: type, **_: Any) -> None:
    """Give a class, when somebody writes the first visitor, the functions that it stands for."""
    from importlib import import_module

    del base.__init_subclass__
    whole = getattr(import_module(_TYPED), base.__name__)
    for each in reversed(whole.mro()[:-1]):
        for name, function in vars(each).items():
            if not name.startswith("__"):
                setattr(base, name, function)


def _import_when_asked(module: ModuleType) -> None:
    """Have a module import what it passes on when somebody asks for it."""
    later = {name: thing for name, thing in vars(module).items() if isinstance(thing, _Thing)}

    def find(name: str) -> Any:
        from importlib import import_module

        part = f"{module.__name__}.{name}"
        if part in _LATER:
            return import_module(part)
        if name not in later:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        found = getattr(import_module(later[name].module), later[name].name)
        setattr(module, name, found)
        return found

    for name in later:
        delattr(module, name)
    setattr(module, "__getattr__", find)  # noqa: B010
