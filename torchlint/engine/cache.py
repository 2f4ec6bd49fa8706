"""Results kept between runs, by the content of the file and all that a result depends on."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.util import source_hash
from pathlib import Path
from typing import Any, Final

from torchlint import __version__
from torchlint.config import OF_THE_RUN, Settings
from torchlint.edit import Edit, Span
from torchlint.engine.results import FileResult
from torchlint.finding import Finding, Fix, Note, Safety
from torchlint.registry import Registry, Selection
from torchlint.source import Source

__all__ = ["Cache", "Store", "context"]

MOST_ENTRIES: Final = 20_000
"""How many results are kept: those of the last run first."""


class Store:
    """A file of what earlier runs of this version of torchlint and of these rules found.

    A file that cannot be read as what it should be counts as empty, and one that cannot be
    written is not: a cache is never a reason to fail. It is JSON, so a cache that came with
    somebody else's repository can run no code.
    """

    def __init__(self, folder: Path, registry: Registry, kind: str = "") -> None:
        self.folder = folder
        self.file = folder / f"{_fingerprint(registry)}{kind and f'-{kind}'}.json"

    def read(self) -> dict[str, Any]:
        """Give what was kept."""
        try:
            entries = json.loads(self.file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return entries if isinstance(entries, dict) else {}

    def write(self, new: dict[str, Any], old: dict[str, Any], most: int) -> None:
        """Keep so many entries, the new ones first."""
        from tempfile import mkstemp

        rest = (item for item in old.items() if item[0] not in new)
        kept = dict([*new.items(), *rest][:most])
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            ignore = self.folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
            handle, name = mkstemp(dir=self.folder, suffix=".tmp")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(kept, file, separators=(",", ":"))
                Path(name).replace(self.file)
            except OSError:
                Path(name).unlink(missing_ok=True)


class Cache:
    """The results of earlier runs, by the content of files.

    Keys are CPython's own hashes of sources: they tell texts apart, and need guard against nobody,
    for who can plant a cache needs no clash.
    """

    def __init__(self, folder: Path, registry: Registry) -> None:
        self.store = Store(folder, registry)
        self.old = self.store.read()
        self.new: dict[str, Any] = {}
        self.known = registry.known
        self._contexts: dict[tuple[int, int], bytes] = {}

    def key(self, data: bytes, path: str, settings: Settings, rules: Selection) -> str:
        """Give the name of a result: all that it depends on, as a digest."""
        about = (id(settings), id(rules))
        if about not in self._contexts:
            self._contexts[about] = context(settings, rules)
        name = path.encode("utf-8", "surrogateescape")
        return source_hash(b"\0".join((self._contexts[about], name, data))).hex()

    def get(self, key: str, source: Source) -> FileResult | None:
        """Give a result that was kept, None if there is none that can be read."""
        entry = self.old.get(key)
        if entry is None:
            return None
        try:
            suppressed, *plain = entry
            findings = tuple(map(_finding, plain))
            sound = all(_is_sound(each, source, self.known) for each in findings)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):
            return None
        if not sound or type(suppressed) is not int:
            return None
        self.new[key] = entry
        return FileResult(source.path, source, findings, suppressed)

    def put(self, key: str, result: FileResult) -> None:
        """Keep a result; one with errors is not kept, so that it is told again."""
        if not result.errors:
            self.new[key] = [result.suppressed, *map(_plain, result.findings)]

    def save(self) -> None:
        """Write what is new, unless nothing is or it cannot be written."""
        if self.new.keys() <= self.old.keys():
            return
        self.store.write(self.new, self.old, MOST_ENTRIES)


def context(settings: Settings, rules: Selection) -> bytes:
    """Give all that a result depends on beside the file and the code of the rules."""
    apart = OF_THE_RUN | {"sources"}
    options = {name: value for name, value in vars(settings).items() if name not in apart}
    return repr((sorted(options.items()), rules.codes, rules.complete)).encode()


def _fingerprint(registry: Registry) -> str:
    """Name the code that makes results: versions, and the state of every file of ours."""
    state = [repr((__version__, sys.version_info[:3]))]
    packs = sorted({os.path.dirname(head.file) for head in registry.rules})  # noqa: PTH120
    for folder in (os.path.dirname(os.path.dirname(__file__)), *packs):  # noqa: PTH120
        for name, status in _code_below(folder):
            state.append(f"{name} {status.st_mtime_ns} {status.st_size}")
    return source_hash("\n".join(state).encode("utf-8", "surrogateescape")).hex()


def _code_below(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.join(parent, name)  # noqa: PTH118
                with contextlib.suppress(OSError):
                    yield path, os.stat(path)  # noqa: PTH116


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
        [[note.span.start, note.span.end, note.message] for note in finding.notes],
    ]


def _finding(plain: Any) -> Finding:
    code, start, end, message, fix, notes = plain
    return Finding(
        code=code,
        span=Span(start, end),
        message=message,
        fix=None if fix is None else _fix(*fix),
        notes=tuple(Note(Span(first, last), said) for first, last, said in notes),
    )


def _fix(title: str, safety: int, because: str, edits: Any) -> Fix:
    made = tuple(Edit(Span(start, end), text) for start, end, text in edits)
    return Fix(title, made, Safety(safety), because)


def _is_sound(finding: Finding, source: Source, known: Mapping[str, str]) -> bool:
    """Whether a finding can be shown: a rule's, of texts and of places that are in the file."""
    edits = finding.fix.edits if finding.fix else ()
    about = (finding.fix.title, finding.fix.because) if finding.fix else ()
    texts = (
        finding.message,
        *about,
        *(note.message for note in finding.notes),
        *(edit.text for edit in edits),
    )
    notes = (note.span for note in finding.notes)
    spans = (finding.span, *notes, *(edit.span for edit in edits))
    return (
        finding.code in known
        and all(type(text) is str for text in texts)
        and all(type(at) is int for span in spans for at in (span.start, span.end))
        and all(span.end <= len(source.text) for span in spans)
    )
