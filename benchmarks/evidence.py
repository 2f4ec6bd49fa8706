"""Measure the gain of each rule's fix on its fixture, and store it as evidence.

    python benchmarks/evidence.py                 # every rule, on the present device
    python benchmarks/evidence.py TL101 TL801     # some rules
    python -m torchlint.docs                      # gather it for `explain` and the pages

Each fixture's `slow.py` runs against its `fast.py`, as `torchlint verify` runs a script against its
fixed self. The results go to `fixtures/rules/*/evidence.json`, one entry for each device and
version of torch. An interrupted run can be continued: existing results for the same texts, device
and torch are kept, unless `--again` is given. Nothing is measured until it decides: a
second measurement takes the place of the first, however it ends. Rules about several processes
run under torchrun, with two processes on a CPU, or one on each of several GPUs. Only Python 3.10,
torch and NumPy are needed; `PYTHONPATH=.` replaces an installation.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torchlint.finding import Safety
from torchlint.harness.judging.verdict import Outcome, Report, Verdict, judge_speed
from torchlint.harness.plan import Launcher, Plan, Variant
from torchlint.harness.session import ScriptError, Session

FIXTURES: Final = Path(__file__).resolve().parents[1] / "fixtures" / "rules"
EVIDENCE: Final = "evidence.json"
LAUNCHED: Final = frozenset({"TL701", "TL704", "TL705"})
"""Rules whose gain is between processes."""
_CLASS: Final = re.compile(r"\((exact|close|unsafe) fix\)$", re.MULTILINE)


@dataclass(frozen=True)
class Machine:
    """The machine for the fixtures: the device as `verify` takes it, and its full name."""

    device: str
    name: str
    torch: str
    devices: int

    @classmethod
    def at_hand(cls, device: str) -> Machine:
        """Return this machine; `auto` prefers a GPU."""
        import torch

        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        version = str(torch.__version__).partition("+")[0]
        if device == "cpu":
            return cls(device, f"CPU ({os.cpu_count()} cores)", version, 1)
        return cls(device, torch.cuda.get_device_name(device), version, torch.cuda.device_count())

    def launcher(self, code: str) -> Launcher | None:
        """Return the launcher for the fixture of a rule, None for one process."""
        if code not in LAUNCHED:
            return None
        return Launcher(2 if self.device == "cpu" else self.devices)


@dataclass(frozen=True)
class Fixture:
    """A rule's folder: a script, and the same script fixed."""

    folder: Path

    @property
    def code(self) -> str:
        """The rule's code, with which the name of the folder begins."""
        return self.folder.name.partition("_")[0].upper()

    @property
    def texts(self) -> str:
        """A digest of both texts: measurements of other texts are no evidence."""
        both = (self.folder / "slow.py").read_bytes() + (self.folder / "fast.py").read_bytes()
        return hashlib.sha256(both).hexdigest()[:12]

    @property
    def variant(self) -> Variant:
        """The fixed text, and the least safety class of its fixes."""
        written = (self.folder / "findings.txt").read_text(encoding="utf-8")
        safety = min(Safety[found.upper()] for found in _CLASS.findall(written))
        fixed = (self.folder / "fast.py").read_text(encoding="utf-8")
        return Variant("rule", (self.code,), safety, {str(self.folder / "slow.py"): fixed})

    def kept(self) -> list[dict[str, Any]]:
        """Return the earlier measurements."""
        file = self.folder / EVIDENCE
        read: list[dict[str, Any]] = json.loads(file.read_bytes()) if file.exists() else []
        return read

    def measured_on(self, machine: Machine) -> dict[str, Any] | None:
        """Return the measurement of these texts on this machine."""
        key = machine.name, machine.torch, self.texts
        entries = self.kept()
        return next((it for it in entries if (it["device"], it["torch"], it["texts"]) == key), None)

    def keep(self, fresh: dict[str, Any]) -> None:
        """Store a measurement, replacing an older one for the same device and version of torch."""
        others = [
            each
            for each in self.kept()
            if (each["device"], each["torch"]) != (fresh["device"], fresh["torch"])
        ]
        text = json.dumps([*others, fresh], indent=2) + "\n"
        (self.folder / EVIDENCE).write_text(text, encoding="utf-8")


def fixtures(codes: list[str]) -> list[Fixture]:
    """Return the fixtures of these rules, or of all rules with a fix if there are none."""
    found = [Fixture(folder) for folder in sorted(FIXTURES.iterdir()) if folder.is_dir()]
    return [
        fixture
        for fixture in found
        if (fixture.code in codes or not codes)
        and (fixture.folder / "slow.py").read_bytes() != (fixture.folder / "fast.py").read_bytes()
    ]


def measured(fixture: Fixture, machine: Machine, rounds: int, timeout: float) -> Report:
    """Verify a fixture; raises `ScriptError`."""
    launcher = machine.launcher(fixture.code)
    plan = Plan(
        fixture.folder / "slow.py",
        device=machine.device,
        rounds=2 if launcher else rounds,
        timeout=timeout,
        launcher=launcher,
    )
    with Session(plan) as session:
        return session.measure([fixture.variant])


def entry(fixture: Fixture, machine: Machine, report: Report, outcome: Outcome) -> dict[str, Any]:
    """Return the entry for one measurement, whose verdict is on the speed alone."""
    speedup, noise = outcome.speedup, report.noise
    assert speedup is not None
    assert noise is not None
    return {
        "device": machine.name,
        "torch": machine.torch,
        "verdict": judge_speed(speedup, noise).value,
        "speedup": {"ratio": round(speedup.ratio, 3), **_bounds(speedup)},
        "noise": _bounds(noise),
        "numbers": outcome.comparison.word if outcome.comparison else "not-compared",
        "processes": report.launcher.nproc_per_node if report.launcher else 1,
        "steps": report.steps,
        "rounds": report.rounds,
        "texts": fixture.texts,
        "date": datetime.date.today().isoformat(),
        "command": f"python benchmarks/evidence.py --device {machine.device} {fixture.code}",
    }


def _bounds(interval: Any) -> dict[str, float]:
    return {"low": round(interval.low, 3), "high": round(interval.high, 3)}


def measured_line(
    fixture: Fixture, machine: Machine, rounds: int, timeout: float
) -> tuple[str, bool]:
    """Measure a fixture and store the result; return a line, and whether it is evidence."""
    try:
        report = measured(fixture, machine, rounds, timeout)
    except ScriptError as error:
        return f"cannot be measured: {error}", False
    (outcome,) = report.outcomes
    if outcome.speedup is None:
        doubts = "; ".join(doubt.message for doubt in outcome.doubts)
        return f"{outcome.verdict.value}, so it was not timed{doubts and ': ' + doubts}", False
    fresh = entry(fixture, machine, report, outcome)
    fixture.keep(fresh)
    gain = fresh["speedup"]
    words = f"{fresh['verdict']} {gain['ratio']:.2f} ({gain['low']:.2f} to {gain['high']:.2f})"
    return f"{words}, numbers {fresh['numbers']}", fresh["verdict"] != Verdict.UNSURE.value


def main() -> None:
    """Measure the given fixtures and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("codes", nargs="*", metavar="CODE", type=str.upper)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=60, help="seconds that one run may take")
    parser.add_argument("--minutes", type=float, help="begin no further rule after so many")
    parser.add_argument("--again", action="store_true", help="measure what is measured, too")
    given = parser.parse_args()
    machine = Machine.at_hand(given.device)
    wanted = fixtures(given.codes)
    todo = [each for each in wanted if given.again or each.measured_on(machine) is None]
    done = len(wanted) - len(todo)
    print(
        f"{len(todo)} rules on {machine.name}, torch {machine.torch}; {done} are kept", flush=True
    )
    began = time.monotonic()
    open_rules = []
    for at, fixture in enumerate(todo, 1):
        if given.minutes and time.monotonic() - began > 60 * given.minutes:
            print(f"time is up: run it again for the other {len(todo) - at + 1}")
            break
        if machine.launcher(fixture.code) == Launcher(1):
            print(f"{at}/{len(todo)} {fixture.code} needs several GPUs", flush=True)
            continue
        start = time.monotonic()
        line, evident = measured_line(fixture, machine, given.rounds, given.timeout)
        if not evident:
            open_rules.append(fixture.code)
        seconds = time.monotonic() - start
        print(f"{at}/{len(todo)} {fixture.code} {line} [{seconds:.0f} s]", flush=True)
    if open_rules:
        print(f"no evidence came out of: {' '.join(open_rules)}")
        sys.exit(1)


if __name__ == "__main__":
    main()
