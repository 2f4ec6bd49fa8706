"""A record is a named tuple: whatever is asked of one, `typing.NamedTuple` answers the same."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from torchlint.record import Record


class Mine(Record):
    """A loader and how it reads."""

    name: str
    workers: int | None
    pinned: bool = False

    @property
    def words(self) -> str:
        """Name and number."""
        return f"{self.name}: {self.workers}"


class Theirs(NamedTuple):
    """A loader and how it reads."""

    name: str
    workers: int | None
    pinned: bool = False

    @property
    def words(self) -> str:
        """Name and number."""
        return f"{self.name}: {self.workers}"


ASKED: dict[str, Callable[[Any], object]] = {
    "made by place": lambda kind: tuple(kind("a", 1, True)),
    "made by name": lambda kind: tuple(kind(workers=1, name="a")),
    "one too few": lambda kind: kind("a"),
    "one too many": lambda kind: kind("a", 1, True, 2),
    "an unknown name": lambda kind: kind("a", 1, depth=2),
    "its text": lambda kind: repr(kind("a", None)).partition("(")[2],
    "what it is equal to": lambda kind: kind("a", 1) == ("a", 1, False),
    "its hash": lambda kind: hash(kind("a", 1)),
    "its order": lambda kind: sorted([kind("b", 1), kind("a", 2)])[0].name,
    "its fields": lambda kind: (kind._fields, kind._field_defaults, kind.__match_args__),
    "as a dictionary": lambda kind: kind("a", 1)._asdict(),
    "from an iterable": lambda kind: tuple(kind._make(["a", 1, True])),
    "replaced": lambda kind: tuple(kind("a", 1)._replace(workers=4)),
    "replaced by an unknown name": lambda kind: kind("a", 1)._replace(depth=4),
    "a property": lambda kind: kind("a", 1).words,
    "a new attribute": lambda kind: setattr(kind("a", 1), "depth", 2),
    "another value": lambda kind: setattr(kind("a", 1), "name", "b"),
    "its bases": lambda kind: (
        kind.__bases__,
        type(kind),
        kind.__doc__,
        list(kind.__annotations__),
    ),
    "a copy": lambda kind: copy.deepcopy(kind("a", 1)) == kind("a", 1),
    "pickled": lambda kind: tuple(pickle.loads(pickle.dumps(kind("a", 1)))),
    "the type of what is pickled": lambda kind: (
        type(pickle.loads(pickle.dumps(kind("a", 1), 2))) is kind
    ),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_it_answers_as_a_named_tuple_does(asked: Callable[[Any], object]) -> None:
    assert _answer(asked, Mine) == _answer(asked, Theirs)


def _answer(asked: Callable[[Any], object], kind: type) -> object:
    try:
        return asked(kind)
    except (TypeError, AttributeError, ValueError) as error:
        return isinstance(error, AttributeError)


def test_one_without_fields_is_refused() -> None:
    with pytest.raises(TypeError, match="Empty has no fields; it has those that it annotates if"):

        class Empty(Record):
            """Nothing."""


def test_what_a_class_says_of_itself_holds() -> None:
    class Quiet(Record):
        """One that is not printed."""

        name: str

        def __repr__(self) -> str:
            return "quiet"

    assert repr(Quiet("a")) == "quiet"


def test_a_class_of_ones_own_can_be_built_on_one() -> None:
    class Checked(Mine):
        __slots__ = ()

        def __new__(cls, name: str, workers: int) -> Checked:
            return super().__new__(cls, name.strip(), workers)

    assert Checked(" a ", 2).words == "a: 2"
