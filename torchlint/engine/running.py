"""Checking and fixing many files, over processes where there is enough to do."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from torchlint.config import Settings
from torchlint.engine.files import WORTH_REMEMBERING
from torchlint.engine.relevance import matters
from torchlint.engine.results import FileResult, FixResult
from torchlint.notebook import is_notebook, read_source
from torchlint.registry import RegistryError, Selection
from torchlint.source import Source, SourceError

if TYPE_CHECKING:
    from torchlint.engine.answers import Accept
    from torchlint.engine.cache import Cache
    from torchlint.engine.clean import CleanFiles
    from torchlint.engine.project import Project
    from torchlint.engine.workers import Died, Workers

__all__ = ["check_paths", "fix_paths"]

R = TypeVar("R", FileResult, FixResult)

WORTH_FORKING: Final = 60_000
"""How many characters must be left to parse for more than one process to pay."""


def check_paths(
    files: Sequence[Path],
    project: Project,
    *,
    jobs: int | None = None,
    file_timeout: float = 0,
    cache_dir: Path | None = None,
) -> Iterator[FileResult]:
    """Check files and give one result for each, in the order of `files`.

    `jobs` is the number of processes, by default one for each processor; the workers start before
    this function returns, so start threads (a progress bar) afterwards. A file that takes more
    than `file_timeout` seconds of computing is given up with an error; 0 is no limit. `cache_dir`
    is where results are kept; None keeps none.
    """
    return _Batch(_Checks(), files, project, file_timeout, cache_dir).start(jobs)


def fix_paths(
    files: Sequence[Path],
    project: Project,
    *,
    jobs: int | None = None,
    file_timeout: float = 0,
    cache_dir: Path | None = None,
    accept: Accept | None = None,
) -> Iterator[FixResult]:
    """Fix files in memory and give one result for each, in the order of `files`.

    Nothing is written: `write_atomic(path, result.after, result.before.to_bytes())` does that.
    With `jobs=1` each file is fixed when its result is asked for; `accept` is that of `fix_source`.
    """
    return _Batch(_Fixes(accept), files, project, file_timeout, cache_dir).start(jobs)


class _Job(NamedTuple):
    """One file that must be parsed: read once more, so that a run does not hold every text."""

    path: str
    size: int
    rules: Selection
    settings: Settings
    read: _Read | None
    """What was read, where there are few files."""


class _Read(NamedTuple):
    """A file as it was when it was read."""

    source: Source
    state: os.stat_result
    key: str
    """What it is called in the cache."""


@dataclass(frozen=True)
class _Done(Generic[R]):
    """The result of a job, and of which state of the file it is, None if it cannot be kept."""

    result: R
    state: os.stat_result | None = None
    key: str = ""


class _Kind(ABC, Generic[R]):
    """What is done with each file of a batch."""

    @abstractmethod
    def do(self, source: Source, job: _Job) -> R:
        """Do the work."""

    @abstractmethod
    def from_check(self, result: FileResult, settings: Settings) -> R | None:
        """Give the result where that of a check is all it takes."""

    @abstractmethod
    def to_check(self, result: R) -> FileResult | None:
        """Give the check that a result amounts to, if it does."""

    @abstractmethod
    def light(self, result: R) -> R:
        """Give a result without the text of a file of which there is nothing to show."""


class _Checks(_Kind[FileResult]):
    def do(self, source: Source, job: _Job) -> FileResult:
        from torchlint.engine.checking import check_source

        return check_source(source, job.rules, job.settings)

    def from_check(self, result: FileResult, settings: Settings) -> FileResult:
        return result

    def to_check(self, result: FileResult) -> FileResult:
        return result

    def light(self, result: FileResult) -> FileResult:
        return result if result.findings else result._replace(source=None)


class _Fixes(_Kind[FixResult]):
    def __init__(self, accept: Accept | None) -> None:
        self.accept = accept

    def do(self, source: Source, job: _Job) -> FixResult:
        from torchlint.engine.fixing import fix_source

        return fix_source(source, job.rules, job.settings, self.accept)

    def from_check(self, result: FileResult, settings: Settings) -> FixResult | None:
        from torchlint.engine.fixing import unchanged
        from torchlint.engine.grading import applies

        due = any(applies(finding, settings) for finding in result.findings)
        return None if due else unchanged(result)

    def to_check(self, result: FixResult) -> FileResult | None:
        if result.changed:
            return None
        before = result.before
        return FileResult(before.path, before, result.left, result.suppressed, result.errors)

    def light(self, result: FixResult) -> FixResult:
        if result.changed or result.left:
            return result
        nothing = result.before.with_text("")
        return result._replace(before=nothing, after=nothing)


class _Batch(Generic[R]):
    """The files of one run: what is known at once, and what has to be parsed."""

    def __init__(
        self,
        kind: _Kind[R],
        files: Sequence[Path],
        project: Project,
        limit: float,
        cache_dir: Path | None,
    ) -> None:
        self.kind: _Kind[R] = kind
        self.limit = limit
        self.project = project
        self.cache_dir = cache_dir
        self.told: set[str] = set()
        self.many = len(files) >= WORTH_REMEMBERING
        self.defaults = Settings()
        self.folders: dict[str, tuple[Settings, Selection]] = {}
        self.jobs: list[_Job] = []
        self.plan: list[R | int] = [self._planned(path) for path in files]

    def start(self, processes: int | None) -> Iterator[R]:
        """Start the work and give the results in order."""
        return self._in_order(self._started(processes))

    def _planned(self, path: Path) -> R | int:
        """Prepare a file: a notebook takes its time already when it is read."""
        if not is_notebook(str(path)):
            return self._prepared(path)
        from torchlint.engine.timelimit import within

        def given_up(said: str) -> R | int:
            return self._known(FileResult(str(path), None, errors=(said,)))

        return within(self.limit, str(path), lambda: self._prepared(path), given_up)

    def _prepared(self, path: Path) -> R | int:
        """Give the result of a file, or the number of the job that will have it."""
        name = str(path)
        settings, rules = self._about(path)
        try:
            if self.clean is not None:
                suppressed = self.clean.suppressed(name, os.stat(name), settings, rules)  # noqa: PTH116
                if suppressed is not None:
                    return self._known(FileResult(name, None, suppressed=suppressed))
            data, state = _read_bytes(name)
        except OSError as error:
            return self._unreadable(name, error)
        try:
            source = read_source(data, name)
        except SourceError:
            from torchlint.engine.checking import check_bytes

            return self._known(check_bytes(data, name, rules, settings))
        if not matters(source.text, rules):
            result = FileResult(name, None if self.many else source)
            self._remember(result, state)
            return self._known(result)
        key = self.cache.key(data, name, settings, rules) if self.cache else ""
        kept = self.cache.get(key, source) if self.cache else None
        if kept is not None:
            self._remember(kept, state)
            known = self.kind.from_check(kept, settings)
            if known is not None:
                return self.kind.light(known) if self.many else known
        read = None if self.many else _Read(source, state, key)
        self.jobs.append(_Job(name, len(source.text), rules, settings, read))
        return len(self.jobs) - 1

    def _unreadable(self, path: str, error: OSError) -> R:
        said = f"{path} cannot be read: {error.strerror}"
        return self._known(FileResult(path, None, errors=(said,)))

    def _about(self, path: Path) -> tuple[Settings, Selection]:
        """Give the settings and rules of a file: those of its folder."""
        folder = os.path.dirname(str(path))  # noqa: PTH120
        if folder not in self.folders:
            self.folders[folder] = (self.project.settings(path), self.project.selection(path))
        return self.folders[folder]

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

    def _known(self, result: FileResult) -> R:
        known = self.kind.from_check(result, self.defaults)
        assert known is not None
        return known

    def _started(self, processes: int | None) -> Iterator[tuple[int, _Done[R]]]:
        weights = [job.size for job in self.jobs]
        if len(self.jobs) > 1 and processes != 1 and sum(weights) >= WORTH_FORKING:
            from torchlint.engine.workers import Workers, can_fork, processors

            processes = min(processes or processors(), len(self.jobs))
            if processes > 1 and can_fork():
                self._import_all()
                return self._survived(Workers(self._done_apart, weights, processes))
        return ((number, self._done(number)) for number in range(len(self.jobs)))

    def _done(self, number: int) -> _Done[R]:
        """Do a job."""
        job = self.jobs[number]

        def given_up(said: str) -> _Done[R]:
            return _Done(self._known(FileResult(job.path, None, errors=(said,))))

        from torchlint.engine.timelimit import within

        return within(self.limit, job.path, lambda: self._finished(job), given_up)

    def _finished(self, job: _Job) -> _Done[R]:
        if job.read is not None:
            result = self.kind.do(job.read.source, job)
            return _Done(result, job.read.state, job.read.key)
        try:
            data, state = _read_bytes(job.path)
        except OSError as error:
            return _Done(self._unreadable(job.path, error))
        try:
            source = read_source(data, job.path)
        except SourceError:
            from torchlint.engine.checking import check_bytes

            return _Done(self._known(check_bytes(data, job.path, job.rules, job.settings)))
        key = self.cache.key(data, job.path, job.settings, job.rules) if self.cache else ""
        return _Done(self.kind.light(self.kind.do(source, job)), state, key)

    def _done_apart(self, number: int) -> _Done[R]:
        """Do a job in a process that has nothing to lose but its file."""
        from torchlint.engine.timelimit import end_process_after

        end_process_after(self.limit)
        return self._done(number)

    def _survived(self, workers: Workers[_Done[R]]) -> Iterator[tuple[int, _Done[R]]]:
        from torchlint.engine.workers import Died

        for number, done in workers.results():
            if isinstance(done, Died):
                path = self.jobs[number].path
                said = self._of_death(path, done)
                yield number, _Done(self._known(FileResult(path, None, errors=(said,))))
            else:
                yield number, done

    def _of_death(self, path: str, died: Died) -> str:
        """Say why a process was lost."""
        from torchlint.engine.timelimit import FINAL, words

        if died.signal == FINAL:
            return words(path, self.limit)
        return (
            f"INTERNAL ERROR: the process that looked at {path} {died.how}; "
            "the file was left out; please report"
        )

    def _import_all(self) -> None:
        """Import once, before forking, what every process needs."""
        heads = {head.code: head for job in self.jobs for head in job.rules}
        for head in heads.values():
            with contextlib.suppress(RegistryError):
                head.load()

    def _in_order(self, results: Iterator[tuple[int, _Done[R]]]) -> Iterator[R]:
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
        if self.jobs and self.cache is not None:
            self.cache.save()
        if self.clean is not None:
            self.clean.save()

    def _keep(self, done: _Done[R]) -> None:
        check = self.kind.to_check(done.result)
        if self.cache is not None and check is not None and done.state is not None:
            self.cache.put(done.key, check)
            self._remember(check, done.state)

    def _once(self, result: R) -> R:
        """Leave out errors that were told with an earlier file: those of packs name none."""
        fresh = tuple(error for error in result.errors if error not in self.told)
        self.told.update(fresh)
        return result if fresh == result.errors else result._replace(errors=fresh)


def _read_bytes(path: str) -> tuple[bytes, os.stat_result]:
    """Give what a file holds, and the state that it was in before it was read."""
    with open(path, "rb") as file:  # noqa: PTH123
        state = os.fstat(file.fileno())
        return file.read(), state
