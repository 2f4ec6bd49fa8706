"""The last line of a verification: what was gained, and what to type next."""

from __future__ import annotations

from typing import Final

from torchlint.harness.judging.anatomy import Bound
from torchlint.harness.judging.verdict import Outcome, Report, Verdict, candidates, together
from torchlint.report.summary import plural

_NUMBERS: Final = {"equal": "numbers equal bit for bit", "close": "numbers close"}
_KILOWATT_HOUR: Final = 3.6e6
"""Joules of one."""
_FEWEST: Final = 0.01
"""Kilowatt hours below which joules are easier to read."""
_WORDS: Final = {
    "data": "bound by data: {:.0%} of a step is spent waiting for it; see TL1xx, `torchlint tune`",
    "copies": "bound by copies: the device copies from the host or to it for {:.0%} of a step; "
    "pinned memory and `non_blocking=True` (TL102) hide that, smaller types shorten it",
    "reads": "bound by syncs: the host waits for the device in each step, so it is never ahead; "
    "see TL2xx",
    "launches": "bound by launches: the device is done before the host launches more; fewer and "
    "larger kernels help (TL308, TL501), or a larger batch",
    "device": "bound by the device, which always has work: precision and kernels help (TL3xx)",
}


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
    return f"{said}: `{report.apply_command}` writes {'it' if len(kept) == 1 else 'them'}."


def _nothing_kept(report: Report, count: int) -> str:
    which = "The fix was not kept" if count == 1 else f"None of {count} fixes was kept"
    if any(outcome.verdict is Verdict.UNSURE for outcome in report.outcomes):
        return f"{which}, and not all was decided: `{report.longer_command}` measures longer."
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


def savings(report: Report) -> str:
    """Return a sentence on what an epoch and a training save, empty where that was not measured.

    A time that processor time decided is not one that anybody would wait less.
    """
    outcome = together(report, candidates(report))
    if outcome is None or outcome.work is not None or not report.epoch_steps or report.whole:
        return ""
    before, after = outcome.step_time.before, outcome.step_time.after
    if outcome.speedup is None or before is None or after is None or after >= before:
        return ""
    steps = report.epoch_steps
    saved = steps * (before - after)
    said = f"saves {_duration(saved)} of the {_duration(steps * before)} that {_steps(steps)} take"
    whole = _whole(report, outcome, saved)
    return f"{said}{f': {whole}' if whole else ''}"


def _whole(report: Report, outcome: Outcome, saved: float) -> str:
    """Return what all epochs save, or one of them where their number is unknown."""
    epochs = report.epochs or 1
    parts = []
    if report.epochs:
        parts.append(f"{_duration(saved * epochs)} of {plural(epochs, 'epoch')}")
    hours = saved * epochs / 3600
    if report.price is not None:
        each = "" if report.epochs else " an epoch"
        cost = hours * report.price * report.devices
        parts.append(f"{cost:.2f} ${each} at {report.price:.2f} $/h")
    energy = outcome.energy
    if energy.before is not None and energy.after is not None and energy.before > energy.after:
        joules = (energy.before - energy.after) * (report.epoch_steps or 0) * epochs
        parts.append(_energy(joules))
    return ", ".join(parts)


def _steps(steps: float) -> str:
    return f"the {plural(round(steps), 'training step')} of an epoch"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"


def _energy(joules: float) -> str:
    hours = joules / _KILOWATT_HOUR
    return f"{hours:.2g} kWh" if hours >= _FEWEST else f"{joules:.3g} J"


def bound_words(bound: Bound | None) -> tuple[str, ...]:
    """Return one line on what steps wait for, none where it is the processor or unknown."""
    words = _WORDS.get(bound.by) if bound is not None else None
    if bound is None or words is None:
        return ()
    said = words.format(bound.share or 0.0)
    if bound.reached is not None:
        said += f"; its products reach {bound.reached:.0%} of what a large one does"
    return (said,)
