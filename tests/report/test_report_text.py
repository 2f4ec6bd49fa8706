from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
from report_samples import SCRIPT, report_of, sample_findings, span_of
from syrupy.assertion import SnapshotAssertion

from torchlint import __version__
from torchlint.config import FORMATS
from torchlint.edit import Edit, Span
from torchlint.finding import Finding, Fix, Note, Safety
from torchlint.report import formats
from torchlint.report.block import question
from torchlint.report.entry import Entry
from torchlint.report.formats import ReportWriter, render
from torchlint.report.paint import Paint
from torchlint.report.report import Report
from torchlint.report.unified import diff_bytes, diff_lines
from torchlint.source import Source

PLAIN = Paint()


@pytest.mark.parametrize("form", ["full", "concise", "grouped", "github"])
def test_the_formats_look_like_this(snapshot: SnapshotAssertion, form: str) -> None:
    assert render(report_of(), PLAIN, form) == snapshot


@pytest.mark.parametrize("held", [0, 400, 10_000])
@pytest.mark.parametrize("form", ["full", "concise", "grouped", "json", "json-lines", "github"])
def test_what_is_poured_early_is_the_same_text(
    monkeypatch: pytest.MonkeyPatch, form: str, held: int
) -> None:
    monkeypatch.setattr(formats, "HELD", held)
    files = [report_of(path=path).entries for path in ("a.py", "b.py", "c.py")]
    poured: list[str] = []
    writer = ReportWriter.in_format(form, PLAIN, poured.append, statistics=False)
    assert writer is not None
    for entries in files:
        writer.add(entries)
        writer.add(())
    assert writer.has_poured is bool(poured)
    assert len(poured) == 3 or held
    told = Report((), files=3, told=writer.tally)
    whole = Report(tuple(entry for entries in files for entry in entries), files=3)
    assert "".join(poured) + writer.text(told) == render(whole, PLAIN, form)


@pytest.mark.parametrize("entries", [(), report_of().entries[:1], report_of().entries])
def test_json_is_the_list_that_json_itself_writes(entries: tuple[Entry, ...]) -> None:
    written = render(Report(entries, files=1), PLAIN, "json")
    assert written == json.dumps(json.loads(written), indent=2) + "\n"
    assert len(json.loads(written)) == len(entries)


def test_colours_change_nothing_but_the_look(snapshot: SnapshotAssertion) -> None:
    colored = render(report_of(), Paint(color=True), "full")
    assert colored == snapshot
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == render(report_of(), PLAIN, "full")


def test_colours_that_fade_on_one_background_are_not_used() -> None:
    for form in ("full", "concise", "grouped"):
        colored = render(report_of(), Paint(color=True), form)
        black_yellow_blue_cyan_or_bright = re.compile(r"\x1b\[(?:\d+;)*(?:3[0346]|9\d)")
        assert not black_yellow_blue_cyan_or_bright.search(colored)
        assert "\x1b[" in colored


def test_statistics(snapshot: SnapshotAssertion) -> None:
    twice = [*sample_findings(SCRIPT), sample_findings(SCRIPT)[2]]
    report = report_of(findings=twice)
    assert render(report, PLAIN, "full", statistics=True) == snapshot
    assert render(report, PLAIN, "json", statistics=True) == snapshot
    lines = render(report, PLAIN, "json-lines", statistics=True).splitlines()
    counts = [json.loads(line) for line in lines]
    assert counts == json.loads(render(report, PLAIN, "json", statistics=True))
    assert sum(each["count"] for each in counts) == len(report.entries)


@pytest.mark.parametrize(
    ("text", "part", "marked"),
    [
        ("x = slow()\n", "slow()", ["x = slow()", "    ^^^^^^"]),
        ("\tslow()\n", "slow()", ["    slow()", "    ^^^^^^"]),
        ("if x:\tslow()\n", "slow()", ["if x:   slow()", "        ^^^^^^"]),
        ("損失 = slow()\n", "slow()", ["損失 = slow()", "       ^^^^^^"]),
        ("損失 = slow()\n", "損失", ["損失 = slow()", "^^^^"]),
        ("e\u0301 = slow()\n", "slow()", ["e\u0301 = slow()", "    ^^^^^^"]),
        ("x = '\x1b' + slow()\n", "slow()", [r"x = '\x1b' + slow()", "             ^^^^^^"]),
        ("x\n", "", ["x", "^"]),
        ("\x0cslow()\r\n", "slow()", [r"\x0cslow()", "    ^^^^^^"]),
    ],
    ids=[
        "plain",
        "tab",
        "tab in the middle",
        "wide before",
        "wide range",
        "combining",
        "control",
        "empty range",
        "form feed and CRLF",
    ],
)
def test_the_marks_stand_under_the_range(text: str, part: str, marked: list[str]) -> None:
    report = report_of(text, [Finding("XY001", span_of(text, part), "here")])
    lines = render(report, PLAIN, "full").splitlines()
    assert [line[4:] for line in lines[2:4]] == marked


def full(text: str, span: Span, width: int | None = None) -> list[str]:
    report = report_of(text, [Finding("XY001", span, "here")])
    lines = render(report, Paint(width=width), "full").splitlines()
    return lines[next(row for row, line in enumerate(lines) if line.endswith(" |")) : -2]


@pytest.mark.parametrize("style", ["full", "grouped"])
def test_a_message_stands_below_where_the_terminal_is_narrow(style: str) -> None:
    said = "`loss.item()` waits for the device in every step: add up on the device"
    report = report_of(SCRIPT, [Finding("TL201", span_of(SCRIPT, "loss.item()"), said)])
    for color in (False, True):
        text = render(report, Paint(color, width=50), style)
        lines = click.unstyle(text).splitlines()
        prose = [line for line in lines if "TL201" in line or "loss" in line or "device" in line]
        assert max(map(len, prose)) <= 50
        assert " ".join(click.unstyle(text).split()).count(f"{said}") == 1
        assert "] high:" in " ".join(lines).replace("]     ", "] ")


def test_a_range_of_several_lines_has_a_bar() -> None:
    text = "x = f(\n    1,\n)\n"
    assert full(text, span_of(text, "f(\n    1,\n)")) == [
        "  |",
        "1 |   x = f(",
        "  |  _____^",
        "2 | |     1,",
        "3 | | )",
        "  | |_^",
        "  |",
    ]


def test_a_long_range_is_cut_in_the_middle() -> None:
    text = "f(\n" + "".join(f"    {number},\n" for number in range(30)) + ")\n"
    lines = full(text, Span(0, len(text)))
    assert lines == [
        "   |",
        " 1 | / f(",
        " 2 | |     0,",
        " 3 | |     1,",
        " 4 | |     2,",
        "...",
        "31 | |     29,",
        "32 | | )",
        "   | |_^",
        "   |",
    ]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_long_line_is_cut_around_the_range(width: int) -> None:
    text = "x = [" + "1, " * 200 + "slow(), " + "損, " * 200 + "]\n"
    lines = full(text, span_of(text, "slow()"), width)
    shown, marks = lines[1], lines[2]
    start = marks.index("^")
    assert shown[start : start + 6] == "slow()"
    assert marks.count("^") == 6
    assert "…" in shown
    assert all(len(line) + line.count("損") <= width for line in lines)


def test_the_diff_of_a_fix_has_old_and_new_line_numbers() -> None:
    text = "".join(f"line{number}\n" for number in range(1, 31))
    fix = Fix.exact(
        "Mend it",
        (
            Edit(Span(0, 0), "import os\n"),
            Edit(span_of(text, "line20"), "line20a\nline20b"),
            Edit(Span(len(text), len(text)), "last\n"),
        ),
    )
    report = report_of(text, [Finding("XY001", span_of(text, "line20"), "here", fix)])
    lines = render(report, PLAIN, "full").splitlines()
    assert lines[lines.index("help: Mend it (exact)") + 1 : -2] == [
        " 1 + import os",
        " 2   line1",
        "...",
        "20   line19",
        "20 - line20",
        "21 + line20a",
        "22 + line20b",
        "23   line21",
        "...",
        "32   line30",
        "33 + last",
    ]


@pytest.mark.parametrize("width", [40, 80])
def test_what_a_fix_changes_in_a_long_line_is_in_sight(width: int) -> None:
    text = "x = [" + "1, " * 200 + "slow()]\n"
    fix = Fix.exact("Mend it", (Edit(span_of(text, "slow"), "fast"),))
    report = report_of(text, [Finding("XY001", Span(0, 1), "here", fix)])
    lines = render(report, Paint(width=width), "full").splitlines()
    removed, added = (line for line in lines if line.startswith(("1 - ", "1 + ")))
    assert removed.startswith("1 - …")
    assert removed.endswith("1, slow()]")
    assert added.startswith("1 + …")
    assert added.endswith("1, fast()]")
    assert len(removed) <= width


def test_a_large_fix_is_cut_short() -> None:
    text = "slow()\n"
    fix = Fix.exact("Rewrite", (Edit(Span(0, 7), "new()\n" * 60),))
    report = report_of(text, [Finding("XY001", Span(0, 4), "here", fix)])
    lines = render(report, PLAIN, "full").splitlines()
    assert lines[-3] == "   … 37 more lines: `torchlint fix` prints them all"


def test_a_fix_that_is_cut_short_shows_nothing_behind_the_cut() -> None:
    text = "".join(f"line{number}\n" for number in range(200))
    places = [span_of(text, f"line{number}\n").start for number in (10, 60, 110)]
    fix = Fix.exact("Rewrite", tuple(Edit(Span(at, at), "new\n" * 15) for at in places))
    report = report_of(text, [Finding("XY001", Span(0, 4), "here", fix)])
    lines = render(report, PLAIN, "full").splitlines()
    assert sum("+ new" in line for line in lines) == 21
    assert lines[-3] == "    … 27 more lines: `torchlint fix` prints them all"


def test_lines_that_only_move_are_one_line() -> None:
    body = [f"line{number}()" for number in range(12)]
    text = "with slow():\n" + "".join(f"    {line}\n" for line in body)
    moved = "fast()\n" + "".join(f"{line}\n" for line in body)
    fix = Fix.exact("Move", (Edit(Span(0, len(text)), moved),))
    entry = report_of(text, [Finding("XY001", Span(0, 4), "here", fix)]).entries[0]
    lines = render(Report((entry,)), PLAIN, "full").splitlines()
    assert lines[lines.index("help: Move (exact)") + 1 : -2] == [
        "1 - with slow():",
        "1 + fast()",
        "    … 12 lines move 4 columns to the left",
    ]
    whole = question(entry, PLAIN).splitlines()
    assert "13 -     line11()" in whole
    assert "13 + line11()" in whole


def at_width(width: int | None) -> list[str]:
    """Return the lines of a finding with long sentences."""
    long = " ".join(["words that go on and on"] * 6)
    fix = Fix.unsafe("Mend it", (Edit(Span(0, 4), "fast"),), because=long)
    note = Note(Span(8, 12), long)
    finding = Finding("XY001", Span(0, 4), long, fix, (note,))
    return render(
        report_of("slow()\n\nmade()\n", [finding]), Paint(width=width), "full"
    ).splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_sentences_are_broken_at_the_edge_of_the_terminal(width: int) -> None:
    lines = at_width(width)
    assert all(len(line) <= width for line in lines[:-1])
    assert lines[0] == "train.py:1:1: XY001 [pack-of-others] low:"
    assert lines[1].startswith("    words that go on")
    note = next(row for row, line in enumerate(lines) if line.startswith("note: "))
    assert lines[note + 1].startswith("      ")
    assert "help: Mend it" in lines
    plain = at_width(None)
    assert plain[0].count("go on") == 6
    assert " ".join(" ".join(lines).split()).count("go on") == 18


def test_a_note_that_fits_stands_in_the_excerpt() -> None:
    lines = at_width(200)
    assert "3 | made()" in lines
    assert lines[lines.index("3 | made()") + 1].startswith("  | ---- words that go on")
    assert not any(line.startswith("note:") for line in lines)


@pytest.mark.parametrize(
    ("threshold", "findings", "expected"),
    [
        (Safety.CLOSE, slice(0, 0), "Nothing found in 1 file."),
        (
            Safety.CLOSE,
            slice(0, 1),
            "Found 1 finding: no automatic fix, the messages say what to do.",
        ),
        (
            Safety.CLOSE,
            slice(1, 2),
            "Found 1 finding: 1 fixable with `torchlint fix --apply --unsafe-fixes`.",
        ),
        (
            Safety.CLOSE,
            slice(2, 4),
            "Found 2 findings: 1 fixable with `torchlint fix --apply`.",
        ),
        (
            Safety.CLOSE,
            slice(0, 4),
            "Found 4 findings: 1 fixable with `torchlint fix --apply`, 1 more with"
            " `--unsafe-fixes`.",
        ),
        (
            Safety.UNSAFE,
            slice(0, 4),
            "Found 4 findings: 2 fixable with `torchlint fix --apply --unsafe-fixes`.",
        ),
    ],
)
def test_the_last_line_says_what_to_do(threshold: Safety, findings: slice, expected: str) -> None:
    report = report_of(findings=sample_findings(SCRIPT)[findings], threshold=threshold)
    assert render(report, PLAIN, "concise").splitlines()[-1 - (len(report.entries) > 1)] == expected


def test_the_last_line_is_two_where_the_terminal_is_narrow() -> None:
    lines = render(report_of(), Paint(width=80), "concise").splitlines()
    assert lines[-3:] == [
        "Found 4 findings:",
        "  1 fixable with `torchlint fix --apply`, 1 more with `--unsafe-fixes`.",
        "Most worth: TL201, TL206, TL401. `torchlint verify train.py` proves it.",
    ]


@pytest.mark.parametrize("form", FORMATS)
def test_an_empty_report(snapshot: SnapshotAssertion, form: str) -> None:
    text = render(Report((), files=3), PLAIN, form)
    text = text.replace(f"{Path.cwd().as_uri()}/", "ROOT")
    assert text.replace(f'"{__version__}"', '"VERSION"') == snapshot


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("color", [False, True])
def test_nothing_in_a_file_reaches_the_terminal_raw(form: str, color: bool) -> None:
    evil = "\x1b]0;x\x07\x9b\x7f\u202e\u2028"
    text = f"slow()  # {evil}\n"
    fix = Fix.unsafe(f"Take {evil}", (Edit(Span(0, 4), f"fast{evil}"),), because=evil)
    finding = Finding("XY001", Span(0, 4), f"message\n{evil}", fix)
    report = report_of(text, [finding], path=f"a\r\n::error::{evil}.py")
    printed = re.sub(r"\x1b\[[0-9;]*m", "", render(report, Paint(color), form))
    assert not set(evil.replace("]0;x", "") + "\r") & set(printed)
    assert "\n::error::" not in printed.removeprefix("::error")


def test_links_are_for_terminals_that_have_them() -> None:
    report = report_of()
    assert "\x1b]8" not in render(report, Paint(color=True, links=True), "concise")


@pytest.mark.parametrize(
    ("path", "head"),
    [
        ("src/a b.py", b"--- a/src/a b.py\n+++ b/src/a b.py\n"),
        ('q"\n\x1b.py', b'--- "a/q\\"\\n\\033.py"\n+++ "b/q\\"\\n\\033.py"\n'),
        ("/tmp/x.py", b"--- a/tmp/x.py\n+++ b/tmp/x.py\n"),
    ],
)
def test_paths_in_diffs_are_quoted_as_git_does(path: str, head: bytes) -> None:
    before = Source(path, "a\n")
    assert diff_bytes(before, before.with_text("b\n")) == head + b"@@ -1 +1 @@\n-a\n+b\n"


def test_a_diff_keeps_line_ends_and_says_where_the_last_is_missing() -> None:
    before = Source("a.py", "a\r\n\x0cb", bom=b"\xef\xbb\xbf")
    after = before.with_text("c\r\n\x0cb\n")
    expected = (
        b"--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n-\xef\xbb\xbfa\r\n-\x0cb\n"
        b"\\ No newline at end of file\n+\xef\xbb\xbfc\r\n+\x0cb\n"
    )
    assert diff_bytes(before, after) == expected
    assert list(diff_lines(before, after, PLAIN))[3:] == [
        r"-\ufeffa",
        r"-\x0cb",
        r"\ No newline at end of file",
        r"+\ufeffc",
        r"+\x0cb",
    ]


def test_equal_texts_have_no_diff() -> None:
    source = Source("a.py", "a\n")
    assert diff_bytes(source, source) == b""
    assert list(diff_lines(source, source, PLAIN)) == []
