"""Methods that keep their answers, as `functools.cached_property` keeps that of a property."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


class cached_method(Generic[P, T]):  # noqa: N801 - used like `cached_property`
    """A method whose answer for each combination of arguments is kept as long as its object."""

    def __init__(self, find: Callable[Concatenate[Any, P], T]) -> None:
        self.find = find
        self.__doc__ = find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, asked: Any, owner: type) -> Callable[P, T]:
        """Return the cache of an object, which later uses find in the object itself."""
        if asked is None:
            return cast("Callable[P, T]", self)
        kept = vars(asked)[self.name] = cache(MethodType(self.find, asked))
        return cast("Callable[P, T]", kept)
