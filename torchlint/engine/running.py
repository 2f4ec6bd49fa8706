"""Checking and fixing many files, over processes where there is enough to do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from torchlint.config import Settings
from torchlint.engine.files import WORTH_REMEMBERING
from torchlint.engine.jobs import Checks, Done, Fixes, Job, Kind, Read, Work, read_bytes
from torchlint.engine.relevance import matters, relevant
from torchlint.engine.results import FileResult, FixResult
from torchlint.notebook import is_notebook, read_source
from torchlint.registry import Selection
from torchlint.source import SourceError

if TYPE_CHECKING:
    from torchlint.engine.answers import Accept
    from torchlint.engine.cache import Cache
    from torchlint.engine.clean import CleanFiles
    from torchlint.engine.project import Project
    from torchlint.engine.standby import Standby

__all__ = ["check_paths", "fix_paths"]

R = TypeVar("R", FileResult, FixResult)

WORTH_SHARING: Final = 150
"""How many files take longer to read than other processes take to get ready.

For so many, which rules are asked of each is found out where they are asked.
"""


def check_paths(
    files: Sequence[Path],
    project: Project,
    *,
    jobs: int | None = None,
    file_timeout: float = 0,
    cache_dir: Path | None = None,
    standby: Standby | None = None,
) -> Iterator[FileResult]:
    """Check files and give one result for each, in the order of `files`.

    `jobs` is the number of processes, by default one for each processor; the workers start before
    this function returns, so start threads (a progress bar) afterwards. A file that takes more
    than `file_timeout` seconds of computing is given up with an error; 0 is no limit. `cache_dir`
    is where results are kept; None keeps none. `standby` is a process that is ready to do the work.
    """
    return _Batch(Checks(), files, project, file_timeout, cache_dir).start(jobs, standby)


def fix_paths(
    files: Sequence[Path],
    project: Project,
    *,
    jobs: int | None = None,
    file_timeout: float = 0,
    cache_dir: Path | None = None,
    accept: Accept | None = None,
    standby: Standby | None = None,
) -> Iterator[FixResult]:
    """Fix files in memory and give one result for each, in the order of `files`.

    Nothing is written: `write_atomic(path, result.after, result.before.to_bytes())` does that.
    With `jobs=1` each file is fixed when its result is asked for; `accept` is that of `fix_source`,
    and can be asked in this process only, not on `standby`.
    """
    return _Batch(Fixes(accept), files, project, file_timeout, cache_dir).start(jobs, standby)


class _Batch(Generic[R]):
    """The files of one run: what is known at once, and what has to be parsed."""

    def __init__(
        self,
        kind: Kind[R],
        files: Sequence[Path],
        project: Project,
        limit: float,
        cache_dir: Path | None,
    ) -> None:
        self.kind: Kind[R] = kind
        self.work: Work[R] = Work(kind, limit)
        self.project = project
        self.cache_dir = cache_dir
        self.told: set[str] = set()
        self.many = len(files) >= WORTH_REMEMBERING
        self.very_many = len(files) >= WORTH_SHARING
        self.folders: dict[str, tuple[Settings, Selection]] = {}
        self.contexts: dict[tuple[int, int], bytes] = {}
        self.files = files
        self.plan: list[R | int] = []

    def start(self, processes: int | None, standby: Standby | None = None) -> Iterator[R]:
        """Start the work and give the results in order."""
        if standby is not None and processes != 1 and self.many:
            standby.expect(self.project.selection(self.files[0]))
        self.plan += map(self._planned, self.files)
        if standby is not None and processes != 1 and self.work.jobs:
            return self._in_order(standby.results(self.work, processes))
        if standby is not None:
            standby.dismiss()
        return self._in_order(self.work.results(processes))

    def _planned(self, path: Path) -> R | int:
        """Prepare a file: a notebook takes its time already when it is read."""
        if not is_notebook(str(path)):
            return self._prepared(path)
        from torchlint.engine.timelimit import within

        def given_up(said: str) -> R | int:
            return self.kind.known(FileResult(str(path), None, errors=(said,)))

        return within(self.work.limit, str(path), lambda: self._prepared(path), given_up)

    def _prepared(self, path: Path) -> R | int:
        """Give the result of a file, or the number of the job that will have it."""
        name = str(path)
        settings, rules = self._about(path)
        try:
            if self.clean is not None:
                suppressed = self.clean.suppressed(name, os.stat(name), settings, rules)  # noqa: PTH116
                if suppressed is not None:
                    return self.kind.known(FileResult(name, None, suppressed=suppressed))
            data, state = read_bytes(name)
        except OSError as error:
            said = f"{name} cannot be read: {error.strerror}"
            return self.kind.known(FileResult(name, None, errors=(said,)))
        try:
            source = read_source(data, name)
        except SourceError:
            from torchlint.engine.checking import check_bytes

            return self.kind.known(check_bytes(data, name, rules, settings))
        asked = None if self.very_many else tuple(relevant(source.text, rules))
        if not (matters(source.text, rules) if asked is None else asked):
            result = FileResult(name, None if self.many else source)
            self._remember(result, state)
            return self.kind.known(result)
        key, context = "", self._context(settings, rules)
        if self.cache is not None and context is not None:
            from torchlint.engine.cache import key_of

            key = key_of(data, name, context)
            kept = self.cache.get(key, source)
            if kept is not None:
                self._remember(kept, state)
                known = self.kind.from_check(kept, settings)
                if known is not None:
                    return self.kind.light(known) if self.many else known
        read = None if self.many else Read(source, state, key)
        self.work.jobs.append(Job(name, len(source.text), rules, settings, context, read, asked))
        return len(self.work.jobs) - 1

    def _about(self, path: Path) -> tuple[Settings, Selection]:
        """Give the settings and rules of a file: those of its folder."""
        folder = os.path.dirname(str(path))  # noqa: PTH120
        if folder not in self.folders:
            self.folders[folder] = (self.project.settings(path), self.project.selection(path))
        return self.folders[folder]

    def _context(self, settings: Settings, rules: Selection) -> bytes | None:
        """Give what the key of a file in the cache depends on beside the file."""
        if self.cache_dir is None:
            return None
        about = (id(settings), id(rules))
        if about not in self.contexts:
            from torchlint.engine.store import context

            self.contexts[about] = context(settings, rules)
        return self.contexts[about]

    def _remember(self, result: FileResult, state: os.stat_result) -> None:
        """Note that a file need not be read again until it is touched."""
        if self.clean is not None and not (result.findings or result.errors):
            settings, rules = self._about(Path(result.path))
            self.clean.remember(result.path, state, settings, rules, result.suppressed)

    @cached_property
    def clean(self) -> CleanFiles | None:
        """Which of many files need not be read."""
        if self.cache_dir is None or not self.many:
            return None
        from torchlint.engine.clean import CleanFiles

        return CleanFiles(self.cache_dir, self.project.registry)

    @cached_property
    def cache(self) -> Cache | None:
        """Where results are kept: read when there is one to look for."""
        if self.cache_dir is None:
            return None
        from torchlint.engine.cache import Cache

        return Cache(self.cache_dir, self.project.registry)

    def _in_order(self, results: Iterator[tuple[int, Done[R]]]) -> Iterator[R]:
        """Give every result when those before it have come; keep them in the cache at last."""
        come: dict[int, R] = {}
        for planned in self.plan:
            if not isinstance(planned, int):
                yield self._once(planned)
                continue
            while planned not in come:
                number, done = next(results)
                come[number] = done.result
                self._keep(done)
            yield self._once(come.pop(planned))
        if self.work.jobs and self.cache is not None:
            self.cache.save()
        if self.clean is not None:
            self.clean.save()

    def _keep(self, done: Done[R]) -> None:
        check = self.kind.to_check(done.result)
        if self.cache is not None and check is not None and done.state is not None:
            self.cache.put(done.key, check)
            self._remember(check, done.state)

    def _once(self, result: R) -> R:
        """Leave out errors that were told with an earlier file: those of packs name none."""
        fresh = tuple(error for error in result.errors if error not in self.told)
        self.told.update(fresh)
        return result if fresh == result.errors else result._replace(errors=fresh)
