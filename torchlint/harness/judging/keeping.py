"""Which fixes to keep, each alone and all together."""

from __future__ import annotations

from torchlint.harness.judging.verdict import Outcome, Report, Verdict


def candidates(report: Report) -> tuple[str, ...]:
    """Return the rules whose fixes were kept alone.

    For those not measured alone, the result of all fixes together counts.
    """
    alone = {outcome.variant.codes: outcome for outcome in report.outcomes if _is_alone(outcome)}
    kept = {codes[0] for codes, outcome in alone.items() if outcome.decision == "keep"}
    for outcome in report.outcomes:
        if outcome.variant.kind == "all" and outcome.decision == "keep":
            kept |= {code for code in outcome.variant.codes if (code,) not in alone}
    return tuple(sorted(kept))


def together(report: Report, codes: tuple[str, ...]) -> Outcome | None:
    """Return the outcome of exactly these rules' fixes, None where they were not measured."""
    return next((found for found in report.outcomes if found.variant.codes == codes), None)


def kept_together(report: Report) -> tuple[str, ...]:
    """Return the rules whose fixes may be written: kept alone, sound and not slower together."""
    codes = candidates(report)
    outcome = together(report, codes)
    if outcome is None or outcome.verdict in (Verdict.SLOWER, Verdict.DIFFERENT):
        return ()
    return codes if outcome.comparison is not None and outcome.comparison.kept else ()


def _is_alone(outcome: Outcome) -> bool:
    return len(outcome.variant.codes) == 1
