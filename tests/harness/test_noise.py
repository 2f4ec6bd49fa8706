"""Kernels that round differently in each run, and precisions coarser than float32."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from harness.scripts import run, write

from torchlint.finding import Safety
from torchlint.harness.child.identity import tf32_products
from torchlint.harness.judging.parity import Parity
from torchlint.harness.judging.promise import Comparison, compare_nudged
from torchlint.harness.plan import ORIGINAL, Mode, Plan, Variant
from torchlint.harness.runs.runner import Runner
from torchlint.harness.trace import ParameterMatch, Trace

FIX = Variant("rule", ("TL201",), Safety.EXACT, {"train.py": ""})
STEPS = 30

Noise = Callable[[random.Random], float]


def training(noise: float, dice: random.Random, wrong: float = 0.0) -> Trace:
    """A run whose losses are off by more and more, as rounding grows; `wrong` is no rounding."""
    grown = [noise * dice.uniform(-1, 1) * (1 + step) for step in range(STEPS)]
    losses = [1.0 - 0.02 * step * (1 + wrong) + grown[step] for step in range(STEPS)]
    apart = abs(grown[-1]) + wrong * 0.1
    match = ParameterMatch(True, 4, 4 if apart == 0 else 0, apart)
    return Trace(
        "full", taken=STEPS, losses=tuple(losses), loss_steps=tuple(range(STEPS)), parameters=match
    )


def compared(noise: Noise, wrong: float, seed: int) -> Comparison:
    dice = random.Random(seed)

    def start(variant: Variant, mode: Mode, shift: int) -> Trace:
        return training(noise(dice), dice, wrong if variant is FIX else 0.0)

    parity = Parity(start, start(ORIGINAL, "numbers", 0), lambda runs: True)
    comparison = parity.compare(FIX, start(FIX, "numbers", 0))
    assert comparison is not None
    return comparison


NOISES: dict[str, Noise] = {
    "none": lambda dice: 0.0,
    "in every run": lambda dice: 1e-6,
    "in some runs": lambda dice: 1e-6 if dice.random() < 0.3 else 0.0,
}


@pytest.mark.parametrize("name", NOISES)
def test_an_exact_fix_is_not_called_wrong_for_the_noise_of_kernels(name: str) -> None:
    found = [compared(NOISES[name], 0.0, seed) for seed in range(100)]
    assert not [each for each in found if each.kept is False]
    decided = [each for each in found if each.kept]
    assert len(decided) > 95
    assert {each.word for each in decided} <= {"equal", "close"}


@pytest.mark.parametrize("name", NOISES)
def test_a_wrong_fix_is_found_behind_the_noise_of_kernels(name: str) -> None:
    found = [compared(NOISES[name], 0.01, seed) for seed in range(100)]
    assert not [each for each in found if each.kept]
    assert sum(each.kept is False for each in found) > 95


def test_noise_that_only_the_fix_brings_is_no_equality() -> None:
    dice = random.Random(0)

    def start(variant: Variant, mode: Mode, shift: int) -> Trace:
        return training(1e-6 if variant is FIX else 0.0, dice)

    comparison = Parity(start, start(ORIGINAL, "numbers", 0), lambda runs: True).compare(
        FIX, start(FIX, "numbers", 0)
    )
    assert comparison is not None
    assert (comparison.word, comparison.kept) == ("not-compared", None)
    assert comparison.doubt is not None
    assert comparison.doubt.name == "fixed-not-repeatable"


ATTENTION = """
    import math
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.project, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
            self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)
        def forward(self, x):
            q, k, v = (it.view(8, 6, 2, 8).transpose(1, 2) for it in self.project(x).chunk(3, 2))
            scores = q @ k.transpose(-2, -1) / math.sqrt(8)
            mixed = torch.softmax(scores, dim=-1) @ v
            x = x + self.out(mixed.transpose(1, 2).reshape(8, 6, 16))
            h = self.up(x)
            return x + self.down(0.5 * h * (1 + torch.erf(h / math.sqrt(2))))

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), Block(), Block(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x = torch.randn(64, 6, 4)
    for epoch in range(100):
        for batch in x.split(8):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = net(batch).mean(1)
            loss = F.mse_loss(out.float(), batch.sum((1, 2))[:, None].sin())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """
MANUAL = "torch.softmax(scores, dim=-1) @ v"
GELU = "0.5 * h * (1 + torch.erf(h / math.sqrt(2)))"
CLOSE_FIXES = {
    "fused attention": (MANUAL, "F.scaled_dot_product_attention(q, k, v)", True),
    "fused activation": (GELU, "F.gelu(h)", True),
    "attention that looks back only": (
        MANUAL,
        "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        False,
    ),
    "another learning rate": ("lr=1e-3", "lr=2e-3", False),
}


@pytest.fixture(scope="module")
def autocast(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Comparison]:
    """Every fix against one original in bfloat16."""
    script = write(tmp_path_factory.mktemp("project"), ATTENTION)
    text = script.read_text(encoding="utf-8")
    found = {}
    with closing(Runner(Plan(script, steps=30, warmup=10, device="cpu"), None)) as runner:
        runner.serve()
        first = runner.run(ORIGINAL, "numbers")
        assert first.precision == "bfloat16"

        def start(variant: Variant, mode: Mode, shift: int) -> Trace:
            return runner.run(variant, mode, shift=shift)

        parity = Parity(start, first, lambda runs: True)
        for name, (before, after, _) in CLOSE_FIXES.items():
            assert before in text
            fix = Variant("rule", (name,), Safety.CLOSE, {str(script): text.replace(before, after)})
            comparison = parity.compare(fix, runner.run(fix, "numbers"))
            assert comparison is not None
            found[name] = comparison
    return found


@pytest.mark.parametrize("name", CLOSE_FIXES)
def test_a_fix_may_round_as_coarsely_as_autocast_does(
    autocast: dict[str, Comparison], name: str
) -> None:
    comparison = autocast[name]
    assert (comparison.method, comparison.kept) == ("nudged", CLOSE_FIXES[name][2])
    assert "bfloat16" in comparison.tolerance


@pytest.mark.parametrize(
    ("precision", "off", "kept"),
    [("bfloat16", 2e-3, True), ("bfloat16", 2e-2, False), ("float32", 2e-3, False)],
)
def test_a_loss_to_which_the_nudged_one_came_near_by_chance_may_be_off_by_a_rounding(
    precision: str, off: float, kept: bool
) -> None:
    first = training(0.0, random.Random(0))
    match = ParameterMatch(True, 4, 0, 1e-3)
    drift = (1e-4, *[1e-3] * (STEPS - 1))
    nudged, fixed = (
        replace(
            first,
            losses=tuple(x * (1 + each) for x, each in zip(first.losses, drifts, strict=True)),
            parameters=match,
            precision=precision,
        )
        for drifts in (drift, (off, *drift[1:]))
    )
    found = compare_nudged(first, nudged, fixed)
    assert found is not None
    assert found.kept is kept


@pytest.mark.parametrize(("off", "kept"), [(2e-3, True), (5e-2, False)])
def test_a_close_fix_may_round_coarsely_though_the_original_strays_by_less(
    off: float, kept: bool
) -> None:
    dice = random.Random(0)
    close = replace(FIX, safety=Safety.CLOSE)

    def start(variant: Variant, mode: Mode, shift: int) -> Trace:
        trace = replace(training(3e-5, dice), precision="bfloat16")
        by = off if variant is close else 2e-3 if mode == "nudged" else 0.0
        return replace(trace, losses=tuple(loss * (1 + by) for loss in trace.losses))

    parity = Parity(start, start(ORIGINAL, "numbers", 0), lambda runs: True)
    found = parity.compare(close, start(close, "numbers", 0))
    assert found is not None
    assert (found.method, found.kept) == ("nudged", kept)


def test_tf32_is_seen_by_either_name_of_its_setting() -> None:
    matmul = torch.backends.cuda.matmul
    assert not tf32_products()
    matmul.allow_tf32 = True
    assert tf32_products()
    matmul.allow_tf32 = False
    if hasattr(matmul, "fp32_precision"):  # from torch 2.9 on
        before, matmul.fp32_precision = matmul.fp32_precision, "tf32"
        assert tf32_products()
        matmul.fp32_precision = before
    assert not tf32_products()


UNREPEATABLE = """
    import torch

    torch.backends.cudnn.benchmark = True
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(100):
        x = torch.zeros(4).put_(torch.tensor([0, 1]), torch.tensor([1.0, 2.0]))
        assert not torch.backends.cudnn.benchmark
        net(x).pow(2).mean().backward()
        optimizer.step()
    """


def test_kernels_that_differ_are_refused_until_an_operator_has_no_other(tmp_path: Path) -> None:
    script = write(tmp_path, UNREPEATABLE)
    strict = run(script, folder=tmp_path / ".torchlint-run/strict")
    assert strict.failure is not None
    assert "put_ does not have a deterministic implementation" in strict.failure.message
    runner = Runner(Plan(script, steps=4, warmup=2, device="cpu"), None)
    first = runner.run(ORIGINAL, "numbers")
    runner.close()
    assert (first.failure, first.taken) == (None, 6)
    assert any("put_ does not have a deterministic" in text for text in first.warnings)
