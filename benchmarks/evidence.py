"""Measure what each rule's fix gains, on its fixture, and keep that as evidence.

    python benchmarks/evidence.py                 # every rule, on the device that is there
    python benchmarks/evidence.py TL101 TL801     # some rules
    python -m torchlint.docs                      # gather it for `explain` and the pages

Each fixture's `slow.py` runs against its `fast.py`, as `torchlint verify` runs a script against its
fixed self. What came out goes to `fixtures/rules/*/evidence.json`, one entry for each device and
version of torch; a newer one takes the place of an older. The two texts are all that is needed:
Python 3.10, torch and NumPy, neither LibCST nor click; `PYTHONPATH=.` will do for an installation.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from torchlint.finding import Safety
from torchlint.harness.plan import Plan, Variant
from torchlint.harness.session import ScriptError, Session
from torchlint.harness.verdict import Outcome, Report

FIXTURES: Final = Path(__file__).resolve().parents[1] / "fixtures" / "rules"
EVIDENCE: Final = "evidence.json"
_CLASS: Final = re.compile(r"\((exact|close|unsafe) fix\)$", re.MULTILINE)


def fixtures(codes: list[str]) -> Iterator[Path]:
    """Yield the folders of the rules that are asked for, of all that rewrite something for none."""
    for folder in sorted(FIXTURES.iterdir()):
        if codes and code_of(folder) not in codes:
            continue
        if (folder / "slow.py").read_bytes() != (folder / "fast.py").read_bytes():
            yield folder


def code_of(folder: Path) -> str:
    """Give the code that a fixture's folder begins with."""
    return folder.name.partition("_")[0].upper()


def variant(folder: Path) -> Variant:
    """Give a fixture's fixed text, and the least that its fixes promise."""
    written = (folder / "findings.txt").read_text(encoding="utf-8")
    safety = min(Safety[found.upper()] for found in _CLASS.findall(written))
    fixed = (folder / "fast.py").read_text(encoding="utf-8")
    return Variant("rule", (code_of(folder),), safety, {str(folder / "slow.py"): fixed})


def measured(folder: Path, device: str, rounds: int) -> Report:
    """Run a fixture against what its rule makes of it; raises `ScriptError`."""
    with Session(Plan(folder / "slow.py", device=device, rounds=rounds)) as session:
        return session.measure([variant(folder)])


def entry(report: Report, outcome: Outcome, command: str) -> dict[str, Any]:
    """Give what is kept of one measurement."""
    speedup, noise = outcome.speedup, report.noise
    assert speedup is not None
    return {
        "device": report.device,
        "torch": report.torch,
        "verdict": outcome.verdict.value,
        "speedup": {"ratio": _rounded(speedup.ratio), **_bounds(speedup)},
        "noise": _bounds(noise) if noise is not None else None,
        "date": datetime.date.today().isoformat(),
        "command": command,
    }


def _bounds(interval: Any) -> dict[str, float]:
    return {"low": _rounded(interval.low), "high": _rounded(interval.high)}


def _rounded(value: float) -> float:
    return round(value, 3)


def keep(folder: Path, fresh: dict[str, Any]) -> None:
    """Put a measurement in place of an older one of the same device and version of torch."""
    file = folder / EVIDENCE
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    others = [
        each
        for each in kept
        if (each["device"], each["torch"]) != (fresh["device"], fresh["torch"])
    ]
    text = json.dumps([*others, fresh], indent=2) + "\n"
    file.write_text(text, encoding="utf-8")


def main() -> None:
    """Measure the fixtures that are asked for and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("codes", nargs="*", metavar="CODE", type=str.upper)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    command = " ".join(["python benchmarks/evidence.py", *sys.argv[1:]])
    for folder in fixtures(given.codes):
        try:
            report = measured(folder, given.device, given.rounds)
        except ScriptError as error:
            print(f"{code_of(folder)} cannot be measured: {error}", flush=True)
            continue
        (outcome,) = report.outcomes
        if outcome.speedup is None:
            doubts = "; ".join(doubt.message for doubt in outcome.doubts)
            print(f"{code_of(folder)} {outcome.verdict.value}, not timed: {doubts}", flush=True)
            continue
        fresh = entry(report, outcome, command)
        keep(folder, fresh)
        gain = fresh["speedup"]
        print(
            f"{code_of(folder)} {fresh['verdict']} {gain['ratio']} "
            f"({gain['low']} to {gain['high']}) on {fresh['device']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
