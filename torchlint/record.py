"""Named tuples of which little is made before there is one.

A program that imports a hundred classes and uses ten waits mostly for the other ninety.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Record"]

if TYPE_CHECKING:
    from typing import NamedTuple as Record
else:
    from collections import _tuplegetter

    class _Maker(type):
        """Makes classes, none of which is of this type or has `Record` as its base."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = tuple(body.get("__annotations__", ()))
            if not fields:
                first = "`from __future__ import annotations` begins its module"
                raise TypeError(f"{name} has no fields; it has those that it annotates if {first}")
            own = {
                "__slots__": (),
                "__match_args__": fields,
                "_fields": fields,
                "_field_defaults": {field: body[field] for field in fields if field in body},
                **{field: _tuplegetter(at, "") for at, field in enumerate(fields)},
            }
            made = type(name, (tuple,), _METHODS | body | own)
            made.__new__ = _first(made)
            return made

    class Record(metaclass=_Maker):
        """What `typing.NamedTuple` is, made in a tenth of the time; fields are annotated."""

    def _first(made: type) -> staticmethod:
        """Give what makes the first one and finds out how to make the others."""

        def new(cls: type, /, *values: Any, **named: Any) -> Any:
            fields, defaults = made._fields, made._field_defaults
            given = "".join(f"{field}, " for field in fields)
            ready = eval(f"lambda _cls, {given}: _new(_cls, ({given}))", {"_new": tuple.__new__})
            ready.__name__ = "__new__"
            ready.__defaults__ = tuple(defaults.values())
            made.__new__ = staticmethod(ready)
            return ready(cls, *values, **named)

        return staticmethod(new)

    def _make(cls: type, values: Any) -> Any:
        return cls(*values)

    def _asdict(self: Any) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def _replace(self: Any, /, **named: Any) -> Any:
        made = type(self)(*map(named.pop, self._fields, self))
        if named:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(named)}")
        return made

    def _repr(self: Any) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
        return f"{type(self).__name__}({said})"

    def _given(self: Any) -> tuple[Any, ...]:
        """Give what a copy is made from."""
        return tuple(self)

    _METHODS = {
        "_make": classmethod(_make),
        "_asdict": _asdict,
        "_replace": _replace,
        "__repr__": _repr,
        "__getnewargs__": _given,
    }
