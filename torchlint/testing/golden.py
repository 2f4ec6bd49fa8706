"""Golden files: a script, what is found in it, and what the fixes make of it.

A folder holds `slow.py`, `fast.py` and `findings.txt` for one rule, which its name begins with
(`tl101_...`), with unsafe fixes made; or `before.py`, `after.py` and `findings.txt` for a whole
script, with the rules and the fixes of a plain run.
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

__all__ = ["Golden", "golden_of_rule", "goldens", "refresh"]

FINDINGS: Final = "findings.txt"


@dataclass(frozen=True)
class Golden:
    """One folder of golden files and the settings that it is judged under."""

    folder: Path
    before: Path
    after: Path
    settings: Settings

    def findings(self, registry: Registry) -> str:
        """Give what is found now, one `row:column CODE message (exact fix)` a line."""
        result = self._checked(registry)
        assert result.source is not None
        assert not result.errors, result.errors
        return "".join(_line(result.source, finding) for finding in result.findings)

    def fixed(self, registry: Registry) -> bytes:
        """Give the file as it is fixed now."""
        result = self._fixed(self.before.read_bytes(), registry)
        assert not result.errors, result.errors
        return result.after.to_bytes()

    def refixed(self, registry: Registry) -> bytes:
        """Give the fixed file as a second run leaves it."""
        return self._fixed(self.fixed(registry), registry).after.to_bytes()

    def write(self, registry: Registry) -> list[Path]:
        """Write the files anew and give those that changed."""
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
    """Give the golden files of one rule by their folder, whose name begins with the code."""
    code = folder.name.partition("_")[0].upper()
    settings = Settings(root=folder, select=(code,), unsafe_fixes=True)
    return Golden(folder, folder / "slow.py", folder / "fast.py", settings)


def refresh(root: Path, registry: Registry) -> list[Path]:
    """Write the golden files anew and give those that changed: read the diff before a commit."""
    return [path for golden in goldens(root) for path in golden.write(registry)]


def _line(source: Source, finding: Finding) -> str:
    position = source.position(finding.span.start)
    fix = f" ({finding.fix.safety.name.lower()} fix)" if finding.fix is not None else ""
    return f"{position.row}:{position.column} {finding.code} {finding.message}{fix}\n"
