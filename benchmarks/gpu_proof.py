"""Prove on a real device that `verify` tells the truth, and write down what it told.

    make gpu-bundle                          # a machine with a network: everything in one archive
    make gpu-proof                           # the machine with the GPU, in the unpacked archive
    python benchmarks/gpu_proof.py --device cpu --small --into /tmp/proof      # a rehearsal

It needs Python 3.10, torch, NumPy and psutil, for `tune` also libcst and click, and no network.
What counts and compares is measured side by side, what times comes after it, alone. Rows are
printed and kept as they are measured: a second call goes on with what is missing on this device and
torch, unless `--again` is given. A job that fails stops no other. `gpu-proof.json` and
`gpu-proof.md` are to be committed as they are. Exit code 1 if a row is not as it must be, 2 without
an accelerator.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from gpu_cases import HARD, ITSELF, KNOWN, LOADING, PRECISION, SYNCS, TURNS, WAITS, Case, plain

from torchlint.finding import Safety
from torchlint.harness.judging.verdict import Outcome, Report, Verdict
from torchlint.harness.plan import Plan, Variant
from torchlint.harness.session import ScriptError, Session

HERE: Final = Path(__file__).resolve().parent
OFF: Final = 0.05
"""The share by which a measured ratio may be off the true one."""


@dataclass(frozen=True)
class Row:
    """One measurement beside what is known of it."""

    part: str
    case: str
    measured: str
    truth: str
    verdict: str
    passed: bool


@dataclass
class Bench:
    """The machine, and how much to measure on it."""

    device: str
    small: bool
    devices: int = 1
    machine: dict[str, Any] = field(default_factory=dict)

    def report(
        self,
        before: str,
        afters: Sequence[str],
        safety: Sequence[Safety] = (Safety.EXACT,),
        rounds: int = 3,
    ) -> Report:
        """Verify changes of a script, each against the script as it is."""
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "train.py")
            script.write_text(before, encoding="utf-8")
            variants = [
                Variant("rule", (f"TL{at:03}",), kept, {str(script): f"{after}# change {at}\n"})
                for at, (after, kept) in enumerate(zip(afters, safety, strict=True))
            ]
            steps = (8, 3, 2) if self.small else (50, 10, rounds)
            kind = self.device.partition(":")[0]
            plan = Plan(script, (), *steps, device=kind, timeout=120)
            with Session(plan) as session:
                report = session.measure(variants)
        self.machine = dict(report.machine) or self.machine
        return report

    def outcome(self, before: str, after: str, rounds: int = 2) -> Outcome:
        """Verify one exact change."""
        return self.report(before, [after], rounds=rounds).outcomes[0]

    def truth(self, texts: Sequence[str]) -> list[float]:
        """Return the seconds of a step of each script by its own clock, all run in turns."""
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, f"script_{at}.py") for at in range(len(texts))]
            for file, text in zip(files, texts, strict=True):
                file.write_text(plain(text, 20 if self.small else 100), encoding="utf-8")
            done = subprocess.run(
                [sys.executable, "-c", TURNS, "2" if self.small else "4", *map(str, files)],
                capture_output=True,
                text=True,
                check=True,
            )
        return [float(seconds) for seconds in done.stdout.split()]


Job = Callable[[Bench], list[Row]]
Jobs = Iterator[tuple[str, Job]]


def itself(bench: Bench) -> Jobs:
    """Compare scripts with themselves: no verdict may be FASTER or SLOWER."""
    for case in ITSELF:
        for batch in range(1 if bench.small else _BATCHES):
            count = 1 if bench.small else _TIMES
            yield (
                f"{case.name}, {batch + 1}",
                partial(_itself, case=case, count=count),
            )


def _itself(bench: Bench, case: Case, count: int) -> list[Row]:
    text, _ = case.texts(bench.device, small=bench.small)
    report = bench.report(text, [text] * count, [Safety.EXACT] * count, rounds=2)
    return [
        _row("itself", case.name, each, "1.00x", passed=each.verdict in _NO_CHANGE)
        for each in report.outcomes
    ]


def known(bench: Bench) -> Jobs:
    """Compare measured ratios with those of the scripts' own clock."""
    cases = [case for case in KNOWN if case.least_devices <= bench.devices]
    for _, found in groupby(cases, key=_original):
        group = list(found)
        name = "; ".join(case.name for case in group)
        yield name, partial(_known, cases=group)


def _original(case: Case) -> list[tuple[str, str]]:
    """Return what tells the unchanged script of a case from others."""
    return sorted(case.settings.items())


def _known(bench: Bench, cases: Sequence[Case]) -> list[Row]:
    texts = [case.texts(bench.device, small=bench.small) for case in cases]
    before, afters = texts[0][0], [after for _, after in texts]
    report = bench.report(before, afters, [Safety.EXACT] * len(afters))
    original, *changed = bench.truth([before, *afters])
    rows = []
    for case, outcome, seconds in zip(cases, report.outcomes, changed, strict=True):
        truth, gain = original / seconds, outcome.speedup
        fine = gain is not None and abs(gain.ratio / truth - 1) < OFF
        rows.append(_row("known ratios", case.name, outcome, f"{truth:.2f}x", passed=fine))
    return rows


def syncs(bench: Bench) -> Jobs:
    """Count the waits of a step: each once, on the line of the script."""
    for case in SYNCS[:1] if bench.small else SYNCS:
        yield case.name, partial(_syncs, case=case)


def _syncs(bench: Bench, case: Case) -> list[Row]:
    before, after = case.texts(bench.device, small=bench.small)
    outcome = bench.outcome(before, after)
    lines = {site.line for site in outcome.before.sync_sites}
    wanted = {at for at, line in enumerate(before.splitlines(), 1) if "loss.item()" in line}
    found = outcome.syncs.before, outcome.syncs.after
    measured = f"{found[0]} -> {found[1]} at lines {sorted(lines)}"
    fine = found == (2.0, 0.0) and lines == wanted
    truth = f"2.0 -> 0.0 at lines {sorted(wanted)}"
    return [Row("syncs", case.name, measured, truth, outcome.verdict.value, fine)]


def precision(bench: Bench) -> Jobs:
    """Compare numbers in several precisions: a right fix is kept, a wrong one is found."""
    for name, cases in PRECISION.items():
        if bench.device == "cpu" and name in ("float16 autocast", "TF32"):
            continue
        yield name, partial(_precision, cases=cases)
        if bench.small:
            return


def _precision(bench: Bench, cases: Sequence[tuple[Case, bool]]) -> list[Row]:
    texts = [case.texts(bench.device, small=bench.small) for case, _ in cases]
    afters, safety = [after for _, after in texts], [case.safety for case, _ in cases]
    report = bench.report(texts[0][0], afters, safety, rounds=2)
    rows = []
    for (case, right), outcome in zip(cases, report.outcomes, strict=True):
        word = outcome.comparison.word if outcome.comparison else "not-compared"
        fine = (outcome.verdict is Verdict.DIFFERENT) is not right
        truth = "a right fix" if right else "a wrong fix"
        rows.append(Row("precision", case.name, word, truth, outcome.verdict.value, fine))
    return rows


def waits(bench: Bench) -> Jobs:
    """Tell a loader that keeps the device waiting from one that does not."""
    return _with_loaders(bench, _waits)


def tuned(bench: Bench) -> Jobs:
    """Search the settings of a loader that holds up the device, and of one that does not."""
    return _with_loaders(bench, _tuned)


def _with_loaders(bench: Bench, measure: Callable[..., list[Row]]) -> Jobs:
    for name, (seconds, kernels) in WAITS.items():
        text = _loading(bench, seconds, kernels)
        yield name, partial(measure, name=name, text=text, slow=kernels == 0)


def _loading(bench: Bench, seconds: float, kernels: int) -> str:
    text = LOADING.replace("DEVICE", bench.device).replace("SECONDS", str(seconds))
    side = "128" if bench.small else "2048"
    return text.replace("KERNELS", str(kernels)).replace("SIDE", side)


def _waits(bench: Bench, name: str, text: str, slow: bool) -> list[Row]:
    outcome = bench.outcome(text, text)
    share = outcome.wait_share.before
    fine = share is not None and (share > 0.5 if slow else share < 0.2)
    truth = "most of the time" if slow else "little"
    measured = "unknown" if share is None else f"{share:.0%}"
    return [Row("waiting for data", name, measured, truth, outcome.verdict.value, fine)]


def _tuned(bench: Bench, name: str, text: str, slow: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(text, encoding="utf-8")
        kind = bench.device.partition(":")[0]
        budget = "10" if bench.small else "60"
        done = subprocess.run(
            [*_TUNE, "--budget", budget, "--device", kind, "--json"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        return [Row("tune", name, done.stderr.strip()[-160:], "an answer", "failed", False)]
    found = json.loads(done.stdout)["settings"][0]
    choice = int(found["choice"])
    truth = "workers" if slow else "no workers"
    measured = f"num_workers {found['current']} -> {choice}"
    return [Row("tune", name, measured, truth, "", (choice > 0) is slow)]


def hard(bench: Bench) -> Jobs:
    """Run scripts on which a measurement may break: it must answer, and with the reason."""
    for name, (text, change, wanted) in HARD.items():
        before = text.replace("DEVICE", bench.device)
        after = before.replace(*change)
        yield (
            name,
            partial(_hard, name=name, texts=(before, after), wanted=wanted),
        )


def _hard(bench: Bench, name: str, texts: tuple[str, str], wanted: str) -> list[Row]:
    try:
        outcome = bench.outcome(*texts)
    except ScriptError as error:
        said, verdict = error.failure.message, "refused"
    else:
        said = "; ".join(doubt.message for doubt in outcome.doubts) or "measured"
        verdict = outcome.verdict.value
    fine = wanted in said if wanted else verdict in (*_NO_CHANGE, "refused")
    return [Row("hard scripts", name, said[:160], wanted or "no change", verdict, fine)]


def _row(part: str, case: str, outcome: Outcome, truth: str, *, passed: bool) -> Row:
    gain = outcome.speedup
    measured = "not timed"
    if gain is not None:
        measured = f"{gain.ratio:.2f}x ({gain.low:.2f}x to {gain.high:.2f}x)"
    return Row(part, case, measured, truth, outcome.verdict.value, passed)


_NO_CHANGE: Final = (Verdict.SAME, Verdict.UNSURE)
"""The verdicts on a change without effect."""
_TUNE: Final = (sys.executable, "-m", "torchlint", "tune", "train.py")
_BATCHES: Final = 2
_TIMES: Final = 5
"""How often a script is compared with itself, in so many batches of so many times."""
FACTS: Final = {
    "itself": itself,
    "hard scripts": hard,
    "precision": precision,
    "tune": tuned,
    "waiting for data": waits,
    "syncs": syncs,
}
"""Parts that hold whatever else runs, so that their jobs run side by side."""
TIMES: Final = {"known ratios": known}
"""Parts whose jobs run alone."""
PARTS: Final[dict[str, Callable[[Bench], Jobs]]] = {**FACTS, **TIMES}


_ASKED: Final = """
import json, torch
there = torch.accelerator.is_available()
kind = torch.accelerator.current_accelerator().type if there else None
print(json.dumps([torch.__version__, kind, torch.accelerator.device_count() if there else 1]))
"""


def _torch() -> tuple[str, str | None, int]:
    """Return torch's version, its accelerator, and the number of devices; starts none here."""
    done = subprocess.run([sys.executable, "-c", _ASKED], stdout=subprocess.PIPE, check=True)
    version, kind, devices = json.loads(done.stdout)
    return version, kind, devices


class Results:
    """The rows of this device and torch, in a file."""

    def __init__(self, folder: Path, device: str, version: str, *, again: bool) -> None:
        self._file = folder / "gpu-proof.json"
        self._key = {"device": device, "torch": version}
        self._lock = threading.Lock()
        self._machine: dict[str, Any] = {}
        self.parts: dict[str, dict[str, list[dict[str, Any]]]] = {}
        if self._file.exists() and not again:
            before = json.loads(self._file.read_bytes())
            if {name: before.get(name) for name in self._key} == self._key:
                self.parts, self._machine = before["parts"], before["machine"]

    def has(self, part: str, job: str) -> bool:
        """Return whether a job was measured."""
        return job in self.parts.get(part, {})

    def keep(self, part: str, job: str, rows: list[Row], machine: dict[str, Any]) -> None:
        """Store the rows of a job, as JSON and as a table."""
        with self._lock:
            self._machine = machine or self._machine
            self.parts.setdefault(part, {})[job] = [asdict(row) for row in rows]
            today = datetime.date.today().isoformat()
            head = {**self._key, "machine": self._machine, "date": today}
            document = {**head, "parts": self.parts}
            self._file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
            self._file.with_suffix(".md").write_text(self._table(), encoding="utf-8")

    @property
    def _rows(self) -> list[dict[str, Any]]:
        return [row for part in PARTS for rows in self.parts.get(part, {}).values() for row in rows]

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The rows that are not as they must be."""
        return [row for row in self._rows if not row["passed"]]

    def _table(self) -> str:
        names = ", ".join(self._machine.get("names", ())) or self._key["device"]
        lines = [f"# Measured on {names}, torch {self._key['torch']}", ""]
        lines += ["| part | case | measured | truth | verdict | |", "|---|---|---|---|---|---|"]
        for row in self._rows:
            told = (row["part"], row["case"], row["measured"], row["truth"], row["verdict"])
            cells = (str(text).replace("|", "\\|") for text in told)
            lines.append(f"| {' | '.join(cells)} | {'pass' if row['passed'] else 'FAIL'} |")
        return "\n".join(lines) + "\n"


def measure(bench: Bench, results: Results, part: str, name: str, job: Job) -> None:
    """Do one job, print its rows and keep them."""
    began = time.monotonic()
    try:
        rows = job(bench)
    except Exception as error:
        traceback.print_exc()
        rows = [Row(part, name, repr(error)[:160], "no error", "failed", False)]
    results.keep(part, name, rows, bench.machine)
    for row in rows:
        sign = "pass" if row.passed else "FAIL"
        seconds = f"[{time.monotonic() - began:.0f} s]"
        told = f"{sign}  {part}: {row.case}: {row.measured} (truth: {row.truth}) {seconds}"
        print(told, flush=True)


def main() -> None:
    """Measure every job that is missing, and print its rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--device", help="by default the accelerator of this machine")
    parser.add_argument("--small", action="store_true", help="a rehearsal: few steps and rounds")
    parser.add_argument("--into", type=Path, default=HERE, metavar="FOLDER")
    parser.add_argument("--again", action="store_true", help="measure what is measured, too")
    given = parser.parse_args()
    version, accelerator, devices = _torch()
    device = given.device or accelerator
    if device is None:
        print("this torch sees no accelerator; `--device cpu --small` rehearses on the CPU")
        sys.exit(2)
    bench = Bench(device, given.small, devices)
    results = Results(given.into, device, version, again=given.again)
    wanted = given.parts or PARTS
    for parts, jobs_at_once in ((FACTS, max(1, (os.cpu_count() or 1) - 1)), (TIMES, 1)):
        todo = [
            (part, name, job)
            for part in parts
            if part in wanted
            for name, job in PARTS[part](bench)
            if not results.has(part, name)
        ]
        with ThreadPoolExecutor(jobs_at_once) as pool:
            for each in todo:
                pool.submit(measure, bench, results, *each)
    print(f"{len(results.failed)} rows are not as they must be")
    sys.exit(1 if results.failed else 0)


if __name__ == "__main__":
    main()
