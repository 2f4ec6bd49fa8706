"""The `markdown` format: for the summary of a job, or a comment on a pull request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from torchlint.report.entry import Entry
from torchlint.report.identity import line_link, repository_path
from torchlint.report.paint import Paint
from torchlint.report.report import Report
from torchlint.report.summary import plural, ranked
from torchlint.report.text import printable
from torchlint.report.unified import diff_lines

_MOST: Final = 60_000
"""The most characters: GitHub and GitLab take about 65,000 in a comment."""
_IMPACTS: Final = ("error", "warning", "note")
_WORDS: Final = {"error": "high", "warning": "medium", "note": "low"}


def markdown(report: Report, paint: Paint) -> str:
    """Return counts, a table of the findings, and their fixes as folded diffs."""
    if not report.entries:
        what = "The run failed" if report.failed else "Nothing found"
        return f"### torchlint\n\n{what} in {plural(report.files, 'file')}.\n"
    head = "\n".join(_head(report))
    rows = _that_fit(map(_row, report.entries), _MOST - len(head))
    table = "\n".join(("| place | rule | finding | fix |", "|---|---|---|---|", *rows))
    text = f"{head}\n{table}\n"
    if len(rows) < len(report.entries):
        text += f"\n{len(report.entries) - len(rows)} more findings are in the log.\n"
    diffs = _that_fit(_diffs(report), _MOST - len(text))
    return "\n".join((text, *diffs))


def _head(report: Report) -> Iterator[str]:
    tally = report.tally
    counts = Counter(entry.severity for entry in report.entries)
    files = len({entry.path for entry in report.entries})
    said = ", ".join(f"{counts[each]} {_WORDS[each]}" for each in _IMPACTS if counts[each])
    yield f"### torchlint: {plural(tally.found, 'finding')} in {plural(files, 'file')} ({said})"
    yield ""
    best = ranked(tally)
    if best:
        yield f"**Most worth**: {best}."
        yield ""
    for line in report.hidden:
        yield f"{cell(line)}."
        yield ""


def _row(entry: Entry) -> str:
    row = entry.in_file[0].row
    path = cell(f"{repository_path(entry.path)}:{entry.place}")
    link = line_link(entry.path, row)
    place = path if link is None else f"[{path}]({link})"
    card = entry.card
    code = entry.finding.code if card.url is None else f"[{entry.finding.code}]({card.url})"
    fix = "" if entry.fix is None else entry.fix.safety.word
    return f"| {place} | {code} {entry.impact} | {cell(entry.message + entry.remarks)} | {fix} |"


def _diffs(report: Report) -> Iterator[str]:
    for entry in report.entries:
        if entry.fix is None:
            continue
        after = entry.source.edited(entry.fix.edits)
        diff = "".join(f"{line}\n" for line in diff_lines(entry.source, after, Paint()))
        fence = "`" * max(3, 1 + max(map(len, _ticks(diff)), default=0))
        because = f": {entry.fix.because}" if entry.fix.because else ""
        title = f"{entry.finding.code} in {repository_path(entry.path)}:{entry.place}"
        yield (
            f"<details><summary>{html(f'{title} ({entry.fix.safety.word}{because})')}</summary>"
            f"\n\n{fence}diff\n{diff}{fence}\n\n</details>\n"
        )


def _ticks(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if set(line[1:].strip()) == {"`"}]


def _that_fit(parts: Iterable[str], room: int) -> list[str]:
    """Return the first parts whose length together is at most `room`."""
    kept: list[str] = []
    for part in parts:
        room -= len(part) + 1
        if room < 0:
            break
        kept.append(part)
    return kept


def cell(text: str) -> str:
    """Return a text that is one cell of a table: code stays code, everything else is escaped."""
    parts = printable(text).replace("|", "\\|").split("`")
    if len(parts) % 2 == 0:
        return _escaped("'".join(parts))
    return "`".join(part if at % 2 else _escaped(part) for at, part in enumerate(parts))


def html(text: str) -> str:
    """Return a text for the inside of an HTML element."""
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _escaped(text: str) -> str:
    for sign in "<*_[]@":
        text = text.replace(sign, f"&#{ord(sign)};")
    return text
