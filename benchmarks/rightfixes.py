"""Count right fixes that are called wrong, and wrong ones that are not, behind noisy kernels.

    python benchmarks/rightfixes.py               # ten models, in two precisions, with three noises
    python benchmarks/rightfixes.py --cases 10    # a first look

Each model trains as it is, with an exact fix, with a close one, and with a wrong one that calls
itself exact. Gradients are as a device's kernels make them: equal in every run, or off by rounding
in each run, or in a third of the runs. Numbers are compared as `verify` does, and nothing is timed.
The verdicts are stored in a file, from which an interrupted count continues.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

from torchlint.finding import Safety
from torchlint.harness.judging.parity import Parity
from torchlint.harness.plan import ORIGINAL, Mode, Plan, Variant
from torchlint.harness.runs.runner import Runner
from torchlint.harness.trace import Trace

_TRAINING: Final = """\
import math
import random
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        LAYERS

    def forward(self, x):
        FORWARD


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
dice = random.SystemRandom()
noise = NOISE
for parameter in net.parameters():
    parameter.register_hook(lambda gradient: gradient * (1 + noise * dice.uniform(-1, 1)))
total = 0.0
for step in range(1000):
    x = torch.randn(8, 6, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=AUTOCAST):
        out = net(x)
    loss = (out.float() - x.sum((1, 2))[:, None].sin()).pow(2).mean()
    loss.backward()
    optimizer.step()
    total += loss.item()
"""
EXACT: Final = ("total += loss.item()", "total = total + loss.detach()")
_LINEAR: Final = "self.a, self.b = nn.Linear(96, 64), nn.Linear(64, 1)"
_TOKENS: Final = "self.a, self.b = nn.Linear(16, 48), nn.Linear(96, 1)"
_CUT: Final = "q, k, v = self.a(x).chunk(3, -1); "
_SOFTMAX: Final = "torch.softmax(q @ k.transpose(1, 2) / 4.0, -1) @ v"


@dataclass(frozen=True)
class Model:
    """A network, with a part that a close fix replaces, and a wrong change."""

    name: str
    layers: str
    forward: str
    close: tuple[str, str]
    wrong: tuple[str, str]


MODELS: Final = (
    Model(
        "GELU by hand",
        _LINEAR,
        "h = self.a(x.flatten(1)); return self.b(0.5 * h * (1 + torch.erf(h / math.sqrt(2))))",
        ("0.5 * h * (1 + torch.erf(h / math.sqrt(2)))", "F.gelu(h)"),
        ("lr=1e-3", "lr=2e-3"),
    ),
    Model(
        "SiLU by hand",
        _LINEAR,
        "h = self.a(x.flatten(1)); return self.b(h * torch.sigmoid(h))",
        ("h * torch.sigmoid(h)", "F.silu(h)"),
        ("h * torch.sigmoid(h)", "F.hardswish(h)"),
    ),
    Model(
        "attention",
        _TOKENS,
        f"{_CUT}return self.b(({_SOFTMAX}).flatten(1))",
        (_SOFTMAX, "F.scaled_dot_product_attention(q, k, v)"),
        (_SOFTMAX, "F.scaled_dot_product_attention(q, k, v, is_causal=True)"),
    ),
    Model(
        "a causal attention",
        _TOKENS,
        f"{_CUT}mask = torch.full((6, 6), -math.inf).triu(1); "
        "return self.b((torch.softmax(q @ k.transpose(1, 2) / 4.0 + mask, -1) @ v).flatten(1))",
        (
            "torch.softmax(q @ k.transpose(1, 2) / 4.0 + mask, -1) @ v",
            "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        ),
        (".triu(1)", ".triu(2)"),
    ),
    Model(
        "a layer norm by hand",
        f"{_LINEAR}; self.n = nn.LayerNorm(64)",
        "h = self.a(x.flatten(1)); m = h.float().mean(-1, keepdim=True); "
        "s = h.float().var(-1, keepdim=True, unbiased=False); "
        "return self.b(((h - m) / torch.sqrt(s + 1e-5) * self.n.weight + self.n.bias).relu())",
        ("(h - m) / torch.sqrt(s + 1e-5) * self.n.weight + self.n.bias", "self.n(h)"),
        ("unbiased=False", "unbiased=True"),
    ),
    Model(
        "a convolution and batch norm",
        "self.a, self.n = nn.Conv1d(6, 8, 3), nn.BatchNorm1d(8); self.b = nn.Linear(112, 1)",
        "return self.b(self.n(self.a(x)).relu().flatten(1))",
        (".pow(2).mean()", ".square().mean()"),
        ("nn.BatchNorm1d(8)", "nn.BatchNorm1d(8, eps=1e-3)"),
    ),
    Model(
        "an LSTM",
        "self.a, self.b = nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 1)",
        "return self.b(self.a(x)[0][:, -1])",
        ("lr=1e-3", "lr=1e-3, fused=True"),
        ("[:, -1]", "[:, -2]"),
    ),
    Model(
        "a transformer's layer",
        "self.a = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True); "
        "self.b = nn.Linear(96, 1)",
        "return self.b(self.a(x).flatten(1))",
        ("lr=1e-3", "lr=1e-3, fused=True"),
        ("lr=1e-3", "lr=1e-3, weight_decay=0.1"),
    ),
    Model(
        "a product by einsum",
        f"{_LINEAR}; self.w = nn.Parameter(torch.randn(6, 6) / 3)",
        "h = torch.einsum('ij,bjc->bic', self.w, x); return self.b(self.a(h.flatten(1)).tanh())",
        ("torch.einsum('ij,bjc->bic', self.w, x)", "self.w @ x"),
        ("'ij,bjc->bic'", "'ji,bjc->bic'"),
    ),
    Model(
        "dropout, and entropy by hand",
        f"{_LINEAR}; self.d = nn.Dropout(0.2)",
        "h = self.a(x.flatten(1)); return self.b(self.d(torch.log(torch.softmax(h, -1))))",
        ("torch.log(torch.softmax(h, -1))", "torch.log_softmax(h, -1)"),
        ("nn.Dropout(0.2)", "nn.Dropout(0.25)"),
    ),
)
NOISES: Final = {
    "none": "0.0",
    "in every run": "1e-6",
    "in some runs": "1e-6 if dice.random() < 0.3 else 0.0",
}
Case = tuple[Model, bool, str]


def compare(case: Case) -> Iterator[tuple[str, str]]:
    """Yield the kind of each fix of a model, with the verdict on its numbers."""
    model, autocast, noise = case
    text = _TRAINING.replace("LAYERS", model.layers).replace("FORWARD", model.forward)
    text = text.replace("AUTOCAST", str(autocast)).replace("NOISE", NOISES[noise])
    fixes = {
        "exact": (Safety.EXACT, EXACT),
        "close": (Safety.CLOSE, model.close),
        "wrong": (Safety.EXACT, model.wrong),
    }
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(text, encoding="utf-8")
        with closing(Runner(Plan(script, steps=25, warmup=5, device="cpu"), None)) as runner:

            def start(variant: Variant, mode: Mode, shift: int) -> Trace:
                return runner.run(variant, mode, shift=shift)

            runner.serve()
            first = runner.run(ORIGINAL, "numbers")
            if first.failure is not None:
                sys.exit(f"{model.name}: {first.failure.message}")
            parity = Parity(start, first, lambda runs: True)
            for kind, (safety, (before, after)) in fixes.items():
                assert before in text, (model.name, kind)
                fix = Variant("rule", (kind,), safety, {str(script): text.replace(before, after)})
                found = parity.compare(fix, runner.run(fix, "numbers"))
                yield kind, "failed" if found is None else _word(found.kept)


def _word(kept: bool | None) -> str:
    return {True: "as promised", False: "DIFFERENT", None: "undecided"}[kept]


def main() -> None:
    """Make the missing comparisons and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, help="how many models with precision and noise")
    parser.add_argument("--kept", type=Path, default=Path("rightfixes.json"), metavar="FILE")
    given = parser.parse_args()
    kept: dict[str, dict[str, str]] = {}
    if given.kept.exists():
        kept = json.loads(given.kept.read_bytes())
    # Each model once, then each once more, so that a few cases already hold every noise.
    kinds = list(product((False, True), NOISES))
    cases: list[Case] = [
        (model, *kinds[(at + turn) % len(kinds)])
        for turn in range(len(kinds))
        for at, model in enumerate(MODELS)
    ]
    for case in cases[: given.cases]:
        name = f"{case[0].name}, {'bfloat16' if case[1] else 'float32'}, noise {case[2]}"
        if name not in kept:
            kept[name] = dict(compare(case))
            given.kept.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
            print(name, kept[name], flush=True)
    counts = {
        kind: Counter(verdicts[kind] for verdicts in kept.values())
        for kind in ("exact", "close", "wrong")
    }
    for kind, found in counts.items():
        print(f"{kind}: {dict(found)} of {found.total()}")
    wrong = counts["wrong"]
    sys.exit(any(counts[kind]["DIFFERENT"] for kind in ("exact", "close")) or wrong["as promised"])


if __name__ == "__main__":
    main()
