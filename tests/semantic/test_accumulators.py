"""What batch loops add up, what the host reads of it, and when that can wait."""

from __future__ import annotations

import textwrap

import pytest

from torchlint.semantic.loops.loops import Role
from torchlint.semantic.script import Script
from torchlint.semantic.training.accumulators import Accumulation
from torchlint.semantic.training.additions import Adding
from torchlint.semantic.training.readings import Form
from torchlint.source import Source

HEAD = """
import torch
import torch.nn.functional as F
def train(model, loader, optimizer, bar):
    {start}
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(), y.cuda()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
"""


def _script(body: str, start: str = "total = 0.0", tail: str = "") -> Script:
    text = HEAD.format(start=start) + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)
    if tail:
        text += "\n" + textwrap.indent(textwrap.dedent(tail).strip("\n"), " " * 4)
    return Script.parse(Source("script.py", text + "\n"))


def _only(script: Script) -> Accumulation:
    (found,) = script.readings.accumulations(Role.TRAIN_BATCH)
    return found


@pytest.mark.parametrize(
    ("statement", "adding"),
    [
        ("total += loss.item()", Adding.SUM),
        ("total = total + loss.item()", Adding.SUM),
        ("total = loss.item() + total", Adding.SUM),
        ("self.total += loss.item()", Adding.SUM),
        ('stats["loss"] += loss.item()', Adding.SUM),
        ("losses.append(loss.item())", Adding.APPEND),
        ("losses += [loss.item()]", Adding.APPEND),
        ("losses.extend(out.tolist())", Adding.EXTEND),
        ("meter.update(loss.item(), 8)", Adding.METER),
    ],
)
def test_additions(statement: str, adding: Adding) -> None:
    assert _only(_script(statement)).adding is adding


@pytest.mark.parametrize(
    "statement",
    [
        "total -= loss.item()",
        "total = other + loss.item()",
        "if step % 10 == 0:\n    total += loss.item()",
        "kept = losses.append(loss.item())",
    ],
)
def test_no_additions(statement: str) -> None:
    assert not list(_script(statement).readings.accumulations(Role.TRAIN_BATCH))


@pytest.mark.parametrize(
    ("value", "tensor", "form"),
    [
        ("loss.item()", "loss", Form.NUMBER),
        ("float(loss)", "loss", Form.NUMBER),
        ("loss.detach().cpu().item()", "loss", Form.NUMBER),
        ("loss.data.cpu().numpy()", "loss", Form.ARRAY),
        ("out.argmax(1).tolist()", "out.argmax(1)", Form.LIST),
        ('out.to("cpu")', "out", Form.TENSOR),
    ],
)
def test_readings(value: str, tensor: str, form: Form) -> None:
    script = _script(f"total += {value}")
    (reading,) = script.readings.within(_only(script).values[0])
    assert (script.code(reading.tensor), reading.form) == (tensor, form)


@pytest.mark.parametrize(
    "value", ["loss.numpy()", "loss.detach()", "x.size(0)", "float(step)", "bar.item()"]
)
def test_no_readings(value: str) -> None:
    script = _script(f"total += {value}")
    assert not list(script.readings.within(_only(script).values[0]))


@pytest.mark.parametrize(
    ("body", "used"),
    [
        ("total += loss.item()", False),
        ("total += loss.item()\nprint(total)", True),
        ("total += loss.item()\nif step % 10 == 0:\n    print(total)", False),
        ("total += loss.item()\nmean = total / (step + 1)", False),
        ("total += loss.item()\nmean = total / (step + 1)\nbar.show(mean)", True),
        ("total += loss.item()\nif total > 9:\n    break", True),
    ],
)
def test_used_each_pass(body: str, used: bool) -> None:
    script = _script(body)
    assert script.readings.accumulators.used_each_pass(_only(script)) is used


@pytest.mark.parametrize(
    ("body", "start", "tail"),
    [
        ("total += loss.item()", "total = bar", ""),
        ("total += loss.item()", "global total", ""),
        ("total += loss.item()", "total = 0.0", "def mean():\n    return total"),
        ("total += loss.item()\nif step % 9 == 0:\n    total /= 2", "total = 0.0", ""),
        ("losses.append(loss.item())", "losses = other = []", ""),
        ("losses.append(loss.item())", "losses = [1.0]", ""),
        ("losses.append(loss.item())", "losses = []\n    bar.show(losses)", ""),
        ("losses.append(loss.item())\nif step % 9 == 0:\n    print(losses)", "losses = []", ""),
        ("self.total += loss.item()", "self = bar", ""),
        ("total.update(loss.item())", "total = bar", ""),
    ],
)
def test_what_cannot_wait(body: str, start: str, tail: str) -> None:
    script = _script(body, start, tail)
    assert script.readings.accumulators.accumulator(_only(script)) is None


def test_rare_reads_are_named() -> None:
    script = _script("total += loss.item()\nif step % 9 == 0:\n    print(total)\n    total = 0.0")
    found = script.readings.accumulators.accumulator(_only(script))
    assert found is not None
    assert [script.code(read) for read in found.reads] == ["total"]
    assert set(found.starts) == {0.0}


@pytest.mark.parametrize(
    ("expression", "integral"),
    [
        ("(out == y).sum()", True),
        ("out.argmax(1).eq(y)", True),
        ("out.max(1)[1]", True),
        ("loss", False),
        ("(out == y).float().mean()", False),
        ("(out == y).sum() / 8", False),
        ("out", None),
    ],
)
def test_integers(expression: str, integral: bool | None) -> None:
    script = _script(f"total += {expression}")
    assert script.values.dtypes.is_integral(_only(script).values[0]) is integral


def test_lines_go_behind_the_comments_of_a_loop() -> None:
    script = _script("total += loss.item()\n# the end", tail="return total")
    (edit,) = script.edits.after(_only(script).loop.node, "done()")
    assert script.source.text[: edit.span.start].endswith("# the end\n")


@pytest.mark.parametrize(
    ("line", "used"),
    [
        ("bar.update(len(losses))", False),
        ("losses[0] = torch.cat((losses[0], out))", False),
        ("bar.update(losses[-1])", True),
    ],
)
def test_how_many_were_added_is_no_use_of_them(line: str, used: bool) -> None:
    script = _script(f"losses.append(loss.item())\n{line}", start="losses = []")
    added = next(iter(script.readings.accumulations(Role.TRAIN_BATCH)))
    assert script.readings.accumulators.used_each_pass(added) is used
