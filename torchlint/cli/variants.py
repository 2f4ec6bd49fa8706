"""The variants of a script that `verify` compares: each rule's fixes alone, and all together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from torchlint.engine import FixResult, Project, fix_source
from torchlint.finding import Finding, Safety
from torchlint.harness.plan import Variant
from torchlint.source import Source, SourceError

__all__ = ["make_variants"]


def make_variants(
    files: Iterable[Path], project: Project, report: Callable[[str], None]
) -> tuple[Variant, ...]:
    """Fix the files in every way that is to be measured; `report` is told what went wrong."""
    sources = [source for file in files if (source := _read(file)) is not None]
    together = [_fixed(source, project, None) for source in sources]
    for result in together:
        for error in result.errors:
            report(error)
    codes = sorted({finding.code for result in together for finding in result.applied})
    alone = [
        _variant("rule", (code,), [_fixed(source, project, code) for source in sources])
        for code in codes
    ]
    whole = [_variant("all", tuple(codes), together)] if codes else []
    return tuple(variant for variant in (*alone, *whole) if variant.texts)


def _read(file: Path) -> Source | None:
    try:
        return Source.from_bytes(file.read_bytes(), str(file))
    except (OSError, SourceError):
        return None


def _fixed(source: Source, project: Project, code: str | None) -> FixResult:
    """Fix a file by one rule alone, or by all for None."""
    path = Path(source.path)

    def accept(source: Source, finding: Finding) -> bool:
        return code is None or finding.code == code

    return fix_source(source, project.selection(path), project.settings(path), accept)


def _variant(
    kind: Literal["rule", "all"], codes: tuple[str, ...], results: list[FixResult]
) -> Variant:
    applied = [
        finding.fix.safety for result in results for finding in result.applied if finding.fix
    ]
    texts = {result.path: result.after.text for result in results if result.changed}
    return Variant(kind, codes, min(applied, default=Safety.EXACT), texts)
