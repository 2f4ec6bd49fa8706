"""The last line of a verification: what was gained, and what to type next."""

from __future__ import annotations

import shlex
from typing import Final

from torchlint.harness.judging.keeping import candidates, together
from torchlint.harness.judging.verdict import Outcome, Report, Verdict

_NUMBERS: Final = {"equal": "numbers equal bit for bit", "close": "numbers close"}
_LONGER: Final = 600
"""Seconds of a budget to advise where nothing was decided."""


def conclusion(report: Report) -> str:
    """Return one line about all fixes with the next command, empty where nothing was measured."""
    codes = {code for outcome in report.outcomes for code in outcome.variant.codes}
    if report.against is not None or not codes:
        return ""
    kept = candidates(report)
    if not kept:
        return _nothing_kept(report, len(codes))
    which = "" if len(kept) == len(codes) else f" ({', '.join(kept)})"
    count = f"{len(kept)} of {len(codes)} fixes kept{which}"
    gained = _gained(together(report, kept))
    said = ", ".join((count, *gained))
    return f"{said}: `{_command(report, '--apply')}` writes {'it' if len(kept) == 1 else 'them'}."


def _nothing_kept(report: Report, count: int) -> str:
    which = "The fix was not kept" if count == 1 else f"None of {count} fixes was kept"
    whole = (each for each in report.outcomes if each.variant.kind == "all")
    gained = _gained(next((each for each in whole if each.decision == "keep"), None))
    if gained:
        which = f"{which} alone ({gained[0]})"
    if any(outcome.verdict is Verdict.UNSURE for outcome in report.outcomes):
        command = _command(report, f"--budget {_LONGER}")
        return f"{which}, and not all was decided: `{command}` measures longer."
    return f"{which}: there is nothing to write."


def _gained(outcome: Outcome | None) -> list[str]:
    """Return what several fixes gained together, nothing where they were not measured so."""
    if outcome is None or outcome.speedup is None or outcome.comparison is None:
        return []
    together = "" if len(outcome.variant.codes) == 1 else " together"
    gain = f"{outcome.speedup.ratio:.1f}x as fast{together}"
    if outcome.work is not None:
        gain = f"{outcome.work.ratio:.1f}x less processor time{together}"
    numbers = _NUMBERS.get(outcome.comparison.word)
    return [gain, *([numbers] if numbers else [])]


def _command(report: Report, option: str) -> str:
    words = ["torchlint", "verify", *option.split(), report.script]
    return shlex.join([*words, *(["--", *report.args] if report.args else [])])
