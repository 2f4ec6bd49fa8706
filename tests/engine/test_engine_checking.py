from __future__ import annotations

import sys

import pytest
from tiny_rules import broken, finding, replacing, select

from torchlint.config import Settings
from torchlint.engine import check_bytes, check_source
from torchlint.finding import Safety
from torchlint.registry import Selection
from torchlint.source import Source


def _check(text: str, *rules: object, **options: object) -> list[str]:
    selection = select(*rules)  # type: ignore[arg-type]
    settings = Settings(**options)  # type: ignore[arg-type]
    result = check_source(Source("train.py", text), selection, settings)
    assert result.source is not None
    return [
        f"{result.source.position(each.span.start).row} {each.code}" for each in result.findings
    ]


def test_findings_come_in_the_order_of_the_text() -> None:
    text = "a = 1\nb = a\n"
    assert _check(text, replacing("b", "c"), finding("a")) == ["1 TL901", "2 TL902", "2 TL901"]


def test_a_rule_whose_words_are_missing_is_not_asked() -> None:
    result = check_source(Source("a.py", "y = 1\n"), select(broken("loader")), Settings())
    assert result.is_whole
    assert result.findings == ()


def test_a_rule_that_fails_is_named_and_the_others_go_on() -> None:
    result = check_source(Source("a.py", "x = 1\n"), select(broken(), finding("x")), Settings())
    assert [each.code for each in result.findings] == ["TL901"]
    (error,) = result.warnings
    assert error.startswith("internal error in TL903 on a.py (please report): KeyError: 'no such")
    assert error.endswith("other rules ran")
    assert "tiny_rules.py:" in error


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("import torch\nx.cuda(async=True)\n", (2, 8), "write `non_blocking=` instead"),
        ("import torch\nprint 'loss'\n", (2, 1), "this is Python 2"),
        pytest.param(
            "import torch\ntry:\n    pass\nexcept E, e:\n    pass\n",
            (4, 8),
            "this is Python 2",
            marks=pytest.mark.skipif(
                sys.version_info >= (3, 14), reason="Python 3.14 takes it for two exceptions"
            ),
        ),
        ("import torch\n<<<<<<< HEAD\n", (2, 1), "a merge conflict was left in the file"),
        ("import torch\n%matplotlib inline\n", (2, 1), "a notebook's magic or shell line"),
        ("import torch\nx = (1,\n", (2, 5), "was never closed"),
        ("import torch\r\nx = $\r\n", (2, 5), "invalid"),
    ],
)
def test_a_file_that_does_not_parse_is_one_finding(
    text: str, place: tuple[int, int], said: str
) -> None:
    result = check_source(Source("old.py", text), select(broken("torch")), Settings())
    (found,) = result.findings
    position = Source("old.py", text).position(found.span.start)
    assert found.code == "TL001"
    assert (position.row, position.column) == place
    assert said in found.message


@pytest.mark.parametrize(("first", "impact"), [("import torch", None), ("import os", "low")])
def test_python_2_without_torch_has_low_impact(first: str, impact: str | None) -> None:
    text = f"{first}\nprint 'done'\n"
    (found,) = check_source(Source("old.py", text), select(), Settings()).findings
    assert (found.code, found.impact) == ("TL001", impact)


@pytest.mark.parametrize("text", ["(" * 20_000 + ")" * 20_000, "-" * 50_000 + "1"])
def test_code_that_is_nested_too_deeply_is_a_finding(text: str) -> None:
    assert _check(f"import torch\nx = {text}\n", finding("torch"))[-1].endswith("TL001")


@pytest.mark.parametrize(
    ("data", "row", "said"),
    [
        (b"import torch\nx = '\0'\n", 2, "NUL byte"),
        (b"import torch\nx = '\xff'\n", 2, "byte 0xff is not utf-8 text"),
        (b"# coding: no-such\nimport torch\n", 1, "no-such"),
    ],
)
def test_bytes_that_are_no_text_are_a_finding(data: bytes, row: int, said: str) -> None:
    result = check_bytes(data, "bad.py", select(), Settings())
    (found,) = result.findings
    assert result.source is not None
    assert result.source.position(found.span.start).row == row
    assert said in found.message


def test_a_warning_of_the_parser_is_not_shown() -> None:
    assert _check('import torch\nx = "\\d" is 1\n', finding("torch")) == ["1 TL901"]


@pytest.mark.parametrize("text", ["print 'no network here'\n", "def f(:\n", "x = (\n", "\n  x"])
def test_a_file_of_no_concern_has_to_parse_too(text: str) -> None:
    assert [each.partition(" ")[2] for each in _check(text, finding("torch"))] == ["TL001"]
    assert check_source(Source("a.py", text), Selection.of(finding("torch")), Settings()).is_whole


@pytest.mark.parametrize("text", ["", "return 1\n", "await x\n", "nonlocal x\n", "x = '\\d'\n"])
def test_what_only_a_compiler_refuses_parses(text: str) -> None:
    assert _check(text, finding("torch")) == []


def test_codes_are_ignored_for_some_files() -> None:
    ignores = {"train.py": ("reporting",), "!train.py": ("TL9",)}
    text = "x = 1\n"
    assert _check(text, finding("x"), replacing("x", "y"), per_file_ignores=ignores) == ["1 TL902"]


def test_a_comment_silences_a_finding() -> None:
    text = "x = f(\n    1,  # noqa: TL901\n)\nx = 2\n"
    result = check_source(Source("a.py", text), select(finding("x")), Settings())
    assert [each.span.start for each in result.findings] == [text.rindex("x")]
    assert result.suppressed == 1


def test_comments_can_be_passed_over() -> None:
    assert _check("x = 1  # noqa\n", finding("x"), ignore_suppressions=True) == ["1 TL901"]


def test_a_suppression_is_unused_where_its_rule_finds_nothing() -> None:
    text = "y = 1  # torchlint: ignore[TL901]\nx = 1  # torchlint: ignore[reporting]\n"
    assert _check(text, finding("x")) == ["1 TL002"]


def test_a_suppression_of_a_rule_that_failed_is_not_judged() -> None:
    text = "x = 1  # torchlint: ignore[TL903]\ny = 1  # torchlint: ignore\n"
    assert _check(text, broken()) == []


def test_a_bare_mark_is_judged_by_a_complete_run_only() -> None:
    source = Source("a.py", "y = 1  # torchlint: ignore\n")
    rules = select(finding("x"))
    assert [each.code for each in check_source(source, rules, Settings()).findings] == ["TL002"]
    partial = Selection(rules.rules, rules.known, complete=False)
    assert check_source(source, partial, Settings()).findings == ()


@pytest.mark.parametrize(
    ("options", "safety"),
    [
        ({}, Safety.UNSAFE),
        ({"extend_safe_fixes": ("TL9",)}, Safety.CLOSE),
        ({"extend_safe_fixes": ("TL9",), "extend_unsafe_fixes": ("TL902",)}, Safety.UNSAFE),
        ({"extend_unsafe_fixes": ("ALL",), "extend_safe_fixes": ("replacing",)}, Safety.CLOSE),
        ({"unfixable": ("TL902",)}, None),
        ({"fixable": ("TL1",)}, None),
        ({"fixable": ("replacing",), "unfixable": ("TL9",)}, Safety.UNSAFE),
    ],
)
def test_users_grade_fixes(options: dict[str, tuple[str, ...]], safety: Safety | None) -> None:
    rules = select(replacing("x", "y", safety=Safety.UNSAFE))
    result = check_source(Source("a.py", "x = 1\n"), rules, Settings(**options))  # type: ignore[arg-type]
    (found,) = result.findings
    assert (found.fix.safety if found.fix else None) is safety
