"""A verification as text for people and as JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from torchlint.finding import Safety
from torchlint.harness.judging.anatomy import Bound
from torchlint.harness.judging.doubt import Doubt
from torchlint.harness.judging.promise import SEEDS, Method
from torchlint.harness.judging.statistics import Interval, Speedup
from torchlint.harness.judging.verdict import Change, Curves, Outcome, Report, Verdict
from torchlint.harness.plan import Launcher, Variant
from torchlint.harness.trace import Failure, SyncSite
from torchlint.report.conclusion import bound_words, conclusion, savings
from torchlint.report.paint import Paint
from torchlint.report.summary import plural
from torchlint.wording import first_of

_MEBIBYTE: Final = 1024 * 1024
_DECISIONS: Final = {
    Verdict.FASTER: "keep",
    Verdict.SAME: "no measurable difference",
    Verdict.SLOWER: "revert (slower)",
    Verdict.DIFFERENT: "revert (numbers off)",
    Verdict.UNSURE: "cannot tell",
}
_OF_A_TREE: Final = {
    Verdict.FASTER: "faster",
    Verdict.SLOWER: "slower",
    Verdict.DIFFERENT: "numbers off",
}
"""Words for the working tree, which is not a fix to keep or to revert."""
_SITES: Final = 5
_SHARE_MATTERS: Final = 0.02
"""A smaller difference of shares of the time is not shown."""
_SIZE_MATTERS: Final = 0.02
"""A smaller relative difference of memory is not shown."""
_METHODS: Final[dict[Method, str]] = {
    "as-is": "",
    "nudged": "",
    "repeated": ", over several runs of both",
    "aligned": ", on the original's weights, batches and seeds",
    "led": ", on the original's weights, batches and seeds",
    "seeds": "",
    "output": "",
}
_FAILED: Final = {
    "crash": "the original script fails: {}",
    "input": "the script reads standard input, which is empty here; pass the input as arguments",
    "memory": "the original script runs out of memory: {}",
    "exit": "the script ends before there is anything to measure: {}",
    "timeout": "the script is too slow to measure: {}; raise --timeout or lower --steps",
    "killed": "the original script was killed: {}",
    "idle": "the script cannot be measured: {}",
}
_NO_PACKAGE: Final = "relative import with no known parent package"
"""Words of Python's error where a module of a package is started as a script."""


def verification_json(report: Report) -> str:
    """Return the report as one JSON document."""
    document = {
        "version": 1,
        "script": report.script,
        "args": list(report.args),
        **({} if report.against is None else {"against": asdict(report.against)}),
        "device": report.device,
        **({"machine": dict(report.machine)} if report.machine else {}),
        "torch": report.torch,
        "python": platform.python_version(),
        "seed": report.seed,
        "steps": report.steps,
        "warmup": report.warmup,
        "rounds": report.rounds,
        "bound": _object(report.bound),
        "epoch": {"steps": report.epoch_steps, "count": report.epochs},
        "noise": _object(report.noise),
        **({"partial": True} if report.partial else {}),
        "timed": "runs" if report.whole else "steps",
        "launcher": _object(report.launcher),
        "diverted": list(report.diverted),
        "changed": list(report.changed),
        "variants": [_variant(report, outcome) for outcome in report.outcomes],
    }
    return json.dumps(document, indent=2) + "\n"


def _variant(report: Report, outcome: Outcome) -> dict[str, Any]:
    comparison = outcome.comparison
    return {
        "kind": outcome.variant.kind,
        "codes": list(outcome.variant.codes),
        "files": [os.path.relpath(file) for file in changed_files(report, outcome.variant)],
        "safety": outcome.variant.safety.word,
        "verdict": outcome.verdict.value,
        "decision": outcome.decision,
        "speedup": _object(outcome.speedup),
        "cpu_time": _object(outcome.work),
        "numbers": comparison.word if comparison else "not-compared",
        "compared": {
            "method": comparison.method if comparison else None,
            "why": comparison.note if comparison else "",
            "losses": comparison.losses if comparison else 0,
            "parameters": comparison.parameters if comparison else 0,
            "differs_at_step": comparison.differs_at if comparison else None,
        },
        "because": list(outcome.variant.because),
        "syncs_per_step": asdict(outcome.syncs),
        "sync_lines": {"before": _sync_lines(outcome.before), "after": _sync_lines(outcome.after)},
        "wait_share": asdict(outcome.wait_share),
        "rank_times": list(outcome.rank_times),
        "peak_memory": {
            "host": asdict(outcome.host_memory),
            "device": asdict(outcome.device_memory),
            "reserved": asdict(outcome.reserved_memory),
        },
        "energy_per_step": asdict(outcome.energy),
        "warnings": list(outcome.warnings),
        "doubts": [asdict(doubt) for doubt in (*report.doubts, *outcome.doubts)],
    }


def _sync_lines(side: Curves) -> list[dict[str, Any]]:
    return [
        {
            "file": os.path.relpath(site.file),
            "line": site.line,
            "call": site.call,
            "per_step": site.count / side.sync_steps,
        }
        for site in side.sync_sites
    ]


def _object(value: Bound | Interval | Launcher | Speedup | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


def verification_text(report: Report, paint: Paint, page: str = "") -> str:
    """Return the report as text: each verdict first, then the measurements, each doubt once.

    `page` is the file that shows it in a browser. The last line says what to do next.
    """
    where, *how = conditions(report)
    lines = [f"{paint.path(report.script)} {where}", *how]
    lines += [paint.warn(f"{doubt.name}: {doubt.message}") for doubt in report.doubts]
    if not report.outcomes:
        lines.append(nothing_to_verify(report))
    told = set(report.doubts)
    for outcome in shown_outcomes(report):
        new = [doubt for doubt in outcome.doubts if doubt not in told]
        lines += ["", *_outcome(outcome, new, paint)]
        told.update(new)
    if report.diverted:
        shown = first_of(report.diverted, _SITES)
        lines += ["", f"Written by the script, kept out of your files: {shown}"]
    said, saved = conclusion(report), savings(report)
    end = [saved[0].upper() + saved[1:]] if saved else []
    end += [f"As a page: {paint.path(page)}"] if page else []
    end += [paint.strong(said)] if said else []
    lines += ["", *end] if end else []
    return "\n".join(lines) + "\n"


def nothing_to_verify(report: Report) -> str:
    """Return why no variant was measured."""
    if report.against is None:
        return "No fix to verify: no selected rule has a fix for this script."
    return (
        "Nothing to verify: no Python file that the script imports differs from "
        f"{report.against.name}."
    )


def changed_files(report: Report, variant: Variant) -> list[str]:
    """Return the files in which a variant differs from the original."""
    before = report.before
    return sorted({*variant.texts, *before.texts, *before.absent})


def title(outcome: Outcome) -> str:
    """Return the name of a variant, with its codes."""
    codes = " ".join(outcome.variant.codes)
    name = outcome.variant.name
    return f"{name} ({codes})" if codes and codes != name else name


def shown_outcomes(report: Report) -> tuple[Outcome, ...]:
    """Return the outcomes to show: a single rule stands for all fixes."""
    outcomes = report.outcomes
    alone = len(outcomes) == 2 and outcomes[0].variant.texts == outcomes[1].variant.texts
    return outcomes[:1] if alone else outcomes


def conditions(report: Report) -> tuple[str, ...]:
    """Return on what device and how the script was measured."""
    names = ", ".join(dict.fromkeys(report.machine.get("names", ())))
    device = f"{report.device} ({names})" if names else report.device
    where = f"on {device}, torch {report.torch}, seed {report.seed}"
    if report.launcher is not None:
        count, hosts = report.launcher.nproc_per_node, report.launcher.nnodes
        where += f", under torchrun with {count} process{'es' if count > 1 else ''}"
        where += f" on each of {hosts} hosts" if hosts > 1 else ""
    window = f"{report.steps} steps after {report.warmup} of warm-up, not what follows them"
    if report.whole:
        window = "whole runs"
    compared = _compared(report)
    if report.noise is None:
        timed = any(outcome.speedup for outcome in report.outcomes)
        return (where, *compared, f"{window}, once each") if timed else (where, *compared)
    low, high = report.noise.low, report.noise.high
    return (
        where,
        *compared,
        *bound_words(report.bound),
        f"{plural(report.rounds, 'round')} of {window}; "
        f"the original against itself: {low:.2f}x to {high:.2f}x",
    )


def _compared(report: Report) -> tuple[str, ...]:
    """Return what the working tree was compared with, if it was."""
    if report.against is None:
        return ()
    files, others = report.before, report.against.others
    count = plural(len(files.texts) + len(files.absent), "Python file")
    verb = "differs" if count.startswith("1 ") else "differ"
    name, commit = report.against.name, report.against.commit
    short = "" if commit.startswith(name) else f" ({commit[:9]})"
    said = [f"the working tree against {name}{short}: {count} {verb}"]
    if others:
        shown = first_of(others, _SITES)
        said.append(f"other files that differ, which both versions read as they are now: {shown}")
    return tuple(said)


def failure_line(script: str, failure: Failure) -> str:
    """Return one line that says why the original script cannot be measured."""
    place = f"{os.path.relpath(failure.file)}:{failure.line}" if failure.line else script
    line = f"{place}: {_FAILED[failure.kind].format(failure.message)}"
    module = os.path.relpath(script).removesuffix(".py").replace(os.sep, ".")
    if _NO_PACKAGE in failure.message and "." in module and not module.startswith("."):
        line += f"; start it as a module, with `-m {module}` in place of {script}"
    return line


def _outcome(outcome: Outcome, doubts: Iterable[Doubt], paint: Paint) -> list[str]:
    decision = verdict_text(outcome)
    return [
        f"{paint.strong(title(outcome))}  {_painted(outcome, decision, paint)}",
        *(f"  {label:<16}  {text}" for label, text in facts(outcome) if text),
        *(f"    {line}" for line in _waits(outcome)),
        *(f"  {'new warning':<16}  {text}" for text in outcome.warnings),
        *(paint.warn(f"  {doubt.name}: {doubt.message}") for doubt in doubts),
    ]


def verdict_text(outcome: Outcome) -> str:
    """Return the decision on a fix, or why there is none, in a few words."""
    compared = outcome.comparison
    if outcome.verdict is Verdict.UNSURE and compared is not None and compared.doubt is not None:
        return "cannot compare"
    if outcome.variant.kind == "tree":
        if outcome.comparison is None:
            return "fails"
        return _OF_A_TREE.get(outcome.verdict, _DECISIONS[outcome.verdict])
    return _DECISIONS[outcome.verdict]


def facts(outcome: Outcome) -> tuple[tuple[str, str], ...]:
    """Return the measurements behind a verdict by name, empty for those that are missing.

    What does not depend on the machine comes first.
    """
    return (
        ("numbers", compared_text(outcome)),
        ("because", _because(outcome)),
        ("syncs per step", _counts(outcome.syncs)),
        ("speed", _speed(outcome)),
        ("processor time", _work(outcome)),
        ("waiting for data", _shares(outcome.wait_share)),
        ("slowest rank", _slowest(outcome.rank_times)),
        ("host memory", _sizes(outcome.host_memory)),
        ("device memory", _sizes(outcome.device_memory)),
        ("reserved memory", _sizes(outcome.reserved_memory)),
    )


def sites(outcome: Outcome) -> tuple[str, ...]:
    """Return the lines of the original that wait for the device and no longer do."""
    return _site_lines(outcome.sync_sites)


def _site_lines(found: tuple[SyncSite, ...]) -> tuple[str, ...]:
    return tuple(
        f"{os.path.relpath(site.file)}:{site.line}: {site.call}" for site in found[:_SITES]
    )


def _waits(outcome: Outcome) -> list[str]:
    """Return the lines that no longer wait, else those that still do after several fixes."""
    if outcome.sync_sites:
        return [f"no longer waits at {line}" for line in sites(outcome)]
    if outcome.variant.kind == "rule":
        return []
    return [f"still waits at {line}" for line in _site_lines(outcome.after.sync_sites)]


def _because(outcome: Outcome) -> str:
    """Return why a fix that changes the numbers is not exact."""
    comparison = outcome.comparison
    if comparison is None or comparison.word == "equal":
        return ""
    return "; ".join(outcome.variant.because)


def _painted(outcome: Outcome, text: str, paint: Paint) -> str:
    if outcome.decision == "keep":
        return paint.added(text)
    return paint.removed(text) if outcome.decision == "revert" else text


def _speed(outcome: Outcome) -> str:
    if outcome.speedup is None:
        return "not timed"
    gain = outcome.speedup
    before, after = outcome.step_time.before, outcome.step_time.after
    times = (
        ""
        if before is None or after is None
        else f": {time_text(before)} -> {time_text(after)} a {_unit(outcome)}"
    )
    return f"{gain.ratio:.2f}x ({gain.low:.2f}x to {gain.high:.2f}x){times}"


def _work(outcome: Outcome) -> str:
    """Return the ratio of processor times, where it decided."""
    if outcome.work is None:
        return ""
    work = outcome.work
    why = "which decides: wall time is too noisy"
    return f"{work.ratio:.2f}x ({work.low:.2f}x to {work.high:.2f}x) in each step, {why}"


def _unit(outcome: Outcome) -> str:
    """Return what was timed: a step, or the whole run of a script without steps."""
    runs = [run for runs in outcome.after.times for run in runs]
    return "run" if runs and len(runs[0]) == 1 else "step"


def time_text(seconds: float) -> str:
    """Return a time with its unit."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def compared_text(outcome: Outcome) -> str:
    """Return how the numbers of a variant compare with the original's."""
    comparison = outcome.comparison
    if comparison is None:
        return "not compared"
    if comparison.method == "output":
        same = "the same output" if comparison.word == "equal" else "different output"
        return f"prints {same} (no losses to compare)"
    if comparison.method == "ranks":
        return "its processes end with different weights: they do not share gradients"
    if comparison.word == "not-compared":
        why = comparison.note or "the parameters differ"
        return "not compared" if comparison.doubt else f"not compared: {why}"
    if comparison.method == "seeds":
        word = "alike" if comparison.word == "close" else "different"
        return (
            f"loss curves of {SEEDS} seeds {word} ({comparison.tolerance}); seeds were compared "
            f"because on the original's weights and batches {comparison.note}"
        )
    how = _METHODS[comparison.method]
    seen = f"{comparison.losses} losses, {comparison.parameters} parameters{how}"
    step = comparison.differs_at
    since = ", in its final parameters or buffers" if step is None else f", from step {step + 1} on"
    promise = outcome.variant.safety
    if comparison.word == "equal":
        return f"equal bit for bit ({seen})"
    if comparison.word == "close" and comparison.kept is not False:
        return f"close ({seen}; {comparison.tolerance})"
    if promise is Safety.UNSAFE:
        return f"different{since} ({seen})"
    broken = "bit for bit equal" if promise is Safety.EXACT else f"close ({comparison.tolerance})"
    return f"not {broken}, as its class `{promise.word}` promises{since} ({seen})"


def _counts(change: Change) -> str:
    if change.before is None or change.after is None:
        return ""
    return f"{change.before:.3g} -> {change.after:.3g}"


def _slowest(times: tuple[float, ...]) -> str:
    """Return the rank that all others wait for."""
    if len(times) < 2:
        return ""
    slowest = max(range(len(times)), key=times.__getitem__)
    return (
        f"{slowest} of {len(times)}: {time_text(times[slowest])} a step, "
        f"the fastest {time_text(min(times))}"
    )


def _shares(change: Change) -> str:
    if change.before is None or change.after is None:
        return ""
    if abs(change.after - change.before) < _SHARE_MATTERS:
        return ""
    return f"{change.before:.0%} -> {change.after:.0%} of the time"


def _sizes(change: Change) -> str:
    if change.before is None or change.after is None:
        return ""
    if abs(change.after - change.before) <= _SIZE_MATTERS * change.before:
        return ""
    return f"{change.before / _MEBIBYTE:.0f} -> {change.after / _MEBIBYTE:.0f} MiB"
