"""Techniques for faster training, and how to recognize them in a script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import libcst as cst

from torchlint.audit.row import Basis, Line, Status
from torchlint.audit.survey import Survey


@dataclass(frozen=True, slots=True)
class Answer:
    """The state of a technique, with its line and reason."""

    status: Status
    why: str
    line: Line | None = None
    basis: Basis = Basis.CODE


Ask = Callable[[Survey], Answer | None]
"""A question about a script, answered with None to go on to the next."""
Fact = Callable[[Survey], object]
"""Something that is so of a script, or is not."""


def in_use(line: Line, why: str) -> Answer:
    """Return that a line of the script uses the technique."""
    return Answer(Status.IN_USE, why, line)


def used(survey: Survey, node: cst.CSTNode | None, more: str = "") -> Answer | None:
    """Return that the code of a node uses the technique, None where there is no such code."""
    if node is None:
        return None
    place = node.value if isinstance(node, cst.Arg) else node
    return in_use(survey.line(place), survey.quoted(node) + more)


def clean(line: Line, why: str) -> Answer:
    """Return that the technique is in use because no rule found the contrary."""
    return Answer(Status.IN_USE, why, line, Basis.NO_FINDING)


def missing(line: Line, why: str) -> Answer:
    """Return that the technique is missing at a line."""
    return Answer(Status.MISSING, why, line, Basis.NO_FINDING)


def not_applicable(why: str) -> Answer:
    """Return that the technique does not apply to the script."""
    return Answer(Status.NOT_APPLICABLE, why)


def cannot_tell(why: str) -> Answer:
    """Return that the file does not show it, and what is unknown."""
    return Answer(Status.CANNOT_TELL, why)


def elsewhere(why: str) -> Answer:
    """Return that what the technique is about is not in the file."""
    return Answer(Status.CANNOT_TELL, why, basis=Basis.ELSEWHERE)


_NOTHING: Final = elsewhere("nothing here shows it")


@dataclass(frozen=True)
class Technique:
    """One technique: its name, its sources, its rules, and questions that recognize it."""

    name: str
    articles: tuple[str, ...]
    asks: tuple[Ask, ...]
    """Questions asked in order where no rule finds anything; the first answer counts."""
    rules: tuple[str, ...] = ()
    gain: str = ""

    def answer(self, survey: Survey) -> Answer:
        """Return the answer of the script itself."""
        answers = (ask(survey) for ask in self.asks)
        return next((answer for answer in answers if answer is not None), _NOTHING)


def by_name(*plain: Fact, **others: Fact) -> dict[str, Any]:
    """Return questions and facts by the names under which `techniques.toml` has them."""
    return {each.__name__.removeprefix("_"): each for each in plain} | others
