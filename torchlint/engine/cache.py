"""The cache of results, keyed by the content of a file and everything else they depend on."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import source_hash
from pathlib import Path
from typing import Any, Final

from torchlint.edit import Edit, Span
from torchlint.engine.programs import Linked
from torchlint.engine.results import FileResult
from torchlint.engine.store import Store
from torchlint.engine.usedelsewhere import UsedElsewhere
from torchlint.finding import Finding, Fix, Note, Safety
from torchlint.registry import Registry
from torchlint.source import Source

_Uses = tuple[tuple[str, "bool | None"], ...]

_IMPACTS: Final = ("high", "medium", "low", None)
MOST_ENTRIES: Final = 20_000
"""How many results are kept; those of the last run come first."""


class Cache:
    """The results of earlier runs, by the keys of files."""

    def __init__(self, folder: Path, registry: Registry) -> None:
        self.store = Store(folder, registry)
        self.old = self.store.read()
        self.new: dict[str, Any] = {}
        self.known = registry.known

    def get(
        self, key: str, source: Source, used_elsewhere: UsedElsewhere, linked: Linked
    ) -> FileResult | None:
        """Return the cached result for a key, None if there is no valid one.

        It is valid only if `used_elsewhere` gives the same answers as it did then, and if the same
        definitions are `linked` to the file.
        """
        entry = self.old.get(key)
        if entry is None:
            return None
        try:
            (suppressed, names, digest), *plain = entry
            uses = tuple((str(name), answer) for name, answer in names)
            findings = tuple(map(_finding, plain))
            sound = all(_is_sound(each, source, self.known) for each in findings)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):
            return None
        if (
            not sound
            or type(suppressed) is not int
            or type(digest) is not str
            or (digest and digest != linked.digest)
            or uses != _uses_now(source, uses, used_elsewhere)
        ):
            return None
        self.new[key] = entry
        return FileResult(
            source.path, source, findings, suppressed, import_uses=uses, linked=digest
        )

    def put(self, key: str, result: FileResult) -> None:
        """Store a result, unless it has errors or warnings, which the next run must repeat."""
        if result.is_whole:
            uses = [list(each) for each in result.import_uses]
            about = [result.suppressed, uses, result.linked]
            self.new[key] = [about, *map(_plain, result.findings)]

    def save(self) -> None:
        """Write the cache if there is anything new; ignore failures."""
        if self.new.keys() <= self.old.keys():
            return
        self.store.write(self.new, self.old, MOST_ENTRIES)


def key_of(data: bytes, path: str, context: bytes) -> str:
    """Return the key of a result: a digest of the file and of everything else it depends on.

    CPython's hash of sources is enough: it need not resist attacks, because an attacker who can
    write the cache does not need a collision.
    """
    name = path.encode("utf-8", "surrogateescape")
    return source_hash(b"\0".join((context, name, data))).hex()


def _uses_now(source: Source, uses: _Uses, used_elsewhere: UsedElsewhere) -> _Uses:
    """Return the current answers for the names that a cached result asked about."""
    if not uses:
        return uses
    answer = used_elsewhere(source, frozenset(name for name, _ in uses))
    return tuple((name, None if answer is None else name in answer) for name, _ in uses)


def _plain(finding: Finding) -> list[Any]:
    fix = finding.fix
    return [
        finding.code,
        finding.span.start,
        finding.span.end,
        finding.message,
        None
        if fix is None
        else [
            fix.title,
            int(fix.safety),
            fix.because,
            [[edit.span.start, edit.span.end, edit.text] for edit in fix.edits],
        ],
        [
            [note.span.start, note.span.end, note.message, note.path, note.row]
            for note in finding.notes
        ],
        finding.impact,
    ]


def _finding(plain: Any) -> Finding:
    code, start, end, message, fix, notes, impact = plain
    return Finding(
        code=code,
        span=Span(start, end),
        message=message,
        fix=None if fix is None else _fix(*fix),
        notes=tuple(
            Note(Span(first, last), said, path, row) for first, last, said, path, row in notes
        ),
        impact=impact,
    )


def _fix(title: str, safety: int, because: str, edits: Any) -> Fix:
    made = tuple(Edit(Span(start, end), text) for start, end, text in edits)
    return Fix(title, made, Safety(safety), because)


def _is_sound(finding: Finding, source: Source, known: Mapping[str, str]) -> bool:
    """Return whether a cached finding has a known code, valid types, and spans within the file."""
    edits = finding.fix.edits if finding.fix else ()
    about = (finding.fix.title, finding.fix.because) if finding.fix else ()
    texts = (
        finding.message,
        *about,
        *(text for note in finding.notes for text in (note.message, note.path)),
        *(edit.text for edit in edits),
    )
    notes = (note.span for note in finding.notes)
    spans = (finding.span, *notes, *(edit.span for edit in edits))
    return (
        finding.code in known
        and finding.impact in _IMPACTS
        and all(type(text) is str for text in texts)
        and all(type(at) is int for span in spans for at in (span.start, span.end))
        and all(span.end <= len(source.text) for span in spans)
        and all(type(note.row) is int for note in finding.notes)
    )
