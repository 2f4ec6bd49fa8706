"""What every part of a script is written with: the draws, and what the parts must agree on."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TypeVar

from hypothesis import strategies as st

__all__ = ["Feed", "Setup", "Task", "Writer", "inner"]

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """What is learned from what: `form` is rows, images or tokens; 0 classes is a regression."""

    form: str
    classes: int
    items: int = 22
    batch: int = 8


@dataclass(frozen=True)
class Feed:
    """How batches come: the head of their loop, and what it does first.

    `before` stands before that loop in every epoch; `steps` is the number of batches, and `index`
    that of a batch, where the loop counts them.
    """

    head: str
    first: str
    before: str = ""
    steps: str = "len(loader)"
    index: str = ""

    def renamed(self, loader: str) -> Feed:
        """Return the same batches from a loader with another name, if they have a loader."""
        if "loader" not in self.before:
            return self
        return Feed(*(part.replace("loader", loader) for part in astuple(self)))


@dataclass(frozen=True)
class Setup:
    """What the loops must know of what stands before them.

    `rebuilt` is the line that makes the loss anew in every step, if any; `averaged` says that there
    is a second network, which follows the first one.
    """

    scheduler: str
    rebuilt: str
    averaged: bool


@dataclass(frozen=True)
class Writer:
    """Draws how things are written; `focus` is the rule whose pattern the script must hold.

    `close` scripts are for fixes that round differently: they stay out of mixed precision.
    """

    draw: st.DrawFn
    focus: str
    close: bool

    def pick(self, *options: tuple[T, str]) -> T:
        """Draw one of some ways, each with the codes it is for: one for the focus if any is."""
        wanted = [value for value, codes in options if self.focus in codes.split()]
        return self.draw(st.sampled_from(wanted or [value for value, _ in options]))

    def some(self, *options: tuple[T, str]) -> list[T]:
        """Draw any number of these, in their order; what the focus needs is among them."""
        return [
            value
            for value, codes in options
            if self.focus in codes.split() or self.draw(st.booleans())
        ]

    def maybe(self, value: str, codes: str = "", never: str = "") -> str:
        """Draw whether to write something: not for a focus whose pattern it would spoil."""
        return self.pick(("", never), (value, codes))


def inner(lines: Sequence[str], depth: int = 1) -> str:
    """Indent lines, of which some may be several and some none."""
    text = "\n".join(line.rstrip("\n") for line in lines if line)
    return textwrap.indent(text, "    " * depth)
