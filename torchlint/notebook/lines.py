"""The lines of a cell in the JSON text, and rewriting those that changed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from torchlint.notebook.document import CodeCell, Document

_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_RAW_LINE: Final = re.compile(
    r"""
    (?: [^\\] | \\ [^nru] | \\u (?! 000[aAdD] ) )*
    (?: (?: \\r | \\u000[dD] ) (?: \\n | \\u000[aA] ) | \\[nr] | \\u000[aAdD] | \Z )
    """,
    re.VERBOSE,
)


@dataclass
class _Line:
    """One line of a cell: its text, its JSON spelling, and the JSON strings it is in."""

    text: str
    raw: str
    first: int
    last: int


def split_lines(text: str) -> list[str]:
    """Split a text into lines as CPython does, keeping line ends."""
    return _LINE.findall(text)


def rewritten(document: Document, cell: CodeCell, text: str) -> str:
    """Return the JSON of a cell's source with a new text; unchanged lines keep their spelling."""
    lines = _lines(document.text, cell)
    plain = document.text.isascii()
    new = split_lines(text)
    if not cell.is_list:
        parts = [old.raw if old else _spelt(line, plain) for line, old in _paired(lines, new)]
        return f'"{"".join(parts)}"'
    return _list(document.text, cell, lines, new, plain)


def _paired(lines: list[_Line], new: list[str]) -> Iterator[tuple[str, _Line | None]]:
    """Yield each new line with the old line it equals, or None."""
    matcher = SequenceMatcher(None, [line.text for line in lines], new, autojunk=False)
    for tag, low, _, start, stop in matcher.get_opcodes():
        for index in range(start, stop):
            yield new[index], lines[low + index - start] if tag == "equal" else None


def _spelt(line: str, plain: bool) -> str:
    """Return a line as JSON, in ASCII if the whole file is `plain`."""
    spelt = json.dumps(line, ensure_ascii=plain)[1:-1]
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half.group()):04x}", spelt)


def _lines(text: str, cell: CodeCell) -> list[_Line]:
    """Return the lines of a cell; a line may be spread over several strings."""
    lines: list[_Line] = []
    for index, span in enumerate(cell.strings):
        raw = text[span.start + 1 : span.end - 1]
        pieces = [piece for piece in _RAW_LINE.findall(raw) if piece] or [""]
        for piece in pieces:
            line: str = json.loads(f'"{piece}"')
            if lines and (not line or not lines[-1].text.endswith(("\n", "\r"))):
                lines[-1].text += line
                lines[-1].raw += piece
                lines[-1].last = index
            else:
                lines.append(_Line(line, piece, index, index))
    return lines


def _list(text: str, cell: CodeCell, lines: list[_Line], new: list[str], plain: bool) -> str:
    """Return a JSON list with a string for each line; strings of unchanged lines are kept."""
    pairs = list(_paired(lines, new))
    strings: list[tuple[str, int | None, int | None]] = []
    at = 0
    while at < len(pairs):
        line, old = pairs[at]
        block = _block(lines, old) if old is not None else []
        if block and [pair[1] for pair in pairs[at : at + len(block)]] == block:
            first, last = block[0].first, block[-1].last
            kept = text[cell.strings[first].start : cell.strings[last].end]
            strings.append((kept, first, last))
            at += len(block)
        else:
            strings.append((f'"{old.raw if old else _spelt(line, plain)}"', None, None))
            at += 1
    return _between_brackets(text, cell, strings)


def _block(lines: list[_Line], old: _Line) -> list[_Line]:
    """Return the lines from `old` on that fill whole strings; empty if `old` starts inside one."""
    at = next(index for index, line in enumerate(lines) if line is old)
    if at and lines[at - 1].last == old.first:
        return []
    end = at + 1
    while end < len(lines) and lines[end].first == lines[end - 1].last:
        end += 1
    return lines[at:end]


def _between_brackets(
    text: str, cell: CodeCell, strings: list[tuple[str, int | None, int | None]]
) -> str:
    if not strings:
        return "[]"
    head = text[cell.value.start : cell.strings[0].start]
    tail = text[cell.strings[-1].end : cell.value.end]
    gaps = [
        text[before.end : after.start]
        for before, after in zip(cell.strings, cell.strings[1:], strict=False)
    ]
    usual = gaps[0] if gaps else _usual_gap(text, cell, head)
    parts = [head]
    for index, (string, first, _) in enumerate(strings):
        if index:
            before = strings[index - 1][2]
            follows = before is not None and first == before + 1
            parts.append(gaps[before] if before is not None and follows else usual)
        parts.append(string)
    return "".join([*parts, tail])


def _usual_gap(text: str, cell: CodeCell, head: str) -> str:
    """Return the separator for two strings in a list of one, from the layout around it."""
    white = head[1:]
    spaced = text[cell.value.start - 1] == " "
    return "," + (white or (" " if spaced else ""))
