"""Doubts by name: why a measurement says less than it might, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Doubt"]


@dataclass(frozen=True, slots=True)
class Doubt:
    """A named reason for caution; its message says what to do."""

    name: str
    message: str

    @classmethod
    def short_script(cls, taken: int) -> Doubt:
        """Say that the script ended before the window was full."""
        return cls(
            "short-script",
            f"the script ended by itself after {taken} steps, so all of them were measured: "
            "give it more data or epochs for a narrower interval",
        )

    @classmethod
    def too_few_steps(cls, taken: int) -> Doubt:
        """Say that the script took too few steps to be timed."""
        return cls(
            "too-few-steps",
            f"the script took {taken} steps in all, too few to time: give it more data or epochs",
        )

    @classmethod
    def noisy_machine(cls, low: float, high: float) -> Doubt:
        """Say that the original differs from itself by more than the fix could show."""
        return cls(
            "noisy-machine",
            f"the original against itself varies from {low:.2f}x to {high:.2f}x: "
            "end other programs, or raise --rounds",
        )

    @classmethod
    def wide_interval(cls) -> Doubt:
        """Say that the interval is too wide to say anything."""
        return cls(
            "wide-interval", "the step times scatter too much to decide: raise --rounds or --steps"
        )

    @classmethod
    def not_repeatable(cls, step: int | None) -> Doubt:
        """Say that two runs of the original do not give the same numbers."""
        since = "in its final parameters or buffers" if step is None else f"from step {step + 1} on"
        return cls(
            "not-repeatable",
            f"two runs of the original differ {since}, so no fix can be compared with it: "
            "seed every generator that it draws from",
        )

    @classmethod
    def scattered_seeds(cls) -> Doubt:
        """Say that the seeds scatter more than a fix could show."""
        return cls(
            "scattered-seeds",
            "the losses of several seeds scatter too much, beside what they fall, to tell whether "
            "they are the same: raise --steps",
        )

    @classmethod
    def numbers_open(cls, why: str) -> Doubt:
        """Say that --quick has no time for the comparison that is left."""
        return cls(
            "numbers-open", f"{why}, and --quick has no time to find out more: run without it"
        )

    @classmethod
    def not_timed(cls) -> Doubt:
        """Say that --quick had no time to time it."""
        return cls("not-timed", "its numbers took all the time of --quick: run without it")

    @classmethod
    def timed_once(cls) -> Doubt:
        """Say that one run of each was timed, which does not show how far the machine is even."""
        return cls(
            "timed-once",
            "--quick had time to time one run of each, and what the machine does by itself does "
            "not show in that: run without it",
        )

    @classmethod
    def nothing_to_compare(cls) -> Doubt:
        """Say that there are no numbers to compare."""
        return cls(
            "nothing-to-compare",
            "there are no losses, and two runs of the original do not print the same: "
            "compare its results by hand",
        )

    @classmethod
    def steps_by_hand(cls) -> Doubt:
        """Say what was taken for a step."""
        return cls(
            "steps-by-hand",
            "no torch optimizer took a step in it, so each `backward()` counts as one, "
            "and final weights were not compared",
        )

    @classmethod
    def whole_runs(cls, taken: int) -> Doubt:
        """Say that whole runs were timed."""
        count = f"the script took {taken} steps" if taken else "no torch optimizer took a step"
        return cls("whole-runs", f"{count}, so whole runs of it were timed, start to end")

    @classmethod
    def not_measured(cls, codes: tuple[str, ...]) -> Doubt:
        """Say which fixes were not measured alone for want of time."""
        return cls(
            "not-measured",
            f"not measured alone within the time of --quick: {', '.join(codes)}; "
            "run without it for each fix",
        )

    @classmethod
    def fixed_fails(cls, message: str, place: str) -> Doubt:
        """Say that the script fails once it is fixed."""
        return cls("fixed-script-fails", f"with this fix the script fails{place}: {message}")

    @classmethod
    def slower_on_this_device(cls, device: str) -> Doubt:
        """Say that a fix for another device costs time on this one."""
        return cls(
            "slower-on-this-device",
            f"slower on this device ({device}): what it saves is paid on an accelerator only; "
            "verify it there",
        )

    @classmethod
    def other_launch(cls) -> Doubt:
        """Say that one side ran as one process and the other as several."""
        return cls(
            "launched-apart",
            "the original makes no process group and ran as one process, the fixed script as "
            "several: a step of either takes one global batch",
        )

    @classmethod
    def run_failed(cls, message: str) -> Doubt:
        """Say that a timed run broke off, so there is no time to compare."""
        return cls("run-failed", f"a timed run broke off: {message}")

    @classmethod
    def written(cls, files: tuple[str, ...]) -> Doubt:
        """Say that something in the project changed in spite of the diversion."""
        shown = ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")
        return cls(
            "written-in-project",
            f"written while verifying, and not diverted: {shown}; look at them before you go on",
        )
