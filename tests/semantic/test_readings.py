"""What the host reads of values that functions out of sight made."""

from __future__ import annotations

import pytest

from torchlint.semantic.loops.loops import Role
from torchlint.semantic.script import Script
from torchlint.semantic.training.destination import End
from torchlint.source import Source

BATCHES = """
import numpy as np
import torch
from mine import accuracy, environment, reduce
from sklearn.metrics import f1_score
def evaluate(model, loader, meter):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        out = model(x)
        top1, top5 = accuracy(out, y)
        top5 = reduce(top5, 2)
        seen = {LINE}
"""


def read(line: str) -> list[str]:
    """Return the code of what a line reads."""
    text = BATCHES.replace("{LINE}", line)
    script = Script.parse(Source.from_bytes(text.encode(), "case.py"))
    return [script.code(each.node) for each in script.readings.within(script.tree.module)]


@pytest.mark.parametrize(
    "line",
    [
        "top1.item()",
        "top5.item()",
        "top1[0].item()",
        "accuracy(out, y)[0].item()",
        "accuracy(out, y).mean().item()",
        "environment.look(4).detach().cpu().numpy()",
        "environment.look(4).cpu().numpy()",
    ],
)
def test_functions_out_of_sight_that_are_handed_tensors_give_tensors(line: str) -> None:
    assert read(line) == [line]


@pytest.mark.parametrize(
    "line",
    [
        "environment.look(4).item()",
        "environment.step(out).item()",
        "f1_score(y, out).item()",
        "np.mean([4]).item()",
        "accuracy(np.ones(4), y).item()",
        "accuracy(torch.ones(4), 4).item()",
        "float(accuracy(out, y))",
    ],
)
def test_what_may_be_a_number_or_lies_on_the_host_is_not_read(line: str) -> None:
    assert read(line) == []


REPORTED = """
import torch
def show(step, status, logger):
    message = f"step {step}"
    for name, value in status.items():
        message += f", {name} {value:.4f}"
    {GUARD}:
        logger.info(message)

def train(model, loader, optimizer, logger):
    for step, (x, y) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        show(step, {"loss": loss.item()}, logger)
"""


@pytest.mark.parametrize(
    ("guard", "ends"), [("if step % 100 == 0", [{End.RARE}]), ("if logger is not None", [])]
)
def test_a_text_that_grows_in_a_helper_is_used_where_it_is_shown(
    guard: str, ends: list[set[End]]
) -> None:
    text = REPORTED.replace("{GUARD}", guard)
    script = Script.parse(Source.from_bytes(text.encode(), "case.py"))
    found = [
        wait.ends
        for loop in script.loops.of(Role.TRAIN_BATCH)
        for wait in script.readings.waits.of(loop)
    ]
    assert found == ends
