"""The formats of one line per finding: for terminals, GitHub, Azure and Pylint's readers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from torchlint.report.entry import Entry
from torchlint.report.identity import repository_path
from torchlint.report.paint import Paint
from torchlint.report.report import tag
from torchlint.report.text import github_message, github_property, printable, shown, wrapped

_INDENT: Final = 4
_COMMANDS: Final = {"error": "error", "warning": "warning", "note": "notice"}
_TYPES: Final = {"error": "error", "warning": "warning", "note": "warning"}
"""Azure knows errors and warnings only."""
_ESCAPES: Final = {"%": "%AZP25", ";": "%3B", "]": "%5D", "\r": "%0D", "\n": "%0A"}


def header(entry: Entry, paint: Paint) -> str:
    """Return `path:row:column: CODE [name] impact: message` on one line."""
    return f"{_path(entry, paint)} {labels(entry, paint)} {printable(entry.message)}"


def _path(entry: Entry, paint: Paint) -> str:
    return f"{paint.path(printable(entry.path))}:{entry.place}:"


def labels(entry: Entry, paint: Paint) -> str:
    """Return code, name and impact of a finding, with its measured cost."""
    said = tag(entry)
    return _named(entry, paint) + (f" {paint.severity(said, entry.severity)}:" if said else "")


def _named(entry: Entry, paint: Paint) -> str:
    code = paint.code(entry.finding.code, entry.card.link, entry.severity)
    return f"{code} [{entry.card.name}]"


def heading(entry: Entry, paint: Paint) -> list[str]:
    """Return the same line, with the message below it where the terminal is too narrow."""
    message, place = printable(entry.message), f"{printable(entry.path)}:{entry.place}:"
    head = f"{place} {labels(entry, Paint())}"
    if paint.width is None or len(head) + 1 + len(message) <= paint.width:
        return [header(entry, paint)]
    if len(head) <= paint.width:
        first = header(entry, paint).removesuffix(f" {message}")
        return [first, *wrapped(message, paint.width, _INDENT)]
    said = tag(entry)
    below, *rest = wrapped(f"{said}: {message}" if said else message, paint.width, _INDENT) or [""]
    painted = below.replace(said, paint.severity(said, entry.severity), 1) if said else below
    return [f"{_path(entry, paint)} {_named(entry, paint)}", painted, *rest]


def plain_header(entry: Entry) -> str:
    """Return the same line without escapes, for formats that escape it themselves."""
    place = f"{entry.path}:{entry.place}:"
    return f"{place} {labels(entry, Paint())} {entry.message}"


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


def github(entries: Sequence[Entry], paint: Paint) -> str:
    """Return a workflow command per finding of a file."""
    return "".join(_github_command(entry) + "\n" for entry in entries)


def _github_command(entry: Entry) -> str:
    start, end = entry.in_file
    properties = {
        "title": f"torchlint ({entry.finding.code})",
        "file": repository_path(entry.path),
        "line": start.row,
        "col": start.column,
        "endLine": end.row,
        "endColumn": end.column,
    }
    listed = ",".join(f"{key}={github_property(str(value))}" for key, value in properties.items())
    command = _COMMANDS[entry.severity]
    return f"::{command} {listed}::{github_message(plain_header(entry) + entry.remarks)}"


def azure(entries: Sequence[Entry], paint: Paint) -> str:
    """Return a logging command per finding of a file."""
    return "".join(_azure_command(entry) + "\n" for entry in entries)


def _azure_command(entry: Entry) -> str:
    start, _ = entry.in_file
    properties = {
        "type": _TYPES[entry.severity],
        "sourcepath": entry.path if entry.path == "-" else str(Path(entry.path).absolute()),
        "linenumber": start.row,
        "columnnumber": start.column,
        "code": entry.finding.code,
    }
    listed = "".join(f"{key}={_escaped(str(value), ';]%')};" for key, value in properties.items())
    message = _escaped(plain_header(entry) + entry.remarks, "%")
    return f"##vso[task.logissue {listed}]{message}"


def _escaped(text: str, marks: str) -> str:
    return "".join(
        _ESCAPES[each] if each in marks or each in "\r\n" else shown(each) for each in text
    )
