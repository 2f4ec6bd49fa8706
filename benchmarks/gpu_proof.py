"""Prove on a real device that `verify` tells the truth, and write down what it told.

    make gpu-bundle                          # a machine with a network: everything in one archive
    make gpu-proof                           # the machine with the GPU, in the unpacked archive
    python benchmarks/gpu_proof.py --device cpu --small --into /tmp/proof      # a rehearsal

It needs Python 3.10, torch, NumPy and psutil, and no network. Each part prints its rows as they are
measured; a part that fails stops no other. What was measured on this device and torch is kept, so
that a second call goes on, unless `--again` is given. `gpu-proof.json` and `gpu-proof.md` are to be
committed as they are. Exit code 1 if a row is not as it must be, 2 without an accelerator.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from gpu_cases import ITSELF, KNOWN, PRECISION, SYNCS, WAITS, plain

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

    def report(self, before: str, after: str, safety: Safety = Safety.EXACT) -> Report:
        """Verify a changed script."""
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "train.py")
            script.write_text(before, encoding="utf-8")
            variant = Variant("rule", ("TL000",), safety, {str(script): after + "# changed\n"})
            steps = (8, 3, 2) if self.small else (50, 10, 3)
            kind = self.device.partition(":")[0]
            plan = Plan(script, (), *steps, device=kind, timeout=120)
            with Session(plan) as session:
                report = session.measure([variant])
        self.machine = dict(report.machine) or self.machine
        return report

    def truth(self, before: str, after: str) -> float:
        """Return how many times faster a script is by its own clock, both run in turns."""
        seconds: list[list[float]] = [[], []]
        for at in range(2 if self.small else 6):
            text = plain((before, after)[at % 2], 20 if self.small else 200)
            done = subprocess.run(
                [sys.executable, "-c", text], capture_output=True, text=True, check=True
            )
            seconds[at % 2].append(float(done.stdout.split()[-1]))
        return median(seconds[0]) / median(seconds[1])


Part = Callable[[Bench], Iterator[Row]]


def itself(bench: Bench) -> Iterator[Row]:
    """Compare scripts with themselves: no verdict may be FASTER or SLOWER."""
    for case in ITSELF:
        text, _ = case.texts(bench.device, small=bench.small)
        for number in range(1 if bench.small else 20):
            outcome = bench.report(text, text).outcomes[0]
            fine = outcome.verdict in (Verdict.SAME, Verdict.UNSURE)
            yield _row("itself", f"{case.name}, run {number + 1}", outcome, "1.00x", passed=fine)


def known(bench: Bench) -> Iterator[Row]:
    """Compare measured ratios with those of the scripts' own clock."""
    for case in KNOWN:
        if case.least_devices > bench.devices:
            continue
        before, after = case.texts(bench.device, small=bench.small)
        outcome = bench.report(before, after).outcomes[0]
        truth = bench.truth(before, after)
        gain = outcome.speedup
        fine = gain is not None and abs(gain.ratio / truth - 1) < OFF
        yield _row("known ratios", case.name, outcome, f"{truth:.2f}x", passed=fine)


def syncs(bench: Bench) -> Iterator[Row]:
    """Count the waits of a step: each once, on the line of the script."""
    for case in SYNCS[:1] if bench.small else SYNCS:
        before, after = case.texts(bench.device, small=bench.small)
        outcome = bench.report(before, after).outcomes[0]
        lines = {site.line for site in outcome.before.sync_sites}
        wanted = {at for at, line in enumerate(before.splitlines(), 1) if "loss.item()" in line}
        found = outcome.syncs.before, outcome.syncs.after
        measured = f"{found[0]} -> {found[1]} at lines {sorted(lines)}"
        fine = found == (2.0, 0.0) and lines == wanted
        truth = f"2.0 -> 0.0 at lines {sorted(wanted)}"
        yield Row("syncs", case.name, measured, truth, outcome.verdict.value, fine)


def precision(bench: Bench) -> Iterator[Row]:
    """Compare numbers in several precisions: a right fix is kept, a wrong one is found."""
    for case, right in PRECISION[:3] if bench.small else PRECISION:
        if bench.device == "cpu" and ("float16 a" in case.name or "TF32" in case.name):
            continue
        before, after = case.texts(bench.device, small=bench.small)
        outcome = bench.report(before, after, case.safety).outcomes[0]
        word = outcome.comparison.word if outcome.comparison else "not-compared"
        fine = (outcome.verdict is Verdict.DIFFERENT) is not right
        truth = "a right fix" if right else "a wrong fix"
        yield Row("precision", case.name, word, truth, outcome.verdict.value, fine)


def waits(bench: Bench) -> Iterator[Row]:
    """Tell a loader that keeps the device waiting from one that does not."""
    for name, seconds in WAITS.items():
        text = _LOADING.replace("DEVICE", bench.device).replace("SECONDS", str(seconds))
        outcome = bench.report(text, text).outcomes[0]
        share = outcome.wait_share.before
        fine = share is not None and (share > 0.5 if seconds else share < 0.5)
        truth = "most of the time" if seconds else "little"
        measured = "unknown" if share is None else f"{share:.0%}"
        yield Row("waiting for data", name, measured, truth, outcome.verdict.value, fine)


def hard(bench: Bench) -> Iterator[Row]:
    """Run scripts on which a measurement may break: it must answer, and with the reason."""
    for name, (text, change, wanted) in _HARD.items():
        before = text.replace("DEVICE", bench.device)
        try:
            outcome = bench.report(before, before.replace(*change)).outcomes[0]
        except ScriptError as error:
            said, verdict = error.failure.message, "refused"
        else:
            said = "; ".join(doubt.message for doubt in outcome.doubts) or "measured"
            verdict = outcome.verdict.value
        yield Row("hard scripts", name, said[:160], wanted or "any answer", verdict, wanted in said)


def _row(part: str, case: str, outcome: Outcome, truth: str, *, passed: bool) -> Row:
    gain = outcome.speedup
    measured = "not timed"
    if gain is not None:
        measured = f"{gain.ratio:.2f}x ({gain.low:.2f}x to {gain.high:.2f}x)"
    return Row(part, case, measured, truth, outcome.verdict.value, passed)


_LOADING: Final = """
import time
import torch

class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 4096
    def __getitem__(self, index):
        time.sleep(SECONDS)
        return torch.full((64,), index / 4096)

layers = [torch.nn.Linear(256 if at else 64, 256) for at in range(24)]
net = torch.nn.Sequential(*layers).to("DEVICE")
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for x in torch.utils.data.DataLoader(Items(), batch_size=8):
    optimizer.zero_grad()
    net(x.to("DEVICE")).pow(2).mean().backward()
    optimizer.step()
"""
_HARD: Final = {
    "a compiled optimizer step": (
        """
import torch
net = torch.nn.Linear(64, 64).to("DEVICE")
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
optimizer.step = torch.compile(optimizer.step)
for at in range(200):
    optimizer.zero_grad()
    net(torch.randn(8, 64, device="DEVICE")).pow(2).mean().backward()
    optimizer.step()
""",
        ("lr=1e-3", "lr=0.001"),
        "",
    ),
    "a fix that runs out of memory": (
        """
import torch
net = torch.nn.Linear(64, 64).to("DEVICE")
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
size = 64
for at in range(200):
    optimizer.zero_grad()
    net(torch.randn(size, 64, device="DEVICE")).pow(2).mean().backward()
    optimizer.step()
""",
        ("size = 64", "size = 1 << 44"),
        "memory",
    ),
    "a CUDA graph": (
        """
import torch
net = torch.nn.Linear(64, 64).to("DEVICE")
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
x = torch.randn(8, 64, device="DEVICE")
def step():
    optimizer.zero_grad(set_to_none=False)
    net(x).pow(2).mean().backward()
    optimizer.step()
if x.is_cuda:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for at in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for at in range(200):
        graph.replay()
else:
    for at in range(200):
        step()
""",
        ("range(200)", "range(100 * 2)"),
        "",
    ),
}
"""Scripts, a change, and words that the answer must hold."""

PARTS: Final[dict[str, Part]] = {
    "known ratios": known,
    "syncs": syncs,
    "precision": precision,
    "waiting for data": waits,
    "hard scripts": hard,
    "itself": itself,
}


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
        self.parts: dict[str, list[dict[str, Any]]] = {}
        if self._file.exists() and not again:
            before = json.loads(self._file.read_bytes())
            if {name: before.get(name) for name in self._key} == self._key:
                self.parts = before["parts"]

    def keep(self, part: str, rows: list[Row], bench: Bench) -> None:
        """Store the rows of a part, as JSON and as a table."""
        self.parts[part] = [asdict(row) for row in rows]
        head = {**self._key, "machine": bench.machine, "date": datetime.date.today().isoformat()}
        document = {**head, "parts": self.parts}
        self._file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        self._file.with_suffix(".md").write_text(self._table(bench), encoding="utf-8")

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The rows that are not as they must be."""
        return [row for rows in self.parts.values() for row in rows if not row["passed"]]

    def _table(self, bench: Bench) -> str:
        names = ", ".join(bench.machine.get("names", ())) or self._key["device"]
        lines = [f"# Measured on {names}, torch {self._key['torch']}", ""]
        lines += ["| part | case | measured | truth | verdict | |", "|---|---|---|---|---|---|"]
        for rows in self.parts.values():
            for row in rows:
                told = (row["part"], row["case"], row["measured"], row["truth"], row["verdict"])
                cells = (str(text).replace("|", "\\|") for text in told)
                lines.append(f"| {' | '.join(cells)} | {'pass' if row['passed'] else 'FAIL'} |")
        return "\n".join(lines) + "\n"


def main() -> None:
    """Measure every part that is missing, and print its rows."""
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
    for name in given.parts or PARTS:
        if name in results.parts:
            continue
        began = time.monotonic()
        rows = []
        try:
            for row in PARTS[name](bench):
                rows.append(row)
                sign = "pass" if row.passed else "FAIL"
                print(
                    f"{sign}  {name}: {row.case}: {row.measured} (truth: {row.truth})", flush=True
                )
        except Exception as error:
            traceback.print_exc()
            rows.append(
                Row(name, "the part itself", repr(error)[:160], "no error", "failed", False)
            )
        results.keep(name, rows, bench)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(results.failed)} rows are not as they must be")
    sys.exit(1 if results.failed else 0)


if __name__ == "__main__":
    main()
