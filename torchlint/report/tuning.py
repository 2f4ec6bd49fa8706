"""The results of `tune` as text and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from torchlint.harness.tuning.report import (
    Decision,
    Knob,
    LoaderSite,
    SettingSearch,
    Trial,
    TuningReport,
    Value,
)
from torchlint.report.paint import Paint
from torchlint.report.summary import plural

_NOISY: Final = 0.1
_MEBIBYTE: Final = 1024 * 1024
_BY_ROOT: Final = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "RMSprop", "Lion")
_FAILED: Final = {
    "memory": "runs out of memory",
    "timeout": "takes too long",
    "killed": "was killed",
    "idle": "cannot be timed",
}
_GUARD: Final = 'needs `if __name__ == "__main__":` around the training'


def tuning_text(
    report: TuningReport, site: LoaderSite | None, written: Sequence[Knob], paint: Paint
) -> str:
    """Return the report as text: the value to choose first, then the measurements."""
    loader = report.loader
    size = "" if loader.length is None else f"{loader.length} samples of "
    batches = "" if loader.batch_size is None else f", batches of {loader.batch_size}"
    where = "the loader" if site is None else f"{_place(site)} {site.label}"
    tolerance = max(setting.tolerance for setting in report.settings)
    lines = [
        f"{paint.path(report.script)} on {report.device}, {plural(report.cores, 'processor')}, "
        f"torch {report.torch}",
        f"{where} feeds the training steps: {size}{loader.dataset}{batches}",
        f"{report.runs} runs in {report.seconds:.0f} s, alternating with the original script; "
        f"values within {tolerance:.0%} of the best count as equally good",
    ]
    if report.noise > _NOISY:
        lines.append(
            paint.warn(
                f"noisy-machine: runs of the unchanged script differ by {report.noise:.0%}; "
                "close other programs or raise --budget"
            )
        )
    if report.written:
        shown = ", ".join(report.written[:5])
        lines.append(paint.warn(f"the script wrote files that could not be diverted: {shown}"))
    for setting in report.settings:
        lines += ["", *_setting(report, setting, paint)]
    lines += ["", *_what_to_do(report, site, written)]
    return "\n".join(lines) + "\n"


def _setting(report: TuningReport, setting: SettingSearch, paint: Paint) -> Iterator[str]:
    tried = [trial for trial in setting.trials if trial.rate is not None]
    if not tried or (len(setting.trials) < 2 and setting.not_tried):
        yield f"{paint.strong(setting.knob)}  not tried: {setting.not_tried}"
        return
    yield f"{paint.strong(setting.knob)}  {_answer(setting, paint)}"
    yield from _table(setting)
    if setting.knob == "num_workers":
        yield from _alone(setting)
    if setting.not_tried:
        yield f"  stopped here: {setting.not_tried}"
    if setting.knob == "batch_size" and setting.changes:
        yield from _batch_advice(report, setting)


def _answer(setting: SettingSearch, paint: Paint) -> str:
    """Return which value to choose, and why."""
    if not setting.changes:
        reason = _why_kept(setting) or "no other value could be measured"
        return f"{paint.added(f'keep {setting.current}')}: {reason}"
    gain = setting.gain
    change = f"{setting.current} -> {setting.choice}"
    if gain is None:
        return paint.added(change)
    ratio = f"{gain.value:.2f}x ({gain.low:.2f}x to {gain.high:.2f}x) the samples per second"
    if gain.value <= 1 + setting.tolerance:
        return paint.added(change) + f"  as fast, with fewer resources: {ratio}"
    return paint.added(change) + f"  {ratio}"


def _why_kept(setting: SettingSearch) -> str:
    others = [
        trial
        for trial in setting.trials
        if trial.rate is not None and trial.value != setting.current
    ]
    now = setting.trial(setting.current)
    if now is None or now.rate is None or not others:
        return ""
    rival = max(others, key=lambda trial: trial.rate.value if trial.rate else 0.0)
    assert rival.rate is not None
    ratio = rival.rate.value / now.rate.value
    best = f"(best other: {rival.value}, {ratio:.2f}x)"
    if ratio > 1 + setting.tolerance:
        return f"not decided, as noise is larger than the gain {best}"
    if ratio > 1:
        return f"no other value is measurably faster {best}"
    if setting.knob == "num_workers" and setting.current == 0:
        return f"workers cost more than they save here {best}"
    return f"no other value is faster {best}"


def _alone(setting: SettingSearch) -> Iterator[str]:
    """Yield what the loader and the network give by themselves, and so what workers can bring."""
    for trial in setting.trials:
        if trial.alone is not None and trial.rate is not None:
            loader, network = trial.alone
            most = network / trial.rate.value
            yield (
                f"  alone, the loader gives {_count(loader)} samples/s in the script's own "
                f"process, and the network takes {_count(network)}: workers can bring "
                f"{most:.3g}x at most"
            )


def _table(setting: SettingSearch) -> Iterator[str]:
    """Yield a line per value, with its measurements."""
    on_device = any(trial.device_memory for trial in setting.trials)
    steps = setting.knob == "batch_size"
    head = ["", "value", "samples/s", "", "waiting", "processors", "memory"]
    rows = [[*head, *(["device"] if on_device else []), *(["steps/epoch"] if steps else [])]]
    failed: dict[int, str] = {}
    for trial in setting.trials:
        marks = [
            word
            for word, value in (
                ("now", setting.current),
                ("take", setting.choice),
                ("best", setting.best),
            )
            if trial.value == value
        ]
        row = [", ".join(marks), str(trial.value)]
        if trial.rate is None:
            failed[len(rows)] = _failure(trial)
        else:
            rate = trial.rate
            row += [
                _count(rate.value),
                f"{_count(rate.low)} to {_count(rate.high)}",
                f"{trial.wait_share:.0%}",
                f"{trial.cpu:.1f}",
                _size(trial.memory),
            ]
            row += [_size(trial.device_memory or 0)] if on_device else []
            row += [str(trial.steps or "")] if steps else []
        rows.append(row)
    widths = [
        max(len(row[at]) for row in rows if at < len(row)) for at in range(max(map(len, rows)))
    ]
    for at, row in enumerate(rows):
        cells = [
            cell.ljust(width) if column in (0, 3) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        yield f"  {'  '.join(cells)}{'  ' + failed[at] if at in failed else ''}".rstrip()


def _failure(trial: Trial) -> str:
    failure = trial.failure
    assert failure is not None
    if "bootstrapping phase" in failure.message:
        return _GUARD
    if "exited unexpectedly" in failure.message:
        return f"fails: {failure.message}; the script {_GUARD}, or needs more shared memory"
    place = f"{os.path.relpath(failure.file)}:{failure.line}: " if failure.line else ""
    return f"{_FAILED.get(failure.kind, 'fails')}: {place}{failure.message}"


def _batch_advice(report: TuningReport, setting: SettingSearch) -> Iterator[str]:
    """Yield what another batch size does to the optimization."""
    before, after = setting.current, setting.choice
    if not isinstance(before, int) or not isinstance(after, int):
        return
    factor = after / before
    old, new = setting.trial(before), setting.trial(after)
    steps = ""
    if old is not None and new is not None and old.steps and new.steps:
        steps = f" {new.steps} steps an epoch instead of {old.steps},"
    yield f"  a batch of {after} changes the optimization:{steps} each with a less noisy gradient;"
    by_root = report.optimizer in _BY_ROOT
    scaled = factor**0.5 if by_root else factor
    rule = (
        "with the square root of the batch size"
        if by_root
        else "with the batch size, after a warm-up"
    )
    now = then = ""
    if report.optimizer:
        now = f" ({report.optimizer}, {report.learning_rate:g})"
        then = f" (to {report.learning_rate * scaled:.2g})"
    yield (
        f"  the learning rate{now} was chosen for {before}: scale it {rule}{then}, and compare "
        "the validation loss at equal epochs"
    )


def _what_to_do(
    report: TuningReport, site: LoaderSite | None, written: Sequence[Knob]
) -> Iterator[str]:
    changing = [each for each in report.settings if each.changes and each.knob != "batch_size"]
    if not changing:
        yield _nothing_to_write(report)
        return
    if site is None:
        return
    here = [each for each in changing if each.knob not in site.decided]
    values = ", ".join(f"{each.knob}={each.choice}" for each in here)
    if here and all(each.knob in written for each in here):
        yield f"Wrote {values} at {_place(site)}."
    elif here:
        yield f"`--apply` writes {values} at {_place(site)}."
    for each in changing:
        if each.knob in site.decided:
            yield _elsewhere(site, each.knob, site.decided[each.knob], each.choice)


def _nothing_to_write(report: TuningReport) -> str:
    """Return why no setting is written, with the gain of another batch size."""
    searched = report.setting("num_workers").trials
    batches = report.setting("batch_size")
    if batches.changes and batches.gain is not None:
        return (
            f"Nothing to write: a batch of {batches.choice} gives {batches.gain.value:.2f}x, but "
            "changes the optimization; no other setting is measurably better."
        )
    if sum(trial.rate is not None for trial in searched) > 1:
        return "Nothing to change: no other setting is measurably better."
    return "Nothing to change: too few values could be measured."


def _elsewhere(site: LoaderSite, knob: Knob, decision: Decision, value: Value) -> str:
    """Return which line decides a value, and what to set or to pass there."""
    place = f"{os.path.relpath(site.path)}:{decision.line}"
    head = f"{knob} is not written: {place} sets it (`{decision.text}`)"
    if decision.option.startswith("-"):
        return f"{head}: pass `{decision.option} {value}`"
    return f"{head}: set {value} there"


def _place(site: LoaderSite) -> str:
    return f"{os.path.relpath(site.path)}:{site.line}"


def _count(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"


def _size(size: int) -> str:
    return f"{size / _MEBIBYTE:.0f} MiB"


def tuning_json(report: TuningReport, site: LoaderSite | None, written: Sequence[Knob]) -> str:
    """Return the report as one JSON document."""
    loader = report.loader
    document = {
        "version": 1,
        "script": report.script,
        "args": list(report.args),
        "device": report.device,
        "torch": report.torch,
        "python": platform.python_version(),
        "processors": report.cores,
        "budget": report.budget,
        "seconds": report.seconds,
        "runs": report.runs,
        "noise": report.noise,
        "loader": {
            "filename": site.path if site else None,
            "line": site.line if site else None,
            "dataset": loader.dataset,
            "samples": loader.length,
            "batches": loader.passes,
            "optimizer": report.optimizer or None,
            "learning_rate": report.learning_rate if report.optimizer else None,
        },
        "settings": [_setting_json(each, site, written) for each in report.settings],
        "written_in_project": list(report.written),
    }
    return json.dumps(document, indent=2) + "\n"


def _setting_json(
    setting: SettingSearch, site: LoaderSite | None, written: Sequence[Knob]
) -> dict[str, Any]:
    decision = site.decided.get(setting.knob) if site else None
    gain = setting.gain
    return {
        "name": setting.knob,
        "current": setting.current,
        "choice": setting.choice,
        "best": setting.best,
        "tolerance": setting.tolerance,
        "speedup": None
        if gain is None
        else {"ratio": gain.value, "low": gain.low, "high": gain.high},
        "not_tried": setting.not_tried or None,
        "written": setting.knob in written,
        "decided_by": None
        if decision is None
        else {"line": decision.line, "text": decision.text, "option": decision.option or None},
        "trials": [_trial_json(trial) for trial in setting.trials],
    }


def _trial_json(trial: Trial) -> dict[str, Any]:
    rate, failure = trial.rate, trial.failure
    return {
        "value": trial.value,
        "samples_per_second": None if rate is None else asdict(rate),
        "runs": trial.runs,
        "wait_share": trial.wait_share,
        "alone": None
        if trial.alone is None
        else dict(zip(("loader", "network"), trial.alone, strict=True)),
        "processors": trial.cpu,
        "peak_memory": {"host": trial.memory, "device": trial.device_memory},
        "steps_per_epoch": trial.steps,
        "failure": None if failure is None else {"kind": failure.kind, "message": failure.message},
    }
