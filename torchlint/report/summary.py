"""The last line: how much was found and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torchlint.report.paint import Paint
    from torchlint.report.report import Report

__all__ = ["plural", "summary"]

_BELOW: Final = "\n  "


def plural(count: int, noun: str) -> str:
    """Give `1 finding`, `2 findings`, `2 fixes`."""
    ending = "" if count == 1 else "es" if noun.endswith("x") else "s"
    return f"{count} {noun}{ending}"


def summary(report: Report, paint: Paint) -> Iterator[str]:
    """Give the last line of a text report, none where a run failed or had no files."""
    count = len(report.entries)
    if report.quiet:
        return
    hidden = "".join(f"{each}.\n" for each in report.hidden)
    if count:
        found, advice = f"Found {plural(count, 'finding')}", f"{_next(report)}."
        fits = paint.width is None or len(f"{found}: {advice}") <= paint.width
        yield f"{paint.strong(found)}:{' ' if fits else _BELOW}{advice}\n{hidden}"
    elif hidden:
        yield hidden
    elif report.files and not report.failed:
        yield f"{paint.help('Nothing found')} in {plural(report.files, 'file')}.\n"


def _next(report: Report) -> str:
    from torchlint.finding import Safety

    fixable = [entry.fix for entry in report.entries if entry.fix and entry.fixable]
    more = sum(entry.withheld for entry in report.entries)
    unsafe = any(fix.safety is Safety.UNSAFE for fix in fixable)
    if unsafe or not fixable:
        apply = "`torchlint fix --apply --unsafe-fixes`"
    else:
        apply = "`torchlint fix --apply`"
    if fixable and more:
        return f"{len(fixable)} fixable with {apply}, {more} more with `--unsafe-fixes`"
    if fixable or more:
        return f"{len(fixable) or more} fixable with {apply}"
    return "no automatic fix, the messages say what to do"
