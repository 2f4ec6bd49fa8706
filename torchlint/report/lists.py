"""The short text formats: a line per finding."""

from __future__ import annotations

from collections.abc import Sequence

from torchlint.report.entry import Entry
from torchlint.report.escape import printable
from torchlint.report.header import header, labels
from torchlint.report.paint import Paint
from torchlint.report.wrapping import wrapped


def concise(entries: Sequence[Entry], paint: Paint) -> str:
    """Return a line per finding of a file."""
    return "".join(
        f"{header(entry, paint)}{_grade(entry, paint)}\n{_notes(entry, paint)}" for entry in entries
    )


def grouped(entries: Sequence[Entry], paint: Paint) -> str:
    """Return the findings of a file under its path."""
    width = max(len(entry.place) for entry in entries)
    lines = [f"{paint.path(printable(entries[0].path))}:\n"]
    for entry in entries:
        first, *rest = _in_columns(entry, paint, width + 4)
        lines.append(f"  {entry.place:<{width}}  {first}\n")
        lines += [f"{line}\n" for line in rest]
        lines.append(_notes(entry, paint, " " * (width + 4)))
    return "".join(lines)


def pylint(entries: Sequence[Entry], paint: Paint) -> str:
    """Return a line per finding of a file, in the form of Pylint's `parseable` report."""
    return "".join(
        f"{printable(entry.path)}:{entry.in_file[0].row}: [{entry.finding.code}] "
        f"{printable(entry.message_in_file + entry.remarks)}\n"
        for entry in entries
    )


def _in_columns(entry: Entry, paint: Paint, indent: int) -> list[str]:
    """Return a finding on one line, with the message below it where the terminal is too narrow."""
    message, grade = printable(entry.message), _grade(entry, paint)
    plain = f"{labels(entry, Paint())} {message}{_grade(entry, Paint())}"
    if paint.width is None or indent + len(plain) <= paint.width:
        return [f"{labels(entry, paint)} {message}{grade}"]
    below = wrapped(f"{message}{_grade(entry, Paint())}", paint.width, indent)
    *lines, last = below or [""]
    return [labels(entry, paint), *lines, last.replace(_grade(entry, Paint()), grade)]


def _notes(entry: Entry, paint: Paint, indent: str = "  ") -> str:
    """Return a line per note about another file."""
    return "".join(
        f"{indent}{paint.note('note:')} {printable(f'{note.place}: {note.message}')}\n"
        for note in entry.notes_elsewhere
    )


def _grade(entry: Entry, paint: Paint) -> str:
    if entry.fix is None:
        return ""
    word = entry.fix.safety.word
    return f" {paint.safety(f'({word} fix)', word)}"
