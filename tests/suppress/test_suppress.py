from __future__ import annotations

import pytest

from torchlint.edit import Span, apply_edits
from torchlint.finding import Finding
from torchlint.source import Source
from torchlint.suppress import find_suppressions, is_suppression, names_our_rules

KNOWN = {"TL101": "loader-without-workers", "TL201": "sync", "TL202": "other", "TL802": "profiler"}


def _silenced(text: str, code: str = "TL201", at: str = "x") -> bool:
    source = Source("a.py", text)
    start = text.index(at)
    marks = find_suppressions(source, KNOWN)
    return marks.silence(Finding(code, Span(start, start + 1), "here"))


@pytest.mark.parametrize(
    "text",
    [
        "x = 1  # noqa\n",
        "x = 1  # NOQA : tl201\n",
        "x = 1  #noqa:TL201\n",
        "x = 1  # noqa: E501, TL201 because of that\n",
        "x = 1  # noqa: E501 TL201\n",
        "x = 1  # noqa: sync\n",
        "x = 1  # noqa: E501, sync\n",
        "x = 1  # noqa: TL2\n",
        "x = 1  # type: ignore # noqa: TL201\n",
        "x = 1  # torchlint: ignore\n",
        "x = 1  # torchlint: ignore because\n",
        "x = 1  # torchlint: ignore[TL101, TL201] because\n",
        "x = 1  # torchlint:ignore[ sync ]\n",
        "x = 1  # noqa: E501 # torchlint: ignore[TL201]\n",
        "f(\n    x,\n    2,\n)  # noqa: TL201\n",
        "f(  # noqa: TL201\n    x,\n)\n",
        "f(\n    x,\n    # torchlint: ignore[TL201]\n)\n",
        "for x in y:  # noqa: TL201\n    pass\n",
        "a = 1; b = x  # noqa: TL201\n",
        "x = '''\n''' + \\\n    b  # noqa\n",
        "if a:\r\n\tx = 1  # noqa: TL201\r\n",
        "a = 1\r# b\rx = 1  # noqa: TL201\r",
        "\x0cx = 'é'  # noqa: TL201",
        "x = 1\n# torchlint: ignore-file[TL201]\n",
        "# torchlint: ignore-file\nx = 1\n",
        "x = 1  # torchlint: ignore-file[sync] all of it\n",
    ],
)
def test_it_is_silenced(text: str) -> None:
    assert _silenced(text)


@pytest.mark.parametrize(
    "text",
    [
        "x = 1  # noqa: TL101\n",
        "x = 1  # noqa: E501\n",
        "x = 1  # noqa: TL101 sync is fine here\n",
        "x = 1  # no qa\n",
        "x = 1  # noqa2\n",
        "x = 1  # torchlint: ignored\n",
        "x = 1  # torchlint: ignore[]\n",
        "x = 1  # torchlint: ignore-files\n",
        "x = '# noqa: TL201'\n",
        "x = '''\n# torchlint: ignore-file\n'''\n",
        "# noqa: TL201\nx = 1\n",
        "x = 1\n# noqa: TL201\n",
        "for x in y:\n    pass  # noqa: TL201\n",
        "x = 1\ny = f(\n    2,  # noqa: TL201\n)\n",
    ],
)
def test_it_is_not_silenced(text: str) -> None:
    assert not _silenced(text)


def test_a_bare_mark_does_not_silence_the_rule_about_marks() -> None:
    known = {**KNOWN, "TL002": "unused-suppression"}
    source = Source("a.py", "x  # torchlint: ignore\ny  # torchlint: ignore[TL002]\n")
    marks = find_suppressions(source, known)
    assert not marks.silence(Finding("TL002", Span(0, 1), "unused"))
    assert marks.silence(Finding("TL002", Span(source.text.index("y"), 24), "unused"))


def _without_unused(text: str, ran: tuple[str, ...] = tuple(KNOWN)) -> str:
    source = Source("a.py", text)
    marks = find_suppressions(source, KNOWN)
    marks.silence(Finding("TL201", Span(0, 1), "here"))
    return apply_edits(text, [each.edit for each in marks.unused(ran, complete=True)])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x  # noqa: TL101\n", "x\n"),
        ("x  # noqa: TL201, TL101\n", "x  # noqa: TL201\n"),
        ("x  # noqa: TL101,TL201,E501 reason\n", "x  # noqa: TL201, E501 reason\n"),
        ("x  # noqa: TL2\n", "x  # noqa: TL2\n"),
        ("x  # noqa\n", "x  # noqa\n"),
        ("x  # torchlint: ignore[TL101] reason # noqa: TL201\n", "x  # noqa: TL201\n"),
        ("x  # torchlint: ignore[sync, profiler]\n", "x  # torchlint: ignore[sync]\n"),
        ("x  # noqa: TL201\n    # noqa: TL999\n", "x  # noqa: TL201\n"),
        ("x  # noqa: TL201\n# torchlint: ignore-file[TL1]", "x  # noqa: TL201\n"),
        ("x  # noqa: TL201\r\n# torchlint: ignore\r\ny\r\n", "x  # noqa: TL201\r\ny\r\n"),
    ],
)
def test_what_is_unused_is_taken_away_and_no_more(before: str, after: str) -> None:
    assert _without_unused(before) == after
    assert _without_unused(after) == after


def test_only_rules_that_ran_are_judged() -> None:
    text = "y\nx  # noqa: TL101, TL201\n"
    assert _without_unused(text, ran=("TL101",)) == "y\nx  # noqa: TL201\n"
    assert _without_unused("y\nx  # noqa: TL2\n", ran=("TL202",)) == "y\nx  # noqa: TL2\n"
    assert _without_unused("y\nx  # noqa: TL2\n") == "y\nx\n"


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("x  # noqa", False),
        ("x  # noqa: E501, W605", False),
        ("x  # noqa: E501, TL101", True),
        ("x  # noqa: sync", True),
        ("x  # torchlint: ignore", True),
        ("x = 'torchlint'", False),
    ],
)
def test_a_text_that_may_be_meant_for_us(text: str, ours: bool) -> None:
    assert names_our_rules(text, KNOWN) is ours
    assert is_suppression(text) is ("#" in text)
