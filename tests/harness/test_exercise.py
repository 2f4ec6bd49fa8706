"""Whether the lines that a fix changes run while it is measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from harness.scripts import write

from torchlint.finding import Safety
from torchlint.harness.judging.assessment import Evidence, assess
from torchlint.harness.judging.promise import Comparison
from torchlint.harness.judging.statistics import Interval
from torchlint.harness.judging.verdict import Outcome, Verdict
from torchlint.harness.plan import ORIGINAL, Plan, Variant
from torchlint.harness.runs.runner import Runner, changes
from torchlint.harness.session import Session
from torchlint.harness.trace import Trace

CHANGES: dict[str, tuple[str, str, list[tuple[int, ...]]]] = {
    "a line": ("a = 1\nb = 2\n", "a = 1\nb = 3\n", [(2,)]),
    "an import and a comment": ("a = 1\n", "import os  # for later\na = 1\n", []),
    "a decorator runs with its function": (
        "def f():\n    a = 1\n    return a\n",
        "@cache\ndef f():\n    a = 1\n    return a\n",
        [(3, 4)],
    ),
    "a docstring": ("def f():\n    a()\n", 'def f():\n    """Do."""\n    a()\n', []),
    "a line less": ("a = 1\nb = 2\nc = 3\n", "a = 1\nc = 3\n", [(2,)]),
    "a call over several lines": ("f(\n    1,\n)\n", "f(\n    2,\n)\n", [(1, 2, 3)]),
    "a loop's head, not its block": (
        "for a in b:\n    c = 1\n    d = 2\n",
        "for a in bb:\n    c = 1\n    d = 2\n",
        [(1,)],
    ),
    "two places": ("a = 1\nb = 2\nc = 3\n", "a = 2\nb = 2\nc = 4\n", [(1,), (3,)]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_lines_that_show_that_a_change_ran(tmp_path: Path, name: str) -> None:
    before, after, lines = CHANGES[name]
    script = tmp_path / "train.py"
    script.write_text(before, encoding="utf-8")
    fixed = Variant("rule", ("TL101",), Safety.EXACT, {str(script): after})
    assert changes(ORIGINAL, fixed) == [(str(script), each) for each in lines]


SCRIPT = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):
        def __len__(self):
            return 320
        def __getitem__(self, index):
            x = torch.ones(4) * index
            return x / 320

    def evaluate(net):
        net.eval()
        return net(torch.ones(1, 4)).item()

    net = nn.Linear(4, 1)
    def step(x):
        optimizer.zero_grad()
        net(x).pow(2).mean().backward()
        optimizer.step()

    if __name__ == "__main__":
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loader = DataLoader(Numbers(), 8, num_workers=2)
        for epoch in range(2):
            for x in loader:
                step(x)
            evaluate(net)
    """
EVALUATION = ("def evaluate", "@torch.no_grad()\ndef evaluate")
ITEM = ("x / 320", "x.div(320)")
STEP = ("net(x).pow(2)", "net(x).square()")
UNSEEN = (
    ("def evaluate", "@torch.no_grad()\ndef evaluate"),
    ("net = nn.Linear(4, 1)\n", "net = nn.Linear(4, 1)\n@torch.compile(backend='eager')\n"),
)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    script = write(tmp_path_factory.mktemp("project"), SCRIPT)
    runner = Runner(Plan(script, device="cpu"), None)
    runner.serve()
    yield runner
    runner.close()


@pytest.mark.parametrize(
    ("fixes", "steps", "changed", "idle"),
    [
        ([EVALUATION], 20, 1, [14]),
        ([EVALUATION], 60, 1, []),
        ([ITEM], 20, 1, []),
        ([STEP, EVALUATION], 20, 2, [14]),
        (UNSEEN, 20, 0, []),
    ],
    ids=["never", "later", "in workers", "in part", "compiled"],
)
def test_a_run_tells_which_changes_it_reached(
    runner: Runner, fixes: list[tuple[str, str]], steps: int, changed: int, idle: list[int]
) -> None:
    text = runner.script.read_text(encoding="utf-8")
    for before, after in fixes:
        assert before in text
        text = text.replace(before, after)
    fix = Variant("rule", ("TL601",), Safety.EXACT, {str(runner.script): text})
    trace = runner.run(fix, "numbers", (2, steps))
    assert trace.failure is None
    assert (trace.changed, [line for _, line in trace.idle]) == (changed, idle)
    assert trace.epoch == 40


def judged(numbers: Trace) -> Outcome:
    fix = Variant("rule", ("TL601",), Safety.EXACT, {"train.py": ""})
    slow, fast = (replace(numbers, durations=(seconds,) * 9) for seconds in (2.0, 1.0))
    before, after = Evidence(numbers, rounds=[[slow] * 2]), Evidence(numbers, rounds=[[fast] * 2])
    return assess(fix, before, after, Comparison("equal", True, 9, 2), Interval(0.99, 1.01))


def test_a_fix_that_was_never_run_is_not_faster() -> None:
    numbers = Trace("full", taken=60, changed=2, epoch=200)
    assert judged(numbers).verdict is Verdict.FASTER
    never = judged(replace(numbers, idle=(("train.py", 8), ("train.py", 9))))
    assert (never.verdict, never.doubts[0].name) == (Verdict.UNSURE, "not-exercised")
    assert "train.py:8, train.py:9" in never.doubts[0].message
    assert "--steps 210" in never.doubts[0].message
    endless = judged(replace(numbers, idle=(("train.py", 8),), epoch=312_500_000))
    assert endless.doubts[0].message.endswith(
        "312,500,000 steps: start the script with a shorter one"
    )
    part = judged(replace(numbers, idle=(("train.py", 8),)))
    assert (part.verdict, part.doubts[0].name) == (Verdict.FASTER, "partly-exercised")


@pytest.mark.parametrize("budget", [math.inf, 300.0], ids=["no limit", "a budget"])
def test_the_window_spans_an_epoch_where_a_change_runs_only_at_its_end(
    tmp_path: Path, budget: float
) -> None:
    script = write(tmp_path, SCRIPT)
    text = script.read_text(encoding="utf-8")
    fixes = [Variant("rule", ("TL601",), Safety.EXACT, {str(script): text.replace(*EVALUATION)})]
    both = text.replace(*EVALUATION).replace("net(x).pow(2)", "net(x).pow(2.0)")
    fixes.append(Variant("all", ("TL601", "TL901"), Safety.EXACT, {str(script): both}))
    plan = Plan(*(script, (), 8, 2, 2), device="cpu", budget=budget, timeout=60)
    with Session(plan) as session:
        report = session.measure(fixes)
    assert (report.warmup, report.steps) == (2, 40)
    for outcome in report.outcomes:
        assert outcome.comparison is not None
        assert (outcome.comparison.word, outcome.comparison.losses) == ("equal", 42)
        assert {len(run) for runs in outcome.after.times for run in runs} == {40}
        assert "exercised" not in " ".join(doubt.name for doubt in outcome.doubts)


def test_the_window_stays_where_a_whole_epoch_reaches_no_more(tmp_path: Path) -> None:
    script = write(tmp_path, SCRIPT.replace("        evaluate(net)", "    evaluate(net)"))
    text = script.read_text(encoding="utf-8")
    fix = Variant("rule", ("TL601",), Safety.EXACT, {str(script): text.replace(*EVALUATION)})
    with Session(Plan(*(script, (), 8, 2, 2), device="cpu", timeout=60)) as session:
        report = session.measure([fix])
    (outcome,) = report.outcomes
    assert (report.warmup, report.steps) == (2, 8)
    assert [doubt.name for doubt in outcome.doubts][-1] == "not-exercised"
