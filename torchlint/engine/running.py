"""Checking and fixing many files, over processes where there is enough to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from torchlint.engine.project import Project
from torchlint.engine.results import FileResult, FixResult

__all__ = ["check_paths", "fix_paths"]


def check_paths(
    files: Sequence[Path],
    project: Project,
    *,
    jobs: int | None = None,
    cache_dir: Path | None = None,
) -> Iterator[FileResult]:
    """Check files and give one result for each, in the order of `files`.

    `jobs` is the number of processes, by default one for each processor; the workers start before
    this function returns, so start threads (a progress bar) afterwards. `cache_dir` is where
    results are kept; None keeps none.
    """
    raise NotImplementedError


def fix_paths(
    files: Sequence[Path],
    project: Project,
    *,
    jobs: int | None = None,
    cache_dir: Path | None = None,
) -> Iterator[FixResult]:
    """Fix files in memory and give one result for each, in the order of `files`.

    Nothing is written: `write_atomic(path, result.after, result.before.to_bytes())` does that.
    """
    raise NotImplementedError
