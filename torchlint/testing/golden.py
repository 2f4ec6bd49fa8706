"""Golden files: a script, its findings, and the fixed script.

A folder holds `slow.py`, `fast.py` and `findings.txt` for one rule, whose code begins its name
(`tl101_...`), with unsafe fixes applied; or `before.py`, `after.py` and `findings.txt` for a whole
script, with the rules and fixes of a plain run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torchlint.config import Settings
from torchlint.engine import FileResult, FixResult, check_bytes, fix_bytes
from torchlint.finding import Finding
from torchlint.registry import Registry
from torchlint.source import Source

FINDINGS: Final = "findings.txt"


@dataclass(frozen=True)
class Golden:
    """One folder of golden files and its settings."""

    folder: Path
    before: Path
    after: Path
    settings: Settings

    def findings(self, registry: Registry) -> str:
        """Return the current findings, as lines of `row:column CODE message (exact fix)`."""
        result = self._checked(registry)
        assert result.source is not None
        assert result.is_whole, (result.errors, result.warnings)
        return "".join(_line(result.source, finding) for finding in result.findings)

    def fixed(self, registry: Registry) -> bytes:
        """Return the currently fixed file."""
        result = self._fixed(self.before.read_bytes(), registry)
        assert result.is_whole, (result.errors, result.warnings)
        return result.after.to_bytes()

    def fixed_twice(self, registry: Registry) -> bytes:
        """Return the fixed file after a second run."""
        return self._fixed(self.fixed(registry), registry).after.to_bytes()

    def write(self, registry: Registry) -> list[Path]:
        """Write the files again and return those that changed."""
        made = {
            self.folder / FINDINGS: self.findings(registry).encode(),
            self.after: self.fixed(registry),
        }
        changed = [
            path for path, data in made.items() if not path.exists() or path.read_bytes() != data
        ]
        for path in changed:
            path.write_bytes(made[path])
        return changed

    def _checked(self, registry: Registry) -> FileResult:
        rules = registry.select(self.settings)
        return check_bytes(self.before.read_bytes(), self.before.name, rules, self.settings)

    def _fixed(self, data: bytes, registry: Registry) -> FixResult:
        rules = registry.select(self.settings)
        return fix_bytes(data, self.before.name, rules, self.settings)


def goldens(root: Path) -> Iterator[Golden]:
    """Yield the golden folders of `root/rules` and `root/scripts`, in the order of their names."""
    for before in sorted(root.glob("rules/*/slow.py")):
        yield golden_of_rule(before.parent)
    for before in sorted(root.glob("scripts/*/before.py")):
        settings = Settings(root=before.parent)
        yield Golden(before.parent, before, before.with_name("after.py"), settings)


def golden_of_rule(folder: Path) -> Golden:
    """Return the golden files of one rule from their folder, whose name begins with the code."""
    code = folder.name.partition("_")[0].upper()
    settings = Settings(root=folder, select=(code,), unsafe_fixes=True)
    return Golden(folder, folder / "slow.py", folder / "fast.py", settings)


def refresh(root: Path, registry: Registry) -> list[Path]:
    """Write all golden files again and return those that changed: read the diff before a commit."""
    return [path for golden in goldens(root) for path in golden.write(registry)]


def _line(source: Source, finding: Finding) -> str:
    position = source.position(finding.span.start)
    fix = f" ({finding.fix.safety.name.lower()} fix)" if finding.fix is not None else ""
    return f"{position.row}:{position.column} {finding.code} {finding.message}{fix}\n"
