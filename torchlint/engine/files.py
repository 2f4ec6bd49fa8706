"""Which files a run looks at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torchlint.engine.project import Project

__all__ = ["Discovery", "discover"]


@dataclass(frozen=True)
class Discovery:
    """The files found, in the order of their paths, and a line for each that is out of reach."""

    files: tuple[Path, ...]
    errors: tuple[str, ...] = ()


def discover(paths: Iterable[Path], project: Project) -> Discovery:
    """Find the Python files under `paths`; a file that is named is taken whatever its name."""
    raise NotImplementedError
