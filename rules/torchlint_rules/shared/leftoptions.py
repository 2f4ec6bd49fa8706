"""Options of a framework's trainer that cost something: a part of TL102, TL205, TL501 to TL802."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torchlint.api import Finding, Fix, Impact, Script


class LeftOption(NamedTuple):
    """An option that costs something in every step while it has one of some values.

    `lost` is what a script without it no longer has. Nothing is said where one of the options
    `beside` it is on. `instead` is the value that costs less, if one has to be passed.
    """

    name: str
    values: tuple[object, ...]
    frameworks: tuple[str, ...]
    costs: str
    lost: str
    impact: Impact
    beside: tuple[str, ...] = ()
    instead: str = ""


def left_options(script: Script, code: str, *options: LeftOption) -> Iterator[Finding]:
    """Yield a finding for each of some options that a training is given."""
    for option in options:
        for arguments in script.program.trainings.arguments(*option.frameworks):
            is_on = arguments.is_literal(option.name, *option.values)
            if not is_on or arguments.is_trial or not arguments.is_off(*option.beside):
                continue
            given, notes = arguments.given(option.name), arguments.notes(option.name)
            value, call, fix = option.instead, arguments.call, None
            cure = f"pass {value}" if value else "leave it out"
            if given is not None and not notes:
                title = f"Pass {option.name}={value}" if value else f"Leave `{option.name}` out"
                edits = script.edits.without_argument(call, given)
                if value:
                    edits = script.edits.set_argument(call, given, option.name, value)
                fix = Fix.unsafe(title, edits, because=option.lost)
            shown = f"`{option.name}`" if given is None else f"`{script.tree.brief(given)}`"
            message = f"{shown} {option.costs}: {cure}"
            span = script.span(given or call)
            yield Finding(code, span, message, fix, notes, impact=option.impact)
