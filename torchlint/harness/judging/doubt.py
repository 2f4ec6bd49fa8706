"""Doubts: named reasons why a measurement is inconclusive, and what to do."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from torchlint.wording import first_of

_LONGER: Final = "give it a longer --budget, or none"
_SHORT_EPOCH: Final = 10_000
"""The most steps of an epoch that a verification can be asked to run."""
_MOST_ROUNDS: Final = 40
"""The most rounds to advise."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A named reason for caution; its message says what to do."""

    name: str
    message: str

    @classmethod
    def short_script(cls, taken: int) -> Doubt:
        """Report that the script ended before the window was full."""
        return cls(
            "short-script",
            f"the script ended after {taken} steps, so all of them were measured; "
            "give it more data or epochs for a narrower interval",
        )

    @classmethod
    def noisy_machine(cls, low: float, high: float, enough: int) -> Doubt:
        """Report that two runs of the original differ by more than the fix could show."""
        return cls(
            "noisy-machine",
            "too noisy to decide: two runs of the same script differ by "
            f"{low:.2f}x to {high:.2f}x; {_more_rounds(enough)}",
        )

    @classmethod
    def wide_interval(cls, enough: int) -> Doubt:
        """Report that the interval is too wide to decide, and how many rounds would do."""
        return cls(
            "wide-interval", f"the step times vary too much to decide; {_more_rounds(enough)}"
        )

    @classmethod
    def busy_machine(cls, seen: tuple[float, float] | None, *, slept: bool) -> Doubt:
        """Report that other programs took the processors that the script needs.

        `seen` are the processors that they used while it was timed, and those that were free.
        `slept` means that threads slept where they usually spin.
        """
        said = ["other programs kept the processors busy when the runs began"]
        if seen is not None:
            others, free = seen
            said = [
                f"other programs used {others:.1f} processors while the script was timed, and "
                f"{free:.1f} were free, so times are partly theirs"
            ]
        if slept:
            said.append("threads that wait for one another slept, where they usually spin")
        return cls("busy-machine", "; ".join(said))

    @classmethod
    def throttled(cls, reasons: tuple[str, ...], repeated: int) -> Doubt:
        """Report that a device was slowed down, and how many runs were therefore made again."""
        by = f" by {' and '.join(reasons)}" if reasons else ""
        still = "times are partly those of a slower device" if reasons else "later runs were not"
        runs = f", {repeated} runs were made again" if repeated > 1 else ""
        runs = ", one run was made again" if repeated == 1 else runs
        return cls("throttled", f"the device was slowed down{by}{runs}; {still}")

    @classmethod
    def shared_device(cls, others: int) -> Doubt:
        """Report that other processes use the device."""
        who = "another process uses" if others == 1 else f"{others} other processes use"
        return cls("shared-device", f"{who} the device, so times and memory are partly theirs")

    @classmethod
    def clock_moved(cls, first: int, last: int) -> Doubt:
        """Report that the clock of a device, in MHz, changed within a window."""
        return cls(
            "clock-moved",
            f"the device's clock went from {first} to {last} MHz while steps were timed; raise "
            "--warmup",
        )

    @classmethod
    def compiled_while_timed(cls, graphs: int, which: str) -> Doubt:
        """Report that torch's compiler worked within a window."""
        what = "a graph was" if graphs == 1 else f"{graphs} graphs were"
        return cls(
            "compiled-while-timed",
            f"{what} compiled while steps of {which} were timed, which is no part of a usual step; "
            "raise --warmup, or keep the shapes of batches the same",
        )

    @classmethod
    def not_repeatable(cls, step: int | None, operators: tuple[str, ...] = ()) -> Doubt:
        """Report that runs of the original give different numbers."""
        what = "seed every random generator that the script uses"
        if operators:
            what = f"{', '.join(operators)} has no deterministic kernel on this device"
        return cls(
            "not-repeatable",
            f"two runs of the original differ {_since(step)}, so no fix can be compared; {what}",
        )

    @classmethod
    def fixed_not_repeatable(cls, step: int | None) -> Doubt:
        """Report that the original repeats its numbers, and the fixed script does not."""
        return cls(
            "fixed-not-repeatable",
            f"two runs of the fixed script differ {_since(step)}, and runs of the original do not; "
            "check what the fix left to chance",
        )

    @classmethod
    def numbers_open(cls, why: str) -> Doubt:
        """Report that there was no time for the remaining comparison."""
        return cls("numbers-open", f"losses not decided: {why}, and time ran out; {_LONGER}")

    @classmethod
    def not_a_number(cls, loss: float, step: int) -> Doubt:
        """Report that the original diverges."""
        where = f"the original's loss is {loss} in step {step + 1}"
        return cls("not-a-number", f"{where}, and what is equal from there on proves nothing")

    @classmethod
    def few_losses(cls, count: int) -> Doubt:
        """Report that numbers are close, as far as very few losses can show."""
        return cls(
            "few-losses",
            f"only {count} losses were compared, so a difference that grows later would not show; "
            "raise --steps or --budget",
        )

    @classmethod
    def whole_runs(cls, taken: int) -> Doubt:
        """Report that whole runs were timed."""
        count = f"the script took {taken} steps" if taken else "no torch optimizer took a step"
        return cls("whole-runs", f"{count}, so whole runs were timed, from start to end")

    @classmethod
    def not_measured(cls, codes: tuple[str, ...]) -> Doubt:
        """Report which fixes there was no time to measure alone."""
        return cls(
            "not-measured",
            f"time ran out before these were measured alone: {', '.join(codes)}; {_LONGER}",
        )

    @classmethod
    def not_exercised(
        cls,
        places: tuple[tuple[str, int], ...],
        taken: int,
        epoch: int | None,
        *,
        part: bool,
        text: str,
    ) -> Doubt:
        """Report which changes no run reached; `part` means that it reached others."""
        shown = first_of([f"{os.path.relpath(path)}:{line}" for path, line in places], 5)
        advice = "raise --steps until they run"
        if epoch is not None and epoch > taken:
            advice = f"an epoch has {epoch:,} steps: start the script with a shorter one"
            if epoch <= _SHORT_EPOCH:
                advice = f"an epoch has {epoch} steps: try --steps {epoch + 10}, or a shorter epoch"
        return cls(
            "partly-exercised" if part else "not-exercised",
            f"changed lines of {text} that did not run in the first {taken} steps, so "
            f"nothing was measured of them: {shown}; {advice}",
        )

    @classmethod
    def interrupted(cls, missing: tuple[str, ...]) -> Doubt:
        """Report that the verification was interrupted, and which fixes were not run at all."""
        rest = f"; not run at all: {', '.join(missing)}" if missing else ""
        return cls("interrupted", f"interrupted, so this is what was known until then{rest}")

    @classmethod
    def fixed_fails(cls, message: str, place: str, which: str) -> Doubt:
        """Report that the fixed script fails."""
        return cls("fixed-script-fails", f"the script fails {which}{place}: {message}")

    @classmethod
    def slower_on_this_device(cls, device: str) -> Doubt:
        """Report that a fix for another device costs time on this one."""
        return cls(
            "slower-on-this-device",
            f"slower on this device ({device}); the fix only pays off on an accelerator, so "
            "verify it there",
        )

    @classmethod
    def run_failed(cls, message: str) -> Doubt:
        """Report that a timed run failed, so there is no time to compare."""
        return cls("run-failed", f"a timed run failed: {message}")

    @classmethod
    def written(cls, files: tuple[str, ...]) -> Doubt:
        """Report that project files changed despite the diversion."""
        return cls(
            "written-in-project",
            f"the script wrote files that could not be diverted: {first_of(files, 5)}; check them",
        )


SCATTERED_SEEDS: Final = Doubt(
    "scattered-seeds",
    "the losses of different seeds vary too much, compared with how far they fall, to "
    "decide; raise --steps",
)
"""Losses vary between seeds by more than a fix could show."""
NOT_TIMED: Final = Doubt("not-timed", f"time ran out after comparing losses; {_LONGER}")
"""There was no time to time the fix."""
TIMED_ONCE: Final = Doubt(
    "timed-once", f"each version was timed once, so machine noise is unknown; to decide, {_LONGER}"
)
"""Each side was timed once, which does not show the machine's noise."""
ROUNDED_AWAY: Final = Doubt(
    "rounded-away",
    "one rounding leads the original's losses too far to compare others with them; a lower "
    "learning rate, or a warm-up of it, lets them be compared",
)
"""Rounding alone changes the losses of the original at once."""
NOTHING_TO_COMPARE: Final = Doubt(
    "nothing-to-compare",
    "the script has no losses, and two runs of the original print different output; "
    "compare the results by hand",
)
"""There are no numbers to compare."""
STEPS_BY_HAND: Final = Doubt(
    "steps-by-hand",
    "no torch optimizer took a step, so each `backward()` counts as a step, "
    "and final weights were not compared",
)
"""Each `backward()` was counted as a step."""
SAVES_WAITS: Final = Doubt(
    "saves-waits",
    "fewer syncs gain no time on a CPU; on an accelerator each one keeps the host waiting",
)
"""The waits that a fix saves cost no time on a CPU."""
OTHER_LAUNCH: Final = Doubt(
    "launched-apart",
    "the original makes no process group and ran as one process, the fixed script as "
    "several: a step of either takes one global batch",
)
"""One side ran as one process and the other as several."""


def _more_rounds(enough: int) -> str:
    if enough > _MOST_ROUNDS:
        return f"close other programs: as it is, it would take about {enough} rounds"
    return f"about {enough} rounds would do (--rounds {enough}, or a longer --budget)"


def _since(step: int | None) -> str:
    return "in final parameters or buffers" if step is None else f"from step {step + 1} on"
