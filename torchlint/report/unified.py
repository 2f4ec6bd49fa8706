"""The unified diff of a file, as bytes that patch tools accept."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from typing import Final

from torchlint.report.paint import Paint
from torchlint.report.text import Cells, printable
from torchlint.source import Source

_CONTEXT: Final = 3
_NO_NEWLINE: Final = "\\ No newline at end of file"
_QUOTED: Final = {"\a": "a", "\b": "b", "\t": "t", "\n": "n", "\v": "v", "\f": "f", "\r": "r"}


def diff_bytes(before: Source, after: Source) -> bytes:
    """Return a diff that `patch` and `git apply` accept, empty where nothing differs."""
    lines: list[bytes] = []
    for cell, old, new in _parts(before, after):
        body = [line.encode(before.encoding, "backslashreplace") for line in _body(old, new)]
        if body:
            lines += [*(os.fsencode(line) for line in _head(old, cell)), *body]
    return b"".join(line + b"\n" for line in lines)


def diff_lines(before: Source, after: Source, paint: Paint) -> Iterator[str]:
    """Return the same diff as lines for display, with escapes written out."""
    for cell, old, new in _parts(before, after):
        body = list(_body(old, new))
        if body:
            yield from (paint.strong(printable(line)) for line in _head(old, cell))
        yield from _shown(body, paint)


def _shown(body: list[str], paint: Paint) -> Iterator[str]:
    for line in body:
        sign, text = line[0], line[1:].removesuffix("\r")
        if sign in "@\\":
            yield paint.note(line)
        else:
            shown = sign + "".join(Cells(text).shown)
            yield {"+": paint.added, "-": paint.removed}.get(sign, str)(shown)


def _parts(before: Source, after: Source) -> Iterator[tuple[int | None, Source, Source]]:
    """Yield the texts to compare: notebook cells, which patch tools do not know, or the file."""
    for (cell, old), (_, new) in zip(before.parts(), after.parts(), strict=True):
        yield cell, old, new


def _head(source: Source, cell: int | None) -> list[str]:
    name = source.path.replace(os.sep, "/").lstrip("/")
    name = name if cell is None else f"{name}:cell {cell}"
    return [f"--- {_quoted(f'a/{name}')}", f"+++ {_quoted(f'b/{name}')}"]


def _body(before: Source, after: Source) -> Iterator[str]:
    """Return the hunks line by line, with their prefixes and without line ends."""
    mark = before.bom.decode("utf-8")
    old, new = _split(mark + before.text), _split(mark + after.text)
    for index, line in enumerate(difflib.unified_diff(old, new, n=_CONTEXT)):
        if index >= 2:
            yield line.removesuffix("\n")
            if not line.endswith("\n"):
                yield _NO_NEWLINE


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    ended = [line + "\n" for line in lines[:-1]]
    return ended + ([lines[-1]] if lines[-1] else [])


def _quoted(path: str) -> str:
    """Quote a path like git where it has characters that a diff cannot hold."""
    if not any(character in '"\\' or not character.isprintable() for character in path):
        return path
    escaped = []
    for character in path:
        if character in '"\\':
            escaped.append("\\" + character)
        elif character in _QUOTED:
            escaped.append("\\" + _QUOTED[character])
        elif character.isprintable():
            escaped.append(character)
        else:
            escaped += (f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape"))
    return '"' + "".join(escaped) + '"'
