"""Count how often `verify` calls a change without effect faster.

    python benchmarks/falsealarms.py              # five scripts, twenty runs each
    python benchmarks/falsealarms.py --runs 2     # a first look

Five fixtures that train on a CPU are compared with themselves after a change without effect: a
comment, a docstring, another name, an unused import, two statements in the other order. The verdict
is that of `verify`, with shorter windows so that a hundred runs end within a day. The verdicts are
stored in a file, from which an interrupted count continues.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torchlint.finding import Safety
from torchlint.harness.plan import Plan, Variant
from torchlint.harness.session import Session

FIXTURES: Final = Path(__file__).resolve().parents[1] / "fixtures" / "rules"
_OPTIMIZER: Final = "    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)\n"
MOST: Final = 0.05
"""The share of runs that may be called faster."""


@dataclass(frozen=True)
class Change:
    """A change without effect: its name, its fixture, and both texts."""

    name: str
    fixture: str
    before: str
    after: str

    @property
    def script(self) -> Path:
        """The script to change."""
        return FIXTURES / self.fixture / "fast.py"

    @property
    def variant(self) -> Variant:
        """The changed script, as a variant that promises equal numbers."""
        text = self.script.read_text(encoding="utf-8")
        assert self.before in text, self.name
        changed = text.replace(self.before, self.after)
        return Variant("rule", ("NONE",), Safety.EXACT, {str(self.script): changed})


CHANGES: Final = (
    Change(
        "a comment",
        "tl801_anomaly_detection",
        "            optimizer.step()\n",
        "            # Down the hill.\n            optimizer.step()\n",
    ),
    Change(
        "a docstring",
        "tl315_discarded_attention_weights",
        "    def forward(self, numbers):\n",
        '    def forward(self, numbers):\n        """Give the place of the largest."""\n',
    ),
    Change(
        "another name",
        "tl502_zeroed_gradients",
        "chosen",
        "picked",
    ),
    Change(
        "an unused import",
        "tl401_bias_before_batchnorm",
        "import torch\n",
        "import string\n\nimport torch\n",
    ),
    Change(
        "two statements in the other order",
        "tl203_created_on_host",
        f"{_OPTIMIZER}    losses = []\n",
        f"    losses = []\n{_OPTIMIZER}",
    ),
)


def verdict(change: Change) -> tuple[str, str]:
    """Measure a change once, and return the verdict with its doubts."""
    plan = Plan(change.script, steps=30, warmup=5, rounds=2, device="cpu", timeout=120)
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
    given = parser.parse_args()
    kept: dict[str, list[str]] = json.loads(given.kept.read_bytes()) if given.kept.exists() else {}
    for at in range(given.runs):
        for change in CHANGES:
            verdicts = kept.setdefault(change.name, [])
            if len(verdicts) > at:
                continue
            began = time.monotonic()
            name, why = verdict(change)
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
