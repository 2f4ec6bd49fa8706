from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from report_samples import report_of

from torchlint.config import FORMATS
from torchlint.edit import Edit, Span, apply_edits
from torchlint.finding import Finding, Fix, Note
from torchlint.report.formats import render
from torchlint.report.paint import Paint
from torchlint.report.unified import diff_bytes
from torchlint.source import Source

TEXTS = st.text(
    st.sampled_from("ab \t\n\r\f\x1b\x7f\u0301\u202e\u2028損é\U0001f525\ud800(),#'"), max_size=60
)


@st.composite
def spans(draw: st.DrawFn, text: str) -> Span:
    """Draw a range of a text."""
    places = st.integers(0, len(text))
    start, end = sorted((draw(places), draw(places)))
    return Span(start, end)


@given(st.data(), TEXTS, TEXTS, st.one_of(st.none(), st.integers(10, 60)))
def test_any_finding_in_any_text_can_be_printed(
    data: st.DataObject, text: str, new: str, width: int | None
) -> None:
    fix = Fix.exact("Mend it", (Edit(data.draw(spans(text)), new),))
    note = Note(data.draw(spans(text)), "a note")
    finding = Finding("XY001", data.draw(spans(text)), "a finding", fix, (note,))
    for form in FORMATS:
        printed = render(report_of(text, [finding]), Paint(width=width), form)
        assert re.fullmatch(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e\ud800]*", printed)


@given(st.data(), TEXTS.filter(lambda text: "\ud800" not in text), st.sampled_from(["", "x", "\n"]))
def test_the_added_lines_of_a_diff_are_the_new_text(
    data: st.DataObject, text: str, new: str
) -> None:
    before = Source("a.py", text)
    after = before.with_text(apply_edits(text, [Edit(data.draw(spans(text)), new)]))
    lines = diff_bytes(before, after).split(b"\n")[3:-1]
    added = [line[1:] for line in lines if line.startswith(b"+")]
    for line in added:
        assert line in after.text.encode().split(b"\n")
    assert bool(lines) == (before.text != after.text)
