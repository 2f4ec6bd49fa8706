"""Count how often `verify` calls a change without effect faster.

    python benchmarks/falsealarms.py              # five scripts, twenty runs each
    python benchmarks/falsealarms.py --runs 2     # a first look
    python benchmarks/falsealarms.py --pretend --runs 12 --kept pretend.json

Five fixtures that train on a CPU are compared with themselves after a change without effect: a
comment, a docstring, another name, an unused import, two statements in the other order. With
`--pretend` five scripts train on the pretend accelerator of the tests, whose kernels and host take
other times in each process and in each step. The verdict is that of `verify`, with shorter windows
so that a hundred runs end within a day. The verdicts are stored in a file, from which an
interrupted count continues.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torchlint.finding import Safety
from torchlint.harness.plan import Plan, Variant
from torchlint.harness.session import Session

ROOT: Final = Path(__file__).resolve().parents[1]
FIXTURES: Final = ROOT / "fixtures" / "rules"
_OPTIMIZER: Final = "    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)\n"
MOST: Final = 0.05
"""The share of runs that may be called faster."""


@dataclass(frozen=True)
class Change:
    """A change without effect: its name, the script to change, and both texts."""

    name: str
    script: Path
    before: str
    after: str

    @property
    def variant(self) -> Variant:
        """The changed script, as a variant that promises equal numbers."""
        text = self.script.read_text(encoding="utf-8")
        assert self.before in text, self.name
        changed = text.replace(self.before, self.after)
        return Variant("rule", ("NONE",), Safety.EXACT, {str(self.script): changed})


CHANGES: Final[Sequence[Change]] = (
    Change(
        "a comment",
        FIXTURES / "tl801_anomaly_detection" / "fast.py",
        "            optimizer.step()\n",
        "            # Down the hill.\n            optimizer.step()\n",
    ),
    Change(
        "a docstring",
        FIXTURES / "tl315_discarded_attention_weights" / "fast.py",
        "    def forward(self, numbers):\n",
        '    def forward(self, numbers):\n        """Give the place of the largest."""\n',
    ),
    Change(
        "another name",
        FIXTURES / "tl502_zeroed_gradients" / "fast.py",
        "chosen",
        "picked",
    ),
    Change(
        "an unused import",
        FIXTURES / "tl401_bias_before_batchnorm" / "fast.py",
        "import torch\n",
        "import string\n\nimport torch\n",
    ),
    Change(
        "two statements in the other order",
        FIXTURES / "tl203_created_on_host" / "fast.py",
        f"{_OPTIMIZER}    losses = []\n",
        f"    losses = []\n{_OPTIMIZER}",
    ),
)
_PRETEND: Final = """
import random
import torch
from harness.pretend import accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

dice = random.SystemRandom()
speed = dice.gauss(1, PROCESS) * (SLOW if dice.random() < 0.1 else 1)
device = torch.device("pretend", INDEX)
torch.manual_seed(0)
net = nn.Sequential(*(nn.Linear(16, 16) for _ in range(8)), nn.Linear(16, 1)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = TensorDataset(torch.randn(4096, 16))
for epoch in range(100):
    for (x,) in DataLoader(data, 8, pin_memory=True):
        accelerator.configure(kernel=abs(KERNEL * speed * dice.gauss(1, STEP)))
        accelerator.work(dice.expovariate(1 / HOST))
        x = x.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        SYNC
"""
_USUAL: Final = {
    "INDEX": "0",
    "KERNEL": "3e-4",
    "PROCESS": "0.01",
    "STEP": "0.05",
    "SLOW": "1.0",
    "HOST": "1e-3",
    "SYNC": "",
}
_SCRIPTS: Final[dict[str, dict[str, str]]] = {
    "quiet": {"PROCESS": "0.002", "STEP": "0.01"},
    "other kernels in each process": {"PROCESS": "0.03"},
    "a tenth of the processes slowed down": {"SLOW": "1.2", "INDEX": "1"},
    "steps that scatter": {"STEP": "0.3", "SYNC": "loss.item()"},
    "a host that keeps the device waiting": {"HOST": "2e-2", "SYNC": "loss.item()"},
}
"""Scripts on the pretend accelerator, with the words in which each differs from the usual one."""


def pretended(folder: Path) -> Sequence[Change]:
    """Write the scripts that train on the pretend accelerator, and return a change of each."""
    found = []
    for at, (name, words) in enumerate(_SCRIPTS.items()):
        text = _PRETEND
        for word, value in {**_USUAL, **words}.items():
            text = text.replace(word, value)
        script = folder / f"train{at}.py"
        script.write_text(text, encoding="utf-8")
        found.append(
            Change(name, script, "optimizer.step()\n", "optimizer.step()  # Down the hill.\n")
        )
    return found


def verdict(change: Change, device: str) -> tuple[str, str]:
    """Measure a change once, and return the verdict with its doubts."""
    plan = Plan(
        change.script, steps=30, warmup=5, rounds=3, device=device, timeout=120, most_rounds=6
    )
    with Session(plan) as session:
        (outcome,) = session.measure([change.variant]).outcomes
    reasons = [doubt.message for doubt in outcome.doubts]
    if outcome.comparison and outcome.comparison.differs_at is not None:
        reasons.append(f"losses differ from step {outcome.comparison.differs_at} on")
    return outcome.verdict.value, "; ".join(reasons)


def main() -> None:
    """Make the missing measurements and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20, help="runs of each script")
    parser.add_argument("--kept", type=Path, default=Path("falsealarms.json"), metavar="FILE")
    parser.add_argument("--pretend", action="store_true", help="on the pretend accelerator")
    given = parser.parse_args()
    changes: Sequence[Change] = CHANGES
    device = "cpu"
    if given.pretend:
        paths = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        folder = tempfile.TemporaryDirectory()
        changes, device = pretended(Path(folder.name)), "auto"
    kept: dict[str, list[str]] = json.loads(given.kept.read_bytes()) if given.kept.exists() else {}
    for at in range(given.runs):
        for change in changes:
            verdicts = kept.setdefault(change.name, [])
            if len(verdicts) > at:
                continue
            began = time.monotonic()
            name, why = verdict(change, device)
            verdicts.append(name)
            given.kept.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
            seconds = time.monotonic() - began
            print(
                f"{at + 1}/{given.runs} {change.name}: {name} [{seconds:.0f} s]"
                f"{' ' if why else ''}{why}",
                flush=True,
            )
    for name, verdicts in kept.items():
        print(f"{name}: {dict(Counter(verdicts))}")
    everything = [each for verdicts in kept.values() for each in verdicts]
    faster = everything.count("FASTER")
    print(f"{faster} of {len(everything)} called faster ({faster / len(everything):.1%})")
    sys.exit(faster / len(everything) > MOST)


if __name__ == "__main__":
    main()
