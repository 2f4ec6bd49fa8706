from __future__ import annotations

from pathlib import Path

import pytest
from report_samples import report_of, span_of

from torchlint.finding import Finding
from torchlint.report.baseline import Baseline
from torchlint.report.identity import Statements, fingerprints, relative_path
from torchlint.source import Source


def statement(text: str, part: str) -> str:
    """Return what a finding about `part` is known by."""
    return Statements(Source("a.py", text)).of(Finding("XY001", span_of(text, part), ""))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("total += loss.item()\n", "total  +=  loss . item( )  # why\n"),
        ("f(slow(), 1)\n", "f(\n    slow(),  # here\n    1,\n)\n"),
        ("x = slow() + 1\n", "x = slow() + \\\n    1\n"),
        ("for x in slow():\n    f(x)\n", "for x in slow():\n    g(x)\n    h(x)\n"),
        ("    if a:\n        slow()\n", "slow()\n"),
        ("slow()", "slow()\r\n"),
        ("slow('a')", 'slow("a")'),
    ],
    ids=[
        "spaces",
        "lines",
        "backslash",
        "the body of a loop",
        "indentation",
        "line ends",
        "quotes",
    ],
)
def test_layout_and_neighbours_make_no_difference(text: str, same: str) -> None:
    part = "slow" if "slow" in text else "loss"
    assert statement(text, part) == statement(same, part)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("a = slow()\n", "b = slow()\n"),
        ("for x in slow():\n    pass\n", "for y in slow():\n    pass\n"),
        ("f('a', slow())\n", "f('b', slow())\n"),
    ],
)
def test_another_statement_is_another(text: str, other: str) -> None:
    assert statement(text, "slow") != statement(other, "slow")


def test_of_a_long_statement_only_the_beginning_and_the_finding_count() -> None:
    layers = [f"    nn.Linear({width}, {width})," for width in range(40)]
    text = "net = nn.Sequential(\n" + "\n".join([*layers, "    slow(),"]) + "\n)\n"
    known = statement(text, "slow()")
    assert known.startswith("net=nn.Sequential(nn.Linear(0,0)")
    assert known.endswith("… slow()")
    assert statement(text.replace("30, 30", "31, 30"), "slow()") == known
    assert statement(text.replace("net =", "other ="), "slow()") != known
    assert len(statement(text, text.strip())) < 300


def test_what_is_no_python_is_known_by_its_line() -> None:
    text = "x = 1\n'''\n  slow( )\n"
    assert statement(text, "slow") == "slow()"


def test_alike_findings_are_numbered() -> None:
    text = "slow()\nslow()\n"
    findings = [Finding("XY001", span_of(text, "slow", start), "") for start in (0, 1)]
    first, second = fingerprints(report_of(text, findings).entries, Path.cwd())
    assert first != second
    (alone,) = fingerprints(report_of(text, findings[1:]).entries, Path.cwd())
    assert alone == first


def test_paths_are_seen_from_a_folder(tmp_path: Path) -> None:
    assert relative_path(str(tmp_path / "src" / "a.py"), tmp_path) == "src/a.py"
    assert relative_path(str(tmp_path / "a.py"), tmp_path / "src") == "../a.py"
    assert relative_path("-", tmp_path) == "-"


def test_a_file_is_cut_into_statements_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Source] = []

    class Counted(Statements):
        def __init__(self, source: Source) -> None:
            made.append(source)
            super().__init__(source)

    monkeypatch.setattr("torchlint.report.identity.Statements", Counted)
    entries = report_of().entries
    assert len(fingerprints(entries, Path.cwd())) == len(entries) > 1
    assert made == [entries[0].source]
    baseline = Baseline.of(Path("known.json"), entries)
    del made[:]
    assert all(baseline.knows(entry) for entry in entries)
    assert made == [entries[0].source]
