"""Formats for reviews: Markdown, rdjson, and paths from the root of the repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_samples import SCRIPT, report_of

from torchlint.edit import Edit, Span
from torchlint.finding import Finding, Fix
from torchlint.report.formats import render
from torchlint.report.paint import Paint

PLAIN = Paint()


def test_markdown_has_counts_ranking_table_and_diffs() -> None:
    text = render(report_of(), PLAIN, "markdown")
    assert text.startswith("### torchlint: 4 findings in 1 file (1 high, 1 medium, 2 low)\n")
    assert "\n**Most worth**: TL201, TL206, TL401.\n" in text
    assert "| train.py:12:25 | TL201 high | `loss.item()` waits for the GPU on every step" in text
    assert text.count("<details>") == 2
    assert '\n-    損失 = "損失"; total += loss.item()\n' in text


def test_markdown_links_to_the_lines_of_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", "a/b")
    monkeypatch.setenv("GITHUB_SHA", "c0ffee")
    text = render(report_of(path="src/train it.py"), PLAIN, "markdown")
    link = "(https://github.com/a/b/blob/c0ffee/src/train%20it.py#L12)"
    assert f"| [src/train it.py:12:25]{link} | TL201 high |" in text


def test_markdown_stays_below_the_limit_of_comments() -> None:
    text = "x = 1\n" * 2000
    findings = [
        Finding(
            "TL206",
            Span(6 * row, 6 * row + 1),
            f"finding {row}",
            Fix.exact("Mend it", (Edit(Span(6 * row, 6 * row + 1), "y"),)),
        )
        for row in range(2000)
    ]
    printed = render(report_of(text, findings), PLAIN, "markdown")
    assert len(printed) < 65_000
    assert "more findings are in the log.\n" in printed


def test_markdown_of_a_finding_cannot_forge_a_table_or_a_tag() -> None:
    finding = Finding("TL206", Span(0, 6), "a | b <img> @all `c | <d>` ` <script>")
    line = render(report_of(SCRIPT, [finding]), PLAIN, "markdown").splitlines()[4]
    assert line.count(" | ") == 3
    assert "<script>" not in line
    balanced = Finding("TL206", Span(0, 6), "a <img> `<d>`")
    line = render(report_of(SCRIPT, [balanced]), PLAIN, "markdown").splitlines()[4]
    assert "a &#60;img> `<d>`" in line


def test_an_empty_report_says_so() -> None:
    report = report_of(findings=[])
    assert render(report, PLAIN, "markdown") == "### torchlint\n\nNothing found in 1 file.\n"


def test_rdjson_counts_bytes_and_suggests_fixes() -> None:
    found = json.loads(render(report_of(), PLAIN, "rdjson"))["diagnostics"]
    waits = next(each for each in found if each["code"]["value"] == "TL201")
    row = SCRIPT.splitlines()[11]
    column = len(row[: row.index("loss.item()")].encode()) + 1
    assert waits["location"]["range"]["start"] == {"line": 12, "column": column}
    assert waits["severity"] == "ERROR"
    assert [each["text"] for each in waits["suggestions"]] == [
        "total = total + loss.detach().double()",
        "total = float(total)\n",
    ]
    assert {each["severity"] for each in found} == {"ERROR", "WARNING", "INFO"}


@pytest.mark.parametrize("form", ["github", "sarif", "rdjson", "markdown"])
def test_paths_count_from_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    monkeypatch.chdir(tmp_path / "sub")
    text = render(report_of(), PLAIN, form)
    assert "sub/train.py" in text
    if form == "sarif":
        (run,) = json.loads(text)["runs"]
        assert run["originalUriBaseIds"] == {"SRCROOT": {"uri": f"{tmp_path.as_uri()}/"}}
