"""Whole verifications of real scripts, with fixes made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.scripts import PLAIN, write

from torchlint.finding import Safety
from torchlint.harness.plan import Plan, Variant
from torchlint.harness.session import ScriptError, Session
from torchlint.harness.stage import Stage
from torchlint.harness.verdict import Verdict

TRAINING = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    def main():
        torch.manual_seed(0)
        x = torch.randn(64, 4)
        loader = DataLoader(TensorDataset(x, x.sum(1)), batch_size=4, shuffle=True)
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for epoch in range(100):
            for x, y in loader:
                optimizer.zero_grad()
                loss = (net(x).squeeze(1) - y).pow(2).mean()
                loss.backward()
                optimizer.step()

    main()
    """

WRONG = {
    "another learning rate": ("lr=0.1", "lr=0.100001"),
    "gradients that are never cleared": ("optimizer.zero_grad()", "pass"),
    "data in another order": ("shuffle=True", "shuffle=False"),
    "another loss": (".pow(2).mean()", ".pow(2).sum()"),
    "dropout switched off": ("for x, y in loader:", "net.eval()\n            for x, y in loader:"),
    "a crash": ("loss.backward()", "loss.backwards()"),
}


def wrong(text: str, script: Path, change: tuple[str, str], code: str) -> Variant:
    assert change[0] in text
    return Variant("rule", (code,), Safety.EXACT, {str(script): text.replace(*change)})


def test_every_wrong_fix_that_calls_itself_exact_is_found_out(tmp_path: Path) -> None:
    script = write(tmp_path, TRAINING)
    text = script.read_text()
    variants = [
        wrong(text, script, change, f"TL9{at:02}") for at, change in enumerate(WRONG.values())
    ]
    with Session(Plan(script, steps=20, warmup=2)) as session:
        report = session.measure(variants)
    verdicts = {name: outcome.verdict for name, outcome in zip(WRONG, report.outcomes, strict=True)}
    assert verdicts == dict.fromkeys(WRONG, Verdict.DIFFERENT)
    assert report.failed
    assert report.doubts == ()
    assert script.read_text() == text
    assert list(tmp_path.iterdir()) == [script]


WAITING = """
    import time

    import torch
    from torch.utils.data import DataLoader, Dataset

    class Decoded(Dataset):
        def __len__(self):
            return 4096

        def __getitem__(self, index):
            time.sleep(0.002)
            return torch.full((4,), index / 4096)

    def main():
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loader = DataLoader(Decoded(), batch_size=32, shuffle=True, num_workers=0)
        for batch in loader:
            optimizer.zero_grad()
            net(batch).pow(2).mean().backward()
            optimizer.step()

    if __name__ == "__main__":
        main()
    """


def test_workers_for_a_waiting_loader_are_faster_and_a_comment_is_not(tmp_path: Path) -> None:
    script = write(tmp_path, WAITING)
    text = script.read_text()
    workers = Variant(
        "rule", ("TL101",), Safety.EXACT, {str(script): text.replace("workers=0", "workers=2")}
    )
    nothing = Variant("rule", ("TL901",), Safety.EXACT, {str(script): text + "# no more\n"})
    stages: list[Stage] = []
    plan = Plan(script, steps=20, warmup=8, rounds=2)
    with Session(plan, stages.append) as session:
        assert session.survey() == (str(script),)
        report = session.measure([workers, nothing])
    faster, same = report.outcomes
    assert faster.verdict is Verdict.FASTER
    assert faster.comparison is not None
    assert faster.comparison.word == "equal"
    assert faster.comparison.losses == 28
    assert faster.wait_share.before is not None
    assert faster.wait_share.before > 0.5
    assert same.verdict is not Verdict.FASTER
    assert same.comparison is not None
    assert same.comparison.word == "equal"
    assert (stages[-1].done, stages[-1].total) == (20, 21)
    assert stages[-1].what == "the original: its step time"
    assert stages[0].left is None
    assert stages[-1].left is not None
    assert not report.failed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print('hello')\n", "never imports torch"),
        ("import os\nos.system('true # torchrun train.py')\n", "starts processes of its own"),
        ("raise ValueError('wrong\\nway')\n", "ValueError: wrong way"),
    ],
)
def test_a_script_that_cannot_be_measured_says_why(tmp_path: Path, text: str, message: str) -> None:
    with Session(Plan(write(tmp_path, text))) as session, pytest.raises(ScriptError) as error:
        session.survey()
    assert message in error.value.failure.message


def test_a_script_that_ends_early_is_compared_and_named(tmp_path: Path) -> None:
    script = write(tmp_path, PLAIN.replace("range(1000)", "range(5)"))
    noop = Variant("all", ("TL901",), Safety.EXACT, {str(script): script.read_text() + "\n"})
    with Session(Plan(script)) as session:
        report = session.measure([noop])
    (outcome,) = report.outcomes
    assert outcome.verdict is Verdict.UNSURE
    assert outcome.comparison is not None
    assert outcome.comparison.word == "equal"
    assert outcome.comparison.losses == 5
    assert [doubt.name for doubt in report.doubts] == ["too-few-steps"]
