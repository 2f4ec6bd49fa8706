"""Techniques: what a script may do to train faster, and how to see whether it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from torchlint.audit.line import Line
from torchlint.audit.row import State
from torchlint.audit.survey import Survey

__all__ = ["Answer", "Ask", "Technique", "cannot_tell", "in_use", "missing", "not_applicable"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a look at a script says of a technique."""

    state: State
    why: str
    line: Line | None = None


Ask = Callable[[Survey], Answer | None]
"""A question to a script; None where it has nothing to say."""


def in_use(line: Line, why: str) -> Answer:
    """Say that a line of the script does it."""
    return Answer(State.IN_USE, why, line)


def missing(line: Line, why: str) -> Answer:
    """Say that it would have to be done at a line."""
    return Answer(State.MISSING, why, line)


def not_applicable(why: str) -> Answer:
    """Say that it has no place in the script."""
    return Answer(State.NOT_APPLICABLE, why)


def cannot_tell(why: str) -> Answer:
    """Say what the file does not show."""
    return Answer(State.CANNOT_TELL, why)


_NOTHING: Final = cannot_tell("nothing in this file shows it")


@dataclass(frozen=True)
class Technique:
    """One technique: its name, who describes it, which rules demand it, how to see it in use."""

    name: str
    articles: tuple[str, ...]
    asks: tuple[Ask, ...]
    """Asked in order where no rule finds anything; the first that answers has the say."""
    rules: tuple[str, ...] = ()
    gain: str = ""

    def answer(self, survey: Survey) -> Answer:
        """Say what the script itself shows of the technique."""
        answers = (ask(survey) for ask in self.asks)
        return next((answer for answer in answers if answer is not None), _NOTHING)
