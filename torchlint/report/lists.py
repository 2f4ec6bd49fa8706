"""The short text formats: a line per finding."""

from __future__ import annotations

from collections.abc import Sequence

from torchlint.report.entry import Entry
from torchlint.report.escape import printable
from torchlint.report.header import header, labels
from torchlint.report.paint import Paint


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
        text = f"{labels(entry, paint)} {printable(entry.message)}"
        lines.append(f"  {entry.place:<{width}}  {text}{_grade(entry, paint)}\n")
        lines.append(_notes(entry, paint, " " * (width + 4)))
    return "".join(lines)


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
