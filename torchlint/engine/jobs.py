"""The files of a run that must be parsed, one job each, done here or in worker processes."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from torchlint.config import Settings
from torchlint.engine.answers import Accept
from torchlint.engine.cache import key_of
from torchlint.engine.grading import applies
from torchlint.engine.processes import Died, can_fork, processors
from torchlint.engine.programs import Linked, Programs
from torchlint.engine.results import FileResult, FixResult, guarded
from torchlint.engine.timelimit import FINAL, end_process_after, within, words
from torchlint.engine.usedelsewhere import UsedElsewhere
from torchlint.notebook import read_source
from torchlint.registry import RegistryError, RuleHead, Selection
from torchlint.source import Source, SourceError

if TYPE_CHECKING:
    from torchlint.engine.workers import Workers

R = TypeVar("R", FileResult, FixResult)

WORTH_FORKING: Final = 60_000
"""From how many characters to parse on worker processes pay."""


class Read(NamedTuple):
    """The content of a file and its key in the cache."""

    source: Source
    key: str
    """The key in the cache."""


class Job(NamedTuple):
    """One file that must be parsed; its text is read again then, to save memory."""

    path: str
    size: int
    rules: Selection
    settings: Settings
    context: bytes | None
    """What its key in the cache depends on besides the file, None without a cache."""
    read: Read | None
    """The content, if there are few files."""
    asked: tuple[RuleHead, ...] | None
    """The rules that are relevant to the content, if known."""
    linked: Linked | None
    """What the content is judged with, if known."""


class Done(Generic[R]):
    """The result of a job and its key in the cache, empty if it is not to be cached."""

    def __init__(self, result: R, key: str = "") -> None:
        self.result: R = result
        self.key = key


class Task(ABC, Generic[R]):
    """What a run does with each file: check it or fix it."""

    def __init__(self, used_elsewhere: UsedElsewhere, programs: Programs) -> None:
        self.used_elsewhere = used_elsewhere
        self.programs = programs

    @abstractmethod
    def do(self, source: Source, job: Job) -> R:
        """Process one file."""

    @abstractmethod
    def from_check(self, result: FileResult, settings: Settings) -> R | None:
        """Return the result of this task if that of a check suffices, else None."""

    @abstractmethod
    def to_check(self, result: R) -> FileResult | None:
        """Return the check result that a result is equivalent to, None if there is none."""

    @abstractmethod
    def light(self, result: R) -> R:
        """Return a result without its text if there is nothing to show."""

    def known(self, result: FileResult) -> R:
        """Return the result of a file that needs no further work."""
        known = self.from_check(result, Settings())
        assert known is not None
        return known


class CheckTask(Task[FileResult]):
    """The task of checking files."""

    def do(self, source: Source, job: Job) -> FileResult:
        """Check a file."""
        from torchlint.engine.checking import check_source

        linked = job.linked or self.programs.link(source, job.settings)
        return guarded(
            source.path,
            lambda: check_source(
                source, job.rules, job.settings, job.asked, self.used_elsewhere, linked
            ),
            lambda said: FileResult(source.path, source, warnings=(said,)),
        )

    def from_check(self, result: FileResult, settings: Settings) -> FileResult:
        """Return the check result itself."""
        return result

    def to_check(self, result: FileResult) -> FileResult:
        """Return the result itself."""
        return result

    def light(self, result: FileResult) -> FileResult:
        """Drop the text of a file without findings."""
        return result if result.findings else result._replace(source=None)


class FixTask(Task[FixResult]):
    """The task of fixing files in memory."""

    def __init__(
        self, used_elsewhere: UsedElsewhere, programs: Programs, accept: Accept | None
    ) -> None:
        super().__init__(used_elsewhere, programs)
        self.accept = accept

    def do(self, source: Source, job: Job) -> FixResult:
        """Fix the text of a file."""
        from torchlint.engine.fixing import fix_source

        def fixed() -> FixResult:
            return fix_source(
                source,
                job.rules,
                job.settings,
                self.accept,
                self.used_elsewhere,
                self.programs.link,
            )

        def left_out(said: str) -> FixResult:
            return self.known(FileResult(source.path, source, warnings=(said,)))

        if self.accept is not None:  # the user's answer may end the run
            return fixed()
        return guarded(source.path, fixed, left_out)

    def from_check(self, result: FileResult, settings: Settings) -> FixResult | None:
        """Return the result if the check found nothing to fix, else None."""
        from torchlint.engine.fixing import unchanged

        due = any(applies(finding, settings) for finding in result.findings)
        return None if due else unchanged(result)

    def to_check(self, result: FixResult) -> FileResult | None:
        """Return the check result if nothing was fixed, else None."""
        return None if result.changed else result.check()

    def light(self, result: FixResult) -> FixResult:
        """Drop the texts of a file without findings."""
        if result.changed or result.left:
            return result
        nothing = result.before.with_text("")
        return result._replace(before=nothing, after=nothing)


class Work(Generic[R]):
    """The jobs of a run, each limited to `limit` CPU seconds; 0 is no limit."""

    def __init__(self, task: Task[R], limit: float) -> None:
        self.task: Task[R] = task
        self.limit = limit
        self.jobs: list[Job] = []

    def results(self, processes: int | None) -> Iterator[tuple[int, Done[R]]]:
        """Start all jobs; yield number and result of each as it finishes."""
        workers = self._workers(processes)
        if workers is None:
            return ((number, self._done(number)) for number in range(len(self.jobs)))
        return self._survived(workers)

    def _workers(self, processes: int | None) -> Workers[Done[R]] | None:
        """Start worker processes, or return None if this process is enough."""
        weights = [job.size for job in self.jobs]
        if len(weights) < 2 or processes == 1 or sum(weights) < WORTH_FORKING:
            return None
        processes = min(processes or processors(), len(weights))
        if processes == 1 or not can_fork():
            return None
        from torchlint.engine.workers import Workers

        self._import_common(processes)
        return Workers(self._done_apart, weights, processes)

    def _done(self, number: int) -> Done[R]:
        """Do a job in this process."""
        job = self.jobs[number]

        def given_up(said: str) -> Done[R]:
            return Done(self.task.known(FileResult(job.path, None, warnings=(said,))))

        return within(self.limit, job.path, lambda: self._finished(job), given_up)

    def _finished(self, job: Job) -> Done[R]:
        if job.read is not None:
            result = self.task.do(job.read.source, job)
            return Done(result, job.read.key)
        try:
            data = read_bytes(job.path)
        except OSError as error:
            said = f"{job.path} cannot be read: {error.strerror}"
            return Done(self.task.known(FileResult(job.path, None, errors=(said,))))
        try:
            source = read_source(data, job.path)
        except SourceError:
            from torchlint.engine.checking import check_bytes

            checked = check_bytes(data, job.path, job.rules, job.settings)
            return Done(self.task.known(checked))
        key = ""
        if job.context is not None:
            key = key_of(data, job.path, job.context)
        return Done(self.task.light(self.task.do(source, job)), key)

    def _done_apart(self, number: int) -> Done[R]:
        """Do a job in a worker process, which the time limit may kill."""
        end_process_after(self.limit)
        return self._done(number)

    def _survived(self, workers: Workers[Done[R]]) -> Iterator[tuple[int, Done[R]]]:
        for number, done in workers.results():
            yield number, self._lost(number, done) if isinstance(done, Died) else done
        for number in workers.left:
            yield number, self._done(number)

    def _lost(self, number: int, died: Died) -> Done[R]:
        """Return the result of a job whose process died."""
        path = self.jobs[number].path
        said = (
            f"internal error on {path} (please report): the process that checked it {died.how}; "
            "the file was skipped"
        )
        said = words(path, self.limit) if died.signal == FINAL else said
        return Done(self.task.known(FileResult(path, None, warnings=(said,))))

    def _import_common(self, processes: int) -> None:
        """Import the rules that every worker will need, once, before forking."""
        asked = [job.rules if job.asked is None else job.asked for job in self.jobs]
        heads = {head.code: head for each in asked for head in each}
        counts = Counter(head.code for each in asked for head in each)
        for code, head in heads.items():
            if counts[code] > processes:
                with contextlib.suppress(RegistryError):
                    head.load()


def read_bytes(path: str) -> bytes:
    """Return the bytes of a file."""
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read()
