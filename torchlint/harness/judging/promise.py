"""Whether a fix kept the promise of its class, by losses and parameters."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Final, Literal

from torchlint.finding import Safety
from torchlint.harness.judging.doubt import NOTHING_TO_COMPARE, SCATTERED_SEEDS, Doubt
from torchlint.harness.trace import Trace

Word = Literal["equal", "close", "different", "not-compared"]

Method = Literal["as-is", "nudged", "repeated", "aligned", "led", "seeds", "output", "ranks"]
"""How numbers were compared.

`as-is`: plain runs. `nudged`: against the drift that rounding alone causes. `repeated`: against
how far several runs of the original lie apart. `aligned`: both on the
weights, batches and seeds of the original. `led`: so, and against the drift that rounding alone
causes. `seeds`: loss curves over several seeds. `output`: what
was printed. `ranks`: the processes of the fixed script with each other.
"""

RTOL: Final = 1e-5
ATOL: Final = 1e-7
EARLY: Final = 10
"""Steps in which rounding has not yet had time to grow."""
GROWTH: Final = 100
"""The factor by which rounding may have grown later."""
FARTHER: Final = 10
"""The most that a fix may drift, as a multiple of the drift of the nudged original."""
FARTHER_COARSE: Final = 4
"""The same where results of operators were rounded, too, as in a precision below float32."""
ROUNDINGS: Final = {"bfloat16": 2**-8, "float16": 2**-11, "tf32": 2**-11}
"""One rounding of a result in each precision below float32, relative to it."""
MOST_REACH: Final = {FARTHER: 1e-2, FARTHER_COARSE: 5e-2}
"""The drift of losses up to which a comparison says something."""
APART: Final = 1e-2
"""The most that final parameters may differ, relative to their norm.

A gradient that is pure rounding, such as that of a bias before batch norm, becomes steps in Adam.
"""
_OPERATOR: Final = re.compile(r"(\S+) does not have a deterministic implementation")
COARSE: Final = 1e-2
"""The most that first losses may differ for a fix that lowers precision."""
DRIFT: Final = 0.05
"""The most that the first step may move weights apart where first losses are equal."""
COARSE_DRIFT: Final = 0.5
"""The same where the first losses differ by more."""
SEEDS: Final = 4
"""The number of seeds for each side."""

_PARTS: Final = 3
"""Parts of the window whose mean losses are compared."""
_FAR: Final = (5.96, 12.9)
"""Standard errors by which equal sides of four seeds differ once in a thousand comparisons.

The first is for all runs, the second for differences between runs of one seed, which are sharper
where both sides begin with the same weights. They are quantiles of Student's t for six and for
three degrees of freedom.
"""
_SURE: Final = (2.97, 4.18)
"""Standard errors that cover the difference in 97.5 of 100 cases, by both measures."""
_ALIKE: Final = 0.1
"""The difference that equal curves may have, as a share of the total decrease of the loss.

With a share of the loss itself, any training that changes little within the window would pass.
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The numbers of the fixed script compared with the original's."""

    word: Word
    kept: bool | None
    """Whether the numbers are as good as promised, None where that is unknown."""
    losses: int
    parameters: int
    differs_at: int | None = None
    """The first step whose loss is not bit for bit the original's."""
    doubt: Doubt | None = None
    method: Method = "as-is"
    note: str = ""
    """Why no better method could be used."""
    precision: str = "float32"
    """The coarsest precision in which the original computed."""

    @property
    def thin(self) -> bool:
        """Whether numbers that are not equal count as good after the first few losses."""
        return self.word == "close" and bool(self.kept) and self.losses < EARLY

    @property
    def tolerance(self) -> str:
        """The tolerance that was applied, in words."""
        if self.method == "seeds":
            return "mean losses within a tenth of their total decrease, seed variation included"
        if self.method in ("nudged", "led"):
            times, rounding = _farther(self.precision), _rounding(self.precision)
            whose = "the original" if self.method == "nudged" else "the fixed script"
            return f"within {times} times the drift of {whose} under {rounding}"
        if self.method == "repeated" and self.word != "equal":
            return f"within {FARTHER} times the distance between runs of the original"
        if self.method == "aligned" and self.word != "equal":
            return (
                f"early losses within {COARSE:.0%}, the first step within {DRIFT:.0%}; "
                f"{5 * COARSE:.0%} and {COARSE_DRIFT:.0%} where precision is lower"
            )
        return (
            f"losses within {RTOL:g} relative and {ATOL:g} absolute, {GROWTH} times that after "
            f"{EARLY} steps; parameters within {APART:.0%} of their norm"
        )


def compare(original: Trace, again: Trace, fixed: Trace, safety: Safety) -> Comparison:
    """Compare a fixed run with the original, given a second run that shows its repeatability."""
    own = _word(original, again)
    word = _word(original, fixed)
    losses = len(fixed.losses)
    parameters = fixed.parameters.count if fixed.parameters else 0
    differs_at = _first_difference(original, fixed)
    if own != "equal" and (safety != Safety.CLOSE or own != "close"):
        doubt = _stray(original, again)
        return Comparison("not-compared", None, losses, parameters, differs_at, doubt)
    kept: bool | None = word == "equal"
    if safety != Safety.EXACT:
        kept = word in ("equal", "close")
    if safety == Safety.UNSAFE and not kept:
        kept = None
    if word == "not-compared" and kept is False:
        word = "different"
    return Comparison(word, kept, losses, parameters, differs_at)


def compare_nudged(original: Trace, nudged: Trace, fixed: Trace) -> Comparison | None:
    """Compare with the drift of the nudged original; None where that is inconclusive.

    It is inconclusive where even the first losses after a step differ too much.
    """
    precision = nudged.precision
    rounding = ROUNDINGS.get(precision, RTOL)
    kept = _within(original, [nudged], fixed, _farther(precision), rounding)
    if kept is None:
        return None
    return _drifted(original, fixed, kept, "nudged", precision)


def compare_repeated(
    originals: Sequence[Trace], fixed: Sequence[Trace], plain: Comparison
) -> Comparison:
    """Compare several runs of both sides, where single ones differ; `plain` compares these.

    Equal runs on both sides are enough. Otherwise the original's runs show how far kernels
    lead astray that add up in another order each time.
    """
    first = originals[0]
    if any(_same(before, after) for before in originals for after in fixed):
        word: Word = "equal"
        return replace(plain, word=word, kept=True, differs_at=None, doubt=None, method="repeated")
    strays = [other for other in originals[1:] if not _same(first, other)]
    restless = [other for other in fixed[1:] if not _same(fixed[0], other)]
    if not strays:
        if not restless or _within(fixed[0], restless, first, FARTHER) is False:
            return plain
        doubt = Doubt.fixed_not_repeatable(_first_difference(fixed[0], restless[0]))
        return replace(plain, word="not-compared", kept=None, doubt=doubt)
    found = [_within(first, strays, other, FARTHER) for other in fixed]
    if None in found:
        return replace(plain, word="not-compared", kept=None, doubt=_stray(first, strays[0]))
    return _drifted(first, fixed[0], any(found), "repeated", first.precision)


def _same(first: Trace, other: Trace) -> bool:
    """Return whether two runs have equal losses, and final parameters as far from the first's."""
    return _first_difference(first, other) is None and first.parameters == other.parameters


def _drifted(
    original: Trace, fixed: Trace, kept: bool, method: Method, precision: str
) -> Comparison:
    return Comparison(
        "close" if kept else "different",
        kept,
        len(fixed.losses),
        fixed.parameters.count if fixed.parameters else 0,
        _first_difference(original, fixed),
        method=method,
        precision=precision,
    )


def _within(
    original: Trace, strays: Sequence[Trace], fixed: Trace, farther: int, rounding: float = RTOL
) -> bool | None:
    """Return whether a fix stays near the original, compared with how far other runs stray.

    None where they stray too far to tell. A single loss may be off by one `rounding` however
    near the others came to it, which is chance.
    """
    moved_to, led_to = fixed.parameters, [stray.parameters for stray in strays]
    if moved_to is None or None in led_to:
        return None
    kept = _losses_within(original, strays, fixed, farther, rounding)
    apart = max(it.distance for it in led_to if it is not None)
    near = moved_to.shapes and moved_to.distance <= max(APART, farther * apart)
    return kept and near


def _losses_within(
    original: Trace, strays: Sequence[Trace], fixed: Trace, farther: int, rounding: float
) -> bool | None:
    """Return whether losses stay near the original's, None where strays are soon too far off.

    Losses that differ by more before the first step are no drift.
    """
    count = len(original.losses)
    if any(len(it.losses) != count for it in strays):
        return None
    reach, told, kept = 0.0, False, len(fixed.losses) == count
    for at, (before, after, step) in enumerate(
        zip(original.losses, fixed.losses, original.loss_steps, strict=False)
    ):
        reach = max(reach, *(farther * _apart(before, stray.losses[at]) for stray in strays))
        if reach > MOST_REACH[farther]:
            break
        told = told or step > 0
        least = max(rounding, RTOL * (1 if step < EARLY else GROWTH))
        kept = kept and _apart(before, after) <= max(reach, least)
    return kept if told or not kept else None


def _farther(precision: str) -> int:
    return FARTHER if precision == "float32" else FARTHER_COARSE


def _rounding(precision: str) -> str:
    if precision == "float32":
        return "one rounding per step"
    return f"one rounding in {precision} per operator"


def _stray(original: Trace, again: Trace) -> Doubt:
    return Doubt.not_repeatable(_first_difference(original, again), _operators(original))


def _operators(trace: Trace) -> tuple[str, ...]:
    """Return the operators of a run that have no deterministic kernel, as torch warned."""
    found = (_OPERATOR.search(text) for text in trace.warnings)
    return tuple(dict.fromkeys(match[1] for match in found if match))


def compare_aligned(
    original: Trace, again: Trace, fixed: Trace, safety: Safety
) -> Comparison | str:
    """Compare runs on the original's weights, batches and seeds, or return why that fails.

    It fails where two replays of the original differ, and where an unsafe fix changes the very
    first losses, since it may draw other random numbers.
    """
    for trace in (original, again, fixed):
        if trace.misaligned:
            return trace.misaligned
        if trace.ending == "failed" or not trace.taken:
            return "the script fails"
    own = _word(original, again)
    word = _word(original, fixed)
    if own != "equal" and (own != "close" or safety == Safety.EXACT):
        return "two runs of the original still differ"
    if safety == Safety.EXACT:
        kept = word == "equal"
    elif word in ("equal", "close") or safety == Safety.CLOSE:
        kept = word in ("equal", "close")
    else:
        first = _first_distance(original, fixed)
        if first > COARSE:
            return "the very first loss differs: the fixed script draws or computes differently"
        coarse = first > RTOL
        kept = _updates(fixed) <= (COARSE_DRIFT if coarse else DRIFT) and _follows(
            original, fixed, (5 if coarse else 1) * COARSE
        )
        word = "close" if kept else "different"
    return Comparison(
        word,
        kept,
        len(fixed.losses),
        fixed.parameters.count if fixed.parameters else 0,
        _first_difference(original, fixed),
        method="aligned",
    )


def starts_alike(original: Trace, fixed: Trace) -> bool:
    """Return whether aligned runs are so near at first that rounding may lead them apart."""
    coarse = _first_distance(original, fixed) > RTOL
    return _updates(fixed) <= (COARSE_DRIFT if coarse else DRIFT)


def compare_led(original: Trace, fixed: Trace, nudged: Trace) -> Comparison | None:
    """Compare aligned runs with the drift of the nudged fixed run; None where it is too far.

    The fixed run is nudged, since a fix may lower the precision.
    """
    precision = nudged.precision
    rounding = ROUNDINGS.get(precision, RTOL)
    kept = _losses_within(fixed, [nudged], original, _farther(precision), rounding)
    return None if kept is None else _drifted(original, fixed, kept, "led", precision)


def compare_seeds(original: Sequence[Trace], fixed: Sequence[Trace]) -> Comparison:
    """Compare the loss curves of several seeds."""
    word = compare_curves(original, fixed)
    losses = sum(len(trace.losses) for trace in fixed)
    if word == "not-compared":
        doubt = SCATTERED_SEEDS
        return Comparison(word, None, losses, 0, doubt=doubt, method="seeds")
    return Comparison(word, word == "close", losses, 0, method="seeds")


def compare_output(original: Trace, again: Trace, fixed: Trace) -> Comparison:
    """Compare the printed output of a script without losses."""
    if not original.output or original.output != again.output:
        return Comparison("not-compared", None, 0, 0, doubt=NOTHING_TO_COMPARE)
    word: Word = "equal" if fixed.output == original.output else "different"
    return Comparison(word, word == "equal", 0, 0, method="output")


def _first_distance(original: Trace, other: Trace) -> float:
    """Return the relative distance of the losses before the first step."""
    pairs = [
        (before, after)
        for before, after, step in zip(
            original.losses, other.losses, original.loss_steps, strict=False
        )
        if step == 0
    ]
    return max((_apart(before, after) for before, after in pairs), default=math.inf)


def _apart(before: float, after: float) -> float:
    """Return the relative distance of two losses."""
    if before == after or (math.isnan(before) and math.isnan(after)):
        return 0.0
    apart = abs(before - after) / max(abs(before), ATOL)
    return math.inf if math.isnan(apart) else apart


def _follows(original: Trace, fixed: Trace, rtol: float) -> bool:
    """Return whether losses stay together: early ones each, later ones on average."""
    if len(original.losses) != len(fixed.losses) or not all(map(math.isfinite, fixed.losses)):
        return False
    pairs = list(zip(original.losses, fixed.losses, original.loss_steps, strict=True))
    level = fmean(abs(before) for before, _, _ in pairs)
    late = [(before, after) for before, after, step in pairs if step >= EARLY]
    drift = abs(fmean(before - after for before, after in late)) if late else 0.0
    return drift <= 5 * rtol * level and all(
        abs(before - after) <= rtol * max(abs(before), level)
        for before, after, step in pairs
        if step < EARLY
    )


def _updates(trace: Trace) -> float:
    updates = trace.parameters.updates if trace.parameters else None
    return math.inf if updates is None else updates


def _word(original: Trace, other: Trace) -> Word:
    """Return the strictest word that fits losses and parameters."""
    before, after = original.parameters, other.parameters
    if (before is None) != (after is None) or (after is not None and not after.shapes):
        return "not-compared"
    if len(original.losses) != len(other.losses):
        return "different"
    equal = after is None or (after.equal == after.count and after.buffers)
    if _first_difference(original, other) is None and equal:
        return "equal"
    near = all(
        _near(first, second, 1 if step < EARLY else GROWTH)
        for first, second, step in zip(
            original.losses, other.losses, original.loss_steps, strict=True
        )
    )
    return "close" if near and (after is None or after.distance <= APART) else "different"


def _first_difference(original: Trace, other: Trace) -> int | None:
    pairs = zip(original.losses, other.losses, original.loss_steps, strict=False)
    for first, second, step in pairs:
        if first != second and not (math.isnan(first) and math.isnan(second)):
            return step
    shorter = min(len(original.losses), len(other.losses))
    if len(original.losses) == len(other.losses):
        return None
    return original.loss_steps[shorter] if shorter < len(original.losses) else original.taken


def _near(first: float, second: float, growth: int) -> bool:
    if math.isnan(first) or math.isnan(second):
        return math.isnan(first) and math.isnan(second)
    return first == second or abs(first - second) <= growth * (ATOL + RTOL * abs(first))


def compare_curves(
    before: Sequence[Trace], after: Sequence[Trace]
) -> Literal["close", "different", "not-compared"]:
    """Compare every part of two sets of loss curves within the variation of their seeds.

    They differ where one side takes more backward passes per step than the other.
    """
    sides = [[_parts(trace) for trace in traces] for traces in (before, after)]
    if any(len(parts) < _PARTS for side in sides for parts in side):
        return "not-compared"
    if {_passes(trace) for trace in before} != {_passes(trace) for trace in after}:
        return "different"
    fall = abs(fmean(parts[0] - parts[-1] for parts in sides[0]))
    words = {
        _compare([parts[at] for parts in sides[0]], [parts[at] for parts in sides[1]], fall)
        for at in range(_PARTS)
    }
    if "different" in words:
        return "different"
    return "close" if words == {"close"} else "not-compared"


def _passes(trace: Trace) -> int:
    """Return the most common number of backward passes per step."""
    counts = Counter(Counter(trace.loss_steps).values())
    return max(counts, key=lambda count: counts[count], default=0)


def _compare(
    before: list[float], after: list[float], fall: float
) -> Literal["close", "different", "not-compared"]:
    finite = [all(map(math.isfinite, side)) for side in (before, after)]
    if not all(finite):
        return "different" if any(finite) else "not-compared"
    apart = abs(fmean(before) - fmean(after))
    paired = stdev(second - first for first, second in zip(before, after, strict=True))
    errors = [
        error / math.sqrt(len(before))
        for error in (math.hypot(stdev(before), stdev(after)), paired)
    ]
    least = 0.01 * fmean(map(abs, before))
    if any(apart > far * error + least for far, error in zip(_FAR, errors, strict=True)):
        return "different"
    bounds = [apart + sure * error for sure, error in zip(_SURE, errors, strict=True)]
    return "close" if min(bounds) <= _ALIKE * fall else "not-compared"


def _parts(trace: Trace) -> list[float]:
    """Return the mean losses of the parts of the window, none where it is too short."""
    by_step: dict[int, list[float]] = defaultdict(list)
    for loss, step in zip(trace.losses, trace.loss_steps, strict=True):
        by_step[step].append(loss)
    steps = [fmean(by_step[step]) for step in sorted(by_step)]
    length = len(steps) // _PARTS
    if not length:
        return []
    return [fmean(steps[at * length : (at + 1) * length]) for at in range(_PARTS)]
