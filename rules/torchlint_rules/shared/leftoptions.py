"""Options of a framework's trainer that were left on: a part of TL205, TL207, TL705 to TL802."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torchlint.api import Finding, Fix, Impact, Script


class LeftOption(NamedTuple):
    """An option that costs something in every step while it has one of some values.

    `lost` is what a script without it no longer has.
    """

    name: str
    values: tuple[object, ...]
    frameworks: tuple[str, ...]
    costs: str
    lost: str
    impact: Impact


def left_options(script: Script, code: str, *options: LeftOption) -> Iterator[Finding]:
    """Yield a finding for each of some options that a training is given."""
    for option in options:
        for arguments in script.program.trainings.arguments(*option.frameworks):
            if not arguments.is_literal(option.name, *option.values) or arguments.is_trial:
                continue
            given, notes = arguments.given(option.name), arguments.notes(option.name)
            fix = None
            if given is not None and not notes:
                edits = script.edits.without_argument(arguments.call, given)
                fix = Fix.unsafe(f"Leave `{option.name}` out", edits, because=option.lost)
            shown = f"`{option.name}`" if given is None else f"`{script.tree.brief(given)}`"
            message = f"{shown} {option.costs}: leave it out"
            span = script.span(given or arguments.call)
            yield Finding(code, span, message, fix, notes, impact=option.impact)
