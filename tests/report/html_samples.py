"""Verifications that never ran, for the page that shows them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

from torchlint.finding import Safety
from torchlint.harness.judging.anatomy import Step, usual_step
from torchlint.harness.judging.doubt import Doubt
from torchlint.harness.judging.promise import Comparison, Word
from torchlint.harness.judging.statistics import Interval, Speedup
from torchlint.harness.judging.verdict import Change, Curves, Outcome, Report, Verdict
from torchlint.harness.plan import Variant
from torchlint.harness.trace import Phase, PhaseName, SyncSite, Trace

__all__ = ["curves", "outcome", "report", "step"]

_SHARES: tuple[tuple[PhaseName, float], ...] = (
    ("data", 0.5),
    ("forward", 0.15),
    ("backward", 0.2),
    ("optimizer", 0.1),
)


def step(seconds: float) -> Step | None:
    """Return a step of the four phases with a pause after each."""
    phases = []
    at = 0.0
    for name, share in _SHARES:
        phases.append(Phase(name, at, at + share * seconds))
        at += (share + 0.0125) * seconds
    return usual_step(Trace("full", durations=(seconds,), phases=tuple(phases)))


def curves(seconds: float, seed: int = 0, losses: int = 60) -> Curves:
    """Return three rounds of two runs of fifty steps each, and losses that fall."""
    draw = random.Random(seed)
    times = tuple(
        tuple(
            tuple(seconds * draw.gauss(1, 0.05) * (6 if at == 20 else 1) for at in range(50))
            for _ in range(2)
        )
        for _ in range(3)
    )
    values = tuple(2.3 / (1 + at / 10) + draw.gauss(0, 0.03) for at in range(losses))
    return Curves(times, values, tuple(range(losses)), step=step(seconds))


def outcome(
    kind: Literal["rule", "all", "kept"],
    codes: tuple[str, ...],
    verdict: Verdict,
    texts: dict[str, str],
    ratio: float = 1.8,
) -> Outcome:
    """Return what was found out about one variant."""
    speedup = Speedup(ratio, ratio - 0.1, ratio + 0.1)
    wrong = verdict is Verdict.DIFFERENT
    word: Word = "close" if wrong else "equal"
    after = curves(0.018 / ratio, losses=60)
    return Outcome(
        Variant(kind, codes, Safety.EXACT, texts),
        verdict,
        Comparison(word, not wrong, 60, 8, differs_at=3 if wrong else None),
        None if wrong else speedup,
        step_time=Change(0.018, 0.018 / ratio),
        syncs=Change(2.0, 0.0),
        sync_sites=(SyncSite("train.py", 12, ".item()", 20),),
        wait_share=Change(0.5, 0.1),
        host_memory=Change(1 << 28, 1 << 29),
        warnings=("UserWarning: something else",) if wrong else (),
        doubts=(Doubt.wide_interval(12),) if verdict is Verdict.UNSURE else (),
        before=curves(0.018),
        after=Curves((), after.losses[:40], after.loss_steps[:40]) if wrong else after,
    )


def report(script: Path, outcomes: tuple[Outcome, ...]) -> Report:
    """Return a verification of the outcomes."""
    return Report(
        script=str(script),
        args=("--lr", "1"),
        device="cpu",
        torch="2.13.0",
        seed=0,
        steps=50,
        warmup=10,
        rounds=3,
        noise=Interval(0.98, 1.02),
        outcomes=outcomes,
    )
