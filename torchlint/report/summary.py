"""The last line: the number of findings and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from torchlint.report.text import printable

if TYPE_CHECKING:
    from torchlint.report.paint import Paint
    from torchlint.report.report import Report, Tally

_BELOW: Final = "\n  "
_MOST_WORTH: Final = 3


def plural(count: int, noun: str) -> str:
    """Return `1 finding`, `2 findings`, `2 fixes`."""
    ending = "" if count == 1 else "es" if noun.endswith("x") else "s"
    return f"{count} {noun}{ending}"


def summary(report: Report, paint: Paint) -> Iterator[str]:
    """Return the last line of a text report, empty where a run failed or had no files."""
    if report.quiet:
        return
    tally = report.tally
    hidden = "".join(f"{each}.\n" for each in report.hidden)
    if tally.folded:
        low = f"{tally.folded} of low impact hidden: `--show-low` prints them"
        hidden = f"{low}.\n{hidden}"
    if tally.found:
        found, advice = f"Found {plural(tally.found, 'finding')}", f"{_next(tally)}."
        fits = paint.width is None or len(f"{found}: {advice}") <= paint.width
        first = f"{paint.strong(found)}:{' ' if fits else _BELOW}{advice}\n"
        yield f"{first}{hidden}{_ranking(tally, paint)}"
    elif hidden:
        yield hidden
    elif report.files and not report.failed:
        unfinished = len({each.path for each in report.unfinished})
        but = f", {unfinished} of them not checked in full" if unfinished else ""
        yield f"{paint.help('Nothing found')} in {plural(report.files, 'file')}{but}.\n"


def _next(tally: Tally) -> str:
    fixable, more = tally.fixable, tally.withheld
    if tally.unsafe or not fixable:
        apply = "`torchlint fix --apply --unsafe-fixes`"
    else:
        apply = "`torchlint fix --apply`"
    if fixable and more:
        return f"{fixable} fixable with {apply}, {more} more with `--unsafe-fixes`"
    if fixable or more:
        return f"{fixable or more} fixable with {apply}"
    return "no automatic fix, the messages say what to do"


def ranked(tally: Tally) -> str:
    """Return the rules that are most worth fixing, empty for findings of one rule."""
    if len(tally.worth) < 2:
        return ""
    best = sorted(tally.worth, key=lambda code: (-tally.worth[code].ratio, code))[:_MOST_WORTH]
    figures = ((code, tally.worth[code].figure) for code in best)
    return ", ".join(f"{code} ({said})" if said else code for code, said in figures)


def _ranking(tally: Tally, paint: Paint) -> str:
    """Return the line that names what is most worth fixing."""
    named = ranked(tally)
    if not named:
        return ""
    first = f"{paint.strong('Most worth')}: {named}."
    if not (tally.fixable or tally.withheld):
        return f"{first}\n"
    path = tally.script
    script = "SCRIPT" if path is None or path == "-" else shlex.quote(printable(path))
    proof = f"`torchlint verify {script}` proves it."
    fits = paint.width is None or len(f"Most worth: {named}. {proof}") <= paint.width
    return f"{first}{' ' if fits else _BELOW}{proof}\n"
