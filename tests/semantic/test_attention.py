"""Attention that is written out: its parts, and what scale and masks are worth."""

from __future__ import annotations

import textwrap

import pytest

from torchlint.semantic.script import Script
from torchlint.semantic.values.attention import Attention
from torchlint.source import Source


def _read(body: str) -> tuple[Script, list[Attention]]:
    """Return the attention in the body of a function of `q`, `k`, `v` and `mask`."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    text = f"import math\nimport torch\ndef attend(q, k, v, mask, n):\n{lines}\n"
    script = Script.parse(Source("attention.py", text))
    return script, list(script.values.attentions.all())


def _one(body: str) -> tuple[Script, Attention]:
    script, found = _read(body)
    assert len(found) == 1
    return script, found[0]


def test_the_parts_are_found_through_names() -> None:
    script, found = _one(
        """
        scores = torch.matmul(q[:, 0], k.transpose(1, 2)) / 8
        scores = scores.masked_fill(mask, -1e9)
        weights = torch.softmax(scores, dim=-1)
        weights = torch.nn.functional.dropout(weights, 0.1)
        return torch.bmm(weights, v)
        """
    )
    parts = [script.code(part) for part in (found.query, found.key, found.value)]
    assert parts == ["q[:, 0]", "k", "v"]
    assert found.factor is not None
    assert (script.code(found.factor), found.divides) == ("8", True)
    assert [script.code(each.condition) for each in found.masks] == ["mask"]
    assert found.dropout is not None
    assert (found.plain, found.heads_apart, len(found.steps)) == (True, True, 4)


@pytest.mark.parametrize(
    "body",
    [
        "return torch.softmax(q @ k.mT, -1) @ v, torch.softmax(q @ k.mT, -1).sum()",
        "return (q @ k.mT).softmax(-1).matmul(v)",
        "w = (0.5 * (q @ k.swapaxes(-1, -2))).softmax(dim=-1)\nreturn w @ v",
        "t = k.transpose(-1, -2)\nreturn torch.softmax(q @ t, -1) @ v",
        "s = q @ k.mT\ns *= 0.5\nreturn torch.softmax(s, -1) @ v",
        "return torch.softmax(torch.where(mask, q @ k.mT, -torch.inf), -1) @ v",
    ],
)
def test_there_is_one(body: str) -> None:
    assert len(_read(body)[1]) == 1


@pytest.mark.parametrize(
    "body",
    [
        "w = torch.softmax(q @ k.mT, -1)\nreturn w @ v, w",
        "return torch.softmax(q @ k.mT, -2) @ v",
        "return torch.softmax(q @ k, -1) @ v",
        "return v @ torch.softmax(q @ k.mT, -1)",
        "return torch.softmax(q @ k.mT, -1) * v",
        "return torch.softmax((q @ k.mT).relu(), -1) @ v",
        "s = q @ k.mT\nprint(s)\nreturn torch.softmax(s, -1) @ v",
        "w = torch.softmax(q @ k.mT, -1)\nif n:\n    return w @ v",
    ],
)
def test_there_is_none(body: str) -> None:
    assert _read(body)[1] == []


@pytest.mark.parametrize(
    ("factor", "usual"),
    [
        ("/ math.sqrt(k.size(-1))", True),
        ("* q.shape[-1] ** -0.5", True),
        ("* (1.0 / math.sqrt(q.size(-1)))", True),
        ("/ math.sqrt(n)", False),
        ("* k.size(-1) ** 0.5", False),
        ("/ math.sqrt(v.size(-1))", False),
        ("* 0.125", False),
    ],
)
def test_the_usual_scale(factor: str, usual: bool) -> None:
    script, found = _one(f"return torch.softmax(q @ k.mT {factor}, -1) @ v")
    assert script.values.scores.is_usual(found) is usual


@pytest.mark.parametrize(
    ("condition", "past"),
    [
        ("torch.tril(torch.ones(n, n)) == 0", True),
        ("~torch.ones(n, n).tril().bool()", True),
        ("torch.triu(torch.ones(n, n), diagonal=1).bool()", True),
        ("torch.tril(torch.ones(9, 9))[:n, :n] == 0", True),
        ("torch.triu(torch.ones(n, n)).bool()", False),
        ("torch.tril(torch.ones(n, n)) == 1", False),
        ("torch.tril(torch.ones(9, 9))[1:n, 1:n] == 0", False),
        ("torch.tril(torch.ones(9, 9))[:n, :9] == 0", False),
        ("torch.tril(torch.ones(n, n), diagonal=-1) == 0", False),
        ("mask == 0", False),
    ],
)
def test_the_triangle_of_the_past(condition: str, past: bool) -> None:
    script, found = _one(
        f"return torch.softmax((q @ k.mT).masked_fill({condition}, -torch.inf), -1) @ v"
    )
    assert script.values.scores.leaves_past(found.masks[0]) is past


@pytest.mark.parametrize(
    ("fill", "lowest"),
    [
        ("float('-inf')", -float("inf")),
        ("-float('inf')", -float("inf")),
        ("-math.inf", -float("inf")),
        ("-1e9", -1e9),
        ("torch.finfo(q.dtype).min", -3e38),
        ("0.0", None),
        ("n", None),
    ],
)
def test_what_a_mask_fills_in(fill: str, lowest: float | None) -> None:
    script, found = _one(f"return torch.softmax((q @ k.mT).masked_fill(mask, {fill}), -1) @ v")
    assert script.values.scores.lowest(found.masks[0]) == lowest
