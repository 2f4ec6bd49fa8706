"""Unsafe fixes on the original's weights, batches and seeds, and what is done where that fails."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from harness.scripts import write

from torchlint.finding import Safety
from torchlint.harness.judging.parity import Parity
from torchlint.harness.judging.promise import Comparison, compare_curves
from torchlint.harness.judging.verdict import Outcome, Report, Verdict, candidates, kept_together
from torchlint.harness.plan import ORIGINAL, Mode, Plan, Variant
from torchlint.harness.runs.runner import Runner
from torchlint.harness.runs.torchrun import merged
from torchlint.harness.trace import ParameterMatch, Trace

TRAINING = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Noisy(Dataset):
        def __init__(self):
            self.x = torch.randn(512, 16)
        def __len__(self):
            return 512
        def __getitem__(self, index):
            return self.x[index] + 0.1 * torch.randn(16), self.x[index].sum()

    def main():
        torch.manual_seed(0)
        loader = DataLoader(Noisy(), batch_size=16, shuffle=True, num_workers=0)
        net = nn.Sequential(
            nn.Linear(16, 32),
            nn.BatchNorm1d(32), nn.Dropout(0.3), nn.Linear(32, 1)
        )
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        for epoch in range(100):
            for x, y in loader:
                noise = 0.1 * torch.randn(16, 1)
                optimizer.zero_grad()
                loss = (net(x) + noise - y[:, None]).pow(2).mean()
                loss.backward()
                optimizer.step()

    if __name__ == "__main__":
        main()
    """

BIAS = ("nn.Linear(16, 32)", "nn.Linear(16, 32, bias=False)")
WIDER = ("nn.Linear(32, 1)", "nn.Linear(32, 2), nn.Linear(2, 1)")

CASES: dict[str, tuple[list[tuple[str, str]], str, str, bool | None]] = {
    "a bias before a batch norm": ([BIAS], "aligned", "close", True),
    "workers with augmentation": ([("workers=0", "workers=2")], "aligned", "equal", True),
    "a bias, and another learning rate": (
        [BIAS, ("lr=1e-3", "lr=1.1e-3")],
        "aligned",
        "different",
        False,
    ),
    "a bias, and another loss": ([BIAS, (".mean()", ".sum()")], "seeds", "different", False),
    "weights that the original has not": ([WIDER], "seeds", "not-compared", None),
    "workers, and batches of other values": (
        [("workers=0", "workers=2"), ("return self.x[index] +", "return 3 * self.x[index] +")],
        "seeds",
        "not-compared",
        None,
    ),
}


BATCHES = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    x = torch.randn(512, 16)
    net = nn.Sequential(
        nn.Linear(16, 32),
        nn.BatchNorm1d(32), nn.Linear(32, 1)
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(100):
        for chosen in torch.randperm(512).split(16):
            optimizer.zero_grad()
            loss = (net(x[chosen]) - x[chosen].sum(1, keepdim=True)).pow(2).mean()
            loss.backward()
            optimizer.step()
    """
GRAPH = """
    import torch
    from torch import nn

    class Inputs:
        def __init__(self):
            self.itself, self.torch = self, torch

    class Convolution(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Sequential(
                nn.Linear(16, 32),
                nn.BatchNorm1d(32)
            )
            self.last = nn.Linear(32, 3)
        def forward(self, x, neighbours, inputs):
            return torch.sparse.mm(neighbours, self.last(self.first(x)))

    torch.manual_seed(0)
    x, y = torch.randn(64, 16), torch.randint(0, 3, (64,))
    neighbours = (torch.rand(64, 64) < 0.1).float().to_sparse()
    net = Convolution()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x, neighbours, Inputs()), y).backward()
        optimizer.step()
    """
CHAOS = """
    import torch

    torch.manual_seed(0)
    w = torch.nn.Parameter(torch.rand(64) + 0.1)
    optimizer = torch.optim.SGD([w], lr=30.4)
    for step in range(100):
        optimizer.zero_grad()
        off = w * w - 1
        (off * off).mean().backward()
        optimizer.step()
    """
DRAWN = (
    ("    x = torch.randn(512, 16)\n", ""),
    ("    optimizer =", "    x = torch.randn(512, 16)\n    optimizer ="),
)


def compared(
    folder: Path,
    text: str,
    cases: Iterable[list[tuple[str, str]]],
    safety: Safety = Safety.UNSAFE,
) -> list[Comparison | None]:
    """Compare changes of a script with it, each run forked from one server."""
    script = write(folder, text)
    text = script.read_text()
    runner = Runner(Plan(script, steps=40, warmup=2), None)

    def start(variant: Variant, mode: Mode, shift: int) -> Trace:
        return runner.run(variant, mode, shift=shift)

    try:
        runner.serve()
        first = start(ORIGINAL, "numbers", 0)
        parity = Parity(start, first, lambda runs: True)
        found = []
        for changes in cases:
            texts = {str(script): changed(text, changes)}
            variant = Variant("rule", ("TL901",), safety, texts)
            found.append(parity.compare(variant, start(variant, "numbers", 0)))
        return found
    finally:
        runner.close()


def changed(text: str, changes: Iterable[tuple[str, str]]) -> str:
    """Return a text with something else in place of what it surely has."""
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return text


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Comparison | None]:
    """All cases against one original."""
    changes = [changes for changes, *_ in CASES.values()]
    found = compared(tmp_path_factory.mktemp("project"), TRAINING, changes)
    return dict(zip(CASES, found, strict=True))


def test_batches_that_a_script_draws_without_a_loader_are_drawn_alike(tmp_path: Path) -> None:
    (comparison,) = compared(tmp_path, BATCHES, [[BIAS]])
    assert comparison is not None
    assert (comparison.method, comparison.word) == ("aligned", "close")


def test_a_network_may_take_sparse_tensors_and_objects_that_hold_themselves(
    tmp_path: Path,
) -> None:
    (comparison,) = compared(tmp_path, GRAPH, [[BIAS]])
    assert comparison is not None
    assert (comparison.method, comparison.word) == ("aligned", "close")


def test_where_rounding_grows_a_close_fix_may_lead_as_far_as_rounding_does(tmp_path: Path) -> None:
    changes = [("w * w - 1", "(w - 1) * (w + 1)")], [("lr=30.4", "lr=30.403")]
    found = compared(tmp_path, CHAOS, changes, Safety.CLOSE)
    assert [each and (each.method, each.word, each.kept) for each in found] == [
        ("nudged", "close", True),
        ("nudged", "different", False),
    ]


def test_data_that_is_drawn_between_network_and_optimizer_is_no_base(tmp_path: Path) -> None:
    (comparison,) = compared(tmp_path, changed(BATCHES, DRAWN), [[BIAS]])
    assert comparison is not None
    assert (comparison.method, comparison.word) == ("seeds", "not-compared")
    assert comparison.note == "its network is first called with different inputs"


@pytest.mark.parametrize("name", CASES)
def test_an_unsafe_fix_is_compared_by_the_best_method_that_will_do(
    comparisons: dict[str, Comparison | None], name: str
) -> None:
    comparison = comparisons[name]
    _, method, word, kept = CASES[name]
    assert comparison is not None
    assert (comparison.method, comparison.word, comparison.kept) == (method, word, kept)
    assert bool(comparison.note) == (method == "seeds")


def seeds(*levels: float, fall: float = 0.02, passes: int = 1) -> list[Trace]:
    """Runs of twelve steps, each with losses that fall from a level of its own."""
    steps = [step for step in range(12) for _ in range(passes)]
    return [
        Trace(
            "full",
            taken=12,
            losses=tuple(level - fall * step for step in steps),
            loss_steps=tuple(steps),
        )
        for level in levels
    ]


@pytest.mark.parametrize(
    ("after", "word"),
    [
        (seeds(1.001, 1.002, 0.999, 1.0), "close"),
        (seeds(1.2, 1.21, 1.19, 1.2), "different"),
        (seeds(1.0, 1.6, 0.4, 1.1), "not-compared"),
        (seeds(*[float("nan")] * 4), "different"),
        (seeds(1.001, 1.002, 0.999, 1.0, fall=0.05), "different"),
        (seeds(1.001, 1.002, 0.999, 1.0, passes=2), "different"),
        (seeds(1.014, 1.021, 1.009, 1.016), "not-compared"),
        ([*seeds(1.001, 1.002, 0.999), Trace("failed")], "not-compared"),
    ],
)
def test_loss_curves_are_alike_within_the_scatter_of_seeds(after: list[Trace], word: str) -> None:
    assert compare_curves(seeds(1.0, 1.003, 0.998, 1.001), after) == word


def test_what_each_seed_shows_alike_is_seen_through_their_scatter() -> None:
    before, after = seeds(1.0, 1.3, 0.8, 1.1), seeds(1.05, 1.35, 0.85, 1.151)
    assert compare_curves(before, after) == "different"
    assert compare_curves(before, seeds(1.001, 1.302, 0.801, 1.1)) == "close"


@pytest.mark.parametrize(("fall", "word"), [(0.02, "close"), (1e-3, "not-compared")])
def test_curves_that_hardly_fall_tell_nothing(fall: float, word: str) -> None:
    before = seeds(1.0, 1.003, 0.998, 1.001, fall=fall)
    assert compare_curves(before, seeds(1.001, 1.002, 0.999, 1.0, fall=fall)) == word


@pytest.mark.parametrize(
    ("joined", "batch_norm", "method"),
    [(True, True, "seeds"), (True, False, "led"), (False, True, "led")],
)
def test_where_only_the_fixed_script_shares_what_batch_norm_sees_its_curves_decide(
    joined: bool, batch_norm: bool, method: str
) -> None:
    def start(variant: Variant, mode: Mode, shift: int) -> Trace:
        (trace,) = seeds(1.0 + 0.001 * shift)
        if variant is fix and "replay" in mode:
            (off,) = seeds(1.001, fall=0.05)
            trace = replace(off, losses=(1.001, *off.losses[1:]), parameters=match)
        return replace(trace, joined=joined and variant is fix, batch_norm=batch_norm)

    match = ParameterMatch(True, 2, 0, 0.1, updates=0.2)
    fix = Variant("rule", ("TL701",), Safety.UNSAFE, {"train.py": ""})
    fixed = replace(start(fix, "numbers", 0), losses=tuple(seeds(2.0)[0].losses))
    parity = Parity(start, start(ORIGINAL, "numbers", 0), lambda runs: True)
    comparison = parity.compare(fix, fixed)
    assert comparison is not None
    assert (comparison.method, comparison.kept) == (method, method == "seeds")
    assert ("share of a batch" in comparison.note) is (method == "seeds")


def test_processes_that_each_train_a_network_of_their_own_are_found_out() -> None:
    (first,) = seeds(1.0)
    apart = merged([replace(first, joined=True, weights=weights) for weights in ("a", "b")])
    fix = Variant("rule", ("TL701",), Safety.UNSAFE, {"train.py": ""})

    def compared(first: Trace) -> Comparison | None:
        return Parity(lambda *rest: first, first, lambda runs: True).compare(fix, apart)

    alone, together = compared(first), compared(replace(first, joined=True))
    assert alone is not None
    assert (alone.method, alone.word, alone.kept) == ("ranks", "different", False)
    assert together is not None
    assert together.word == "equal"


def outcome(verdict: Verdict, *codes: str, kept: bool | None = True) -> Outcome:
    variant = Variant("rule" if len(codes) == 1 else "all", codes, Safety.UNSAFE, {})
    return Outcome(variant, verdict, Comparison("equal", kept, 9, 2))


def report(*outcomes: Outcome) -> Report:
    return Report("t.py", (), "cpu", "2", 0, 9, 2, 2, None, outcomes)


ALONE = (outcome(Verdict.FASTER, "TL1"), outcome(Verdict.FASTER, "TL2"))


@pytest.mark.parametrize(
    ("outcomes", "kept", "written"),
    [
        ((*ALONE, outcome(Verdict.FASTER, "TL1", "TL2")), ("TL1", "TL2"), ("TL1", "TL2")),
        ((*ALONE, outcome(Verdict.UNSURE, "TL1", "TL2")), ("TL1", "TL2"), ("TL1", "TL2")),
        ((*ALONE, outcome(Verdict.SLOWER, "TL1", "TL2")), ("TL1", "TL2"), ()),
        ((*ALONE, outcome(Verdict.UNSURE, "TL1", "TL2", kept=None)), ("TL1", "TL2"), ()),
        ((ALONE[0], outcome(Verdict.SLOWER, "TL2")), ("TL1",), ("TL1",)),
        (ALONE, ("TL1", "TL2"), ()),
        ((outcome(Verdict.FASTER, "TL1", "TL2"),), ("TL1", "TL2"), ("TL1", "TL2")),
        ((ALONE[0], outcome(Verdict.SAME, "TL2")), ("TL1",), ("TL1",)),
        ((outcome(Verdict.DIFFERENT, "TL1"),), (), ()),
    ],
)
def test_only_what_was_measured_good_is_written(
    outcomes: tuple[Outcome, ...], kept: tuple[str, ...], written: tuple[str, ...]
) -> None:
    assert candidates(report(*outcomes)) == kept
    assert kept_together(report(*outcomes)) == written


def test_a_run_that_was_never_compared_is_not_kept() -> None:
    assert kept_together(report(replace(ALONE[0], comparison=None))) == ()


@pytest.mark.parametrize(
    ("led", "updates", "method", "kept"),
    [
        (0.008, 1e-4, "led", True),
        (1e-5, 1e-4, "led", False),
        (0.3, 1e-4, "seeds", True),
        (0.008, 0.4, "aligned", False),
    ],
)
def test_where_rounding_grows_an_unsafe_fix_may_lead_as_far_as_rounding_leads_it(
    led: float, updates: float, method: str, kept: bool
) -> None:
    drawn = iter(range(1, 100))

    def start(variant: Variant, mode: Mode, shift: int) -> Trace:
        base = 1.0 if mode != "numbers" or shift else 1.0 + 0.1 * (variant is fix)
        off = {"replay": 0.02 * (variant is fix), "nudged-replay": 0.02 + led}.get(mode, 0.0)
        (trace,) = seeds(base + 1e-3 * next(drawn) * bool(shift))
        losses = (trace.losses[0], *(loss * (1 + off) for loss in trace.losses[1:]))
        match = ParameterMatch(True, 2, 0 if off else 2, off, updates=updates)
        return replace(trace, losses=losses, parameters=match, precision="bfloat16")

    fix = Variant("rule", ("TL501",), Safety.UNSAFE, {"train.py": ""})
    parity = Parity(start, start(ORIGINAL, "numbers", 0), lambda runs: True)
    comparison = parity.compare(fix, start(fix, "numbers", 0))
    assert comparison is not None
    assert (comparison.method, comparison.kept) == (method, kept)


@pytest.mark.parametrize(("off", "kept"), [(0.02, None), (0.5, False)])
def test_a_close_fix_is_not_wrong_where_one_rounding_changes_everything_at_once(
    off: float, kept: bool | None
) -> None:
    def start(variant: Variant, mode: Mode, shift: int) -> Trace:
        (trace,) = seeds(1.0)
        by = off if variant is fix else 0.2 if mode == "nudged" else 0.0
        first = 1 + by * (off > 0.1 and variant is fix)
        losses = (trace.losses[0] * first, *(loss * (1 + by) for loss in trace.losses[1:]))
        match = ParameterMatch(True, 2, 0 if by else 2, by)
        return replace(trace, losses=losses, parameters=match)

    fix = Variant("rule", ("TL307",), Safety.CLOSE, {"train.py": ""})
    parity = Parity(start, start(ORIGINAL, "numbers", 0), lambda runs: True)
    comparison = parity.compare(fix, start(fix, "numbers", 0))
    assert comparison is not None
    assert comparison.kept is kept
    assert (comparison.doubt is not None) is (kept is None)
