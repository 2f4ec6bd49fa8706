"""The variants that `verify` compares: the fixes of each rule alone, and of all together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Literal

from torchlint.engine import FixResult, Project, fix_source, write_atomic
from torchlint.engine.programs import Programs
from torchlint.engine.usedelsewhere import Projects
from torchlint.finding import Finding, Safety
from torchlint.harness.plan import Variant
from torchlint.source import Source, SourceError


class Fixes:
    """The fixes for the files of a script."""

    def __init__(
        self, files: Iterable[Path], project: Project, report: Callable[[str], None]
    ) -> None:
        self._sources = [source for file in files if (source := _read(file)) is not None]
        self._project = project
        self._together = self._fixed(None)
        for result in self._together:
            for said in (*result.errors, *result.warnings):
                report(said)

    @property
    def expected(self) -> int:
        """The number of variants, known before they are made."""
        codes = {it.code for result in self._together for it in result.applied}
        return len(codes) + (len(codes) > 1)

    def variants(self) -> tuple[Variant, ...]:
        """Return the variants: the fixes of each rule alone, and all together."""
        found = {it.code for result in self._fixed(()) for it in result.left if it.fix is not None}
        applied = {it.code for result in self._together for it in result.applied}
        alone = [_variant("rule", (code,), self._fixed({code})) for code in sorted(found | applied)]
        whole = [_variant("all", tuple(sorted(applied)), self._together)] if applied else []
        return tuple(variant for variant in (*alone, *whole) if variant.texts)

    def at(self, line: int) -> tuple[str, ...]:
        """Return the codes of the rules with an exact or close fix for a line of the file."""
        return tuple(
            dict.fromkeys(
                finding.code
                for result in self._fixed(())
                for finding in result.left
                if finding.fix is not None and finding.fix.safety is not Safety.UNSAFE
                if result.before.position(finding.span.start).row
                <= line
                <= result.before.position(finding.span.end).row
            )
        )

    def kept(self, codes: Collection[str]) -> Variant:
        """Return the variant with the fixes of these rules."""
        return _variant("kept", tuple(sorted(codes)), self._fixed(codes))

    def write(self, codes: Collection[str]) -> tuple[str, ...]:
        """Write the fixes of these rules and return the files written.

        Raises `WriteError` for a file that cannot be written, or that was changed meanwhile.
        """
        results = [result for result in self._fixed(codes) if result.changed]
        for result in results:
            write_atomic(Path(result.path), result.after, result.before.to_bytes())
        return tuple(result.path for result in results)

    def _fixed(self, codes: Collection[str] | None) -> list[FixResult]:
        """Fix the files with some rules; None means all."""

        def accept(source: Source, finding: Finding) -> bool:
            return codes is None or finding.code in codes

        settings_of = self._project.settings_at
        used_elsewhere = Projects(settings_of).used_elsewhere
        link = Programs(settings_of=settings_of).link
        return [
            fix_source(
                source,
                self._project.selection(Path(source.path)),
                self._project.settings(Path(source.path)),
                accept,
                used_elsewhere,
                link,
            )
            for source in self._sources
        ]


def _read(file: Path) -> Source | None:
    try:
        return Source.from_bytes(file.read_bytes(), str(file))
    except (OSError, SourceError):
        return None


def _variant(
    kind: Literal["rule", "all", "kept"], codes: tuple[str, ...], results: list[FixResult]
) -> Variant:
    fixes = [found.fix for result in results for found in result.applied if found.fix]
    return Variant(
        kind,
        codes,
        min((fix.safety for fix in fixes), default=Safety.EXACT),
        {result.path: result.after.text for result in results if result.changed},
        tuple(dict.fromkeys(fix.because for fix in fixes if fix.because)),
    )
