"""Fixing many files in rounds: a fix in one file can change what another one is judged with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from torchlint.engine.jobs import read_bytes
from torchlint.engine.programs import Programs
from torchlint.engine.project import Project
from torchlint.engine.results import FixResult
from torchlint.notebook import read_source
from torchlint.source import Source, SourceError

MAX_ROUNDS: Final = 10

FixAgain = Callable[[Sequence[Path], Mapping[str, Source]], Iterator[FixResult]]
"""A function that fixes files, some of which have another text than on the disk."""


def in_rounds(
    first: Iterator[FixResult],
    files: Sequence[Path],
    project: Project,
    programs: Programs,
    again: FixAgain,
) -> Iterator[FixResult]:
    """Yield the results after the last round; every file of a round sees the texts before it."""
    results = list(first)
    if any(result.changed for result in results):
        _Rounds(files, project, programs, again).complete(results)
    yield from results


@dataclass
class _Rounds:
    """The rounds after the first one."""

    files: Sequence[Path]
    project: Project
    programs: Programs
    again: FixAgain
    texts: dict[str, Source] = field(default_factory=dict)
    """The texts that are not those on the disk, by path."""

    def complete(self, results: list[FixResult]) -> None:
        """Replace the results of files until the views of all files stay as they are."""
        before = self._digests()
        for _ in range(MAX_ROUNDS):
            if not self._took(results):
                return
            now = self._digests()
            due = [at for at in range(len(self.files)) if now[at] != before[at]]
            before = now
            later = self.again([self.files[at] for at in due], self.texts)
            for at, result in zip(due, later, strict=True):
                results[at] = _joined(results[at], result)

    def _took(self, results: list[FixResult]) -> bool:
        """Take over the texts of a round; return whether any is new."""
        is_new = False
        for result in results:
            known = self.texts.get(result.path, result.before)
            if result.changed and result.after.text != known.text:
                self.texts[result.path] = result.after
                self.programs.change(result.path, result.after)
                is_new = True
        return is_new

    def _digests(self) -> list[str]:
        """Return what each file is judged with, empty where it is judged alone."""
        return [self._digest(path) for path in self.files]

    def _digest(self, path: Path) -> str:
        settings = self.project.settings(path)
        source = self._source(str(path)) if settings.program else None
        return "" if source is None else self.programs.link(source, settings).digest

    def _source(self, name: str) -> Source | None:
        if name in self.texts:
            return self.texts[name]
        try:
            return read_source(read_bytes(name), name)
        except (OSError, SourceError):
            return None


def _joined(first: FixResult, later: FixResult) -> FixResult:
    """Return the result of two rounds over one file."""
    if not first.changed:
        return later
    return later._replace(
        before=first.before,
        applied=(*first.applied, *later.applied),
        errors=tuple(dict.fromkeys((*first.errors, *later.errors))),
        warnings=tuple(dict.fromkeys((*first.warnings, *later.warnings))),
    )
