"""Adding suppression comments to a text."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from torchlint.edit import Edit, Span
from torchlint.finding import Finding
from torchlint.source import Source
from torchlint.suppress import Suppression, find_suppressions


@dataclass(frozen=True)
class Annotated:
    """A text with suppression comments, and the findings that no comment can silence."""

    source: Source
    silenced: tuple[Finding, ...] = ()
    refused: tuple[Finding, ...] = ()


@dataclass
class _Statement:
    """The rows of one statement, and the rows that end inside a string."""

    rows: range
    inside: set[int] = field(default_factory=set)


def annotate(source: Source, findings: Iterable[Finding], known: Mapping[str, str]) -> Annotated:
    """Add `# torchlint: ignore[CODE]` to the line of every finding; `known` maps codes to names."""
    findings = tuple(findings)
    statements = list(_statements(source))
    marks = find_suppressions(source, known).all if statements else ()
    wanted: dict[int, dict[str, None]] = {}
    silenced: list[Finding] = []
    refused: list[Finding] = []
    for finding in findings:
        row = source.position(finding.span.start).row
        place = _legal_row(source, row, statements)
        if place is None or finding.code in _NEVER:
            refused.append(finding)
            continue
        silenced.append(finding)
        wanted.setdefault(place, {})[finding.code] = None
    edits = [
        edit for row, codes in wanted.items() for edit in _edits(source, row, sorted(codes), marks)
    ]
    if not source.takes(edits):
        return Annotated(source, (), findings)
    after = source.edited(edits)
    if edits and not _same_code(source.text, after.text):
        return Annotated(source, (), findings)
    return Annotated(after, tuple(silenced), tuple(refused))


_NEVER = frozenset({"TL001"})


def _edits(
    source: Source, row: int, codes: list[str], marks: Iterable[Suppression]
) -> Iterator[Edit]:
    """Return the edit that adds `codes` on a row, to an existing comment or in a new one."""
    near = [mark for mark in marks if mark.rows is not None and row in mark.rows]
    codes = [code for code in codes if not any(mark.silences(code) for mark in near)]
    if not codes:
        return
    for mark in near:
        if mark.kind == "ignore" and mark.words:
            end = mark.words[-1].span.end
            yield Edit(Span(end, end), "".join(f", {code}" for code in codes))
            return
    end = source.line_starts[row - 1] + len(source.line(row).rstrip())
    yield Edit(Span(end, end), f"  # torchlint: ignore[{', '.join(codes)}]")


def _legal_row(source: Source, row: int, statements: list[_Statement]) -> int | None:
    """Return a row of the statement that can end in a comment: the given one, else the last."""
    for statement in statements:
        if row in statement.rows:
            broken = row in statement.inside or source.line(row).endswith("\\")
            return statement.rows[-1] if broken else row
    return None


def _statements(source: Source) -> Iterator[_Statement]:
    """Return the statements of a text; none if it does not parse."""
    first: int | None = None
    inside: set[int] = set()
    opened: list[int] = []
    try:
        lines = io.StringIO(source.text, newline=None).readline
        for token in tokenize.generate_tokens(lines):
            name = tokenize.tok_name[token.type]
            if name in ("COMMENT", "NL", "INDENT", "DEDENT", "ENDMARKER"):
                continue
            first = token.start[0] if first is None else first
            if name == "STRING":
                inside.update(range(token.start[0], token.end[0]))
            elif name.endswith("STRING_START"):
                opened.append(token.start[0])
            elif name.endswith("STRING_END"):
                inside.update(range(opened.pop(), token.end[0]))
            elif name == "NEWLINE":
                yield _Statement(range(first, token.start[0] + 1), inside)
                first, inside = None, set()
    except (tokenize.TokenError, SyntaxError):
        return


def _same_code(before: str, after: str) -> bool:
    try:
        return ast.dump(ast.parse(before)) == ast.dump(ast.parse(after))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
