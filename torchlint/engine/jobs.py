"""The files of a run that must be parsed, one job each, in whatever process that is done."""

from __future__ import annotations

import contextlib
import os
import pickle
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from torchlint.config import Settings
from torchlint.engine.processes import Died, can_fork, processors
from torchlint.engine.results import FileResult, FixResult
from torchlint.notebook import read_source
from torchlint.record import Record
from torchlint.registry import RegistryError, RuleHead, Selection
from torchlint.source import Source, SourceError

if TYPE_CHECKING:
    from torchlint.engine.answers import Accept
    from torchlint.engine.workers import Workers

__all__ = ["Checks", "Done", "Fixes", "Job", "Kind", "Read", "Work", "read_bytes"]

R = TypeVar("R", FileResult, FixResult)
X = TypeVar("X")

WORTH_FORKING: Final = 60_000
"""How many characters must be left to parse for more than one process to pay."""


class Read(Record):
    """A file as it was when it was read."""

    source: Source
    state: os.stat_result
    key: str
    """What it is called in the cache."""


class Job(Record):
    """One file that must be parsed: read once more, so that a run does not hold every text."""

    path: str
    size: int
    rules: Selection
    settings: Settings
    context: bytes | None
    """What its key in the cache depends on beside the file, None where nothing is kept."""
    read: Read | None
    """What was read, where there are few files."""
    asked: tuple[RuleHead, ...] | None
    """The rules that are relevant to what was read."""


class Done(Generic[R]):
    """The result of a job, and of which state of the file it is, None if it cannot be kept."""

    def __init__(self, result: R, state: os.stat_result | None = None, key: str = "") -> None:
        self.result: R = result
        self.state = state
        self.key = key


class Kind(ABC, Generic[R]):
    """What is done with each file."""

    @abstractmethod
    def do(self, source: Source, job: Job) -> R:
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

    def known(self, result: FileResult) -> R:
        """Give the result of a file with which nothing can be done."""
        known = self.from_check(result, Settings())
        assert known is not None
        return known


class Checks(Kind[FileResult]):
    """Files are checked."""

    def do(self, source: Source, job: Job) -> FileResult:
        """Check a file."""
        from torchlint.engine.checking import check_source

        return check_source(source, job.rules, job.settings, job.asked)

    def from_check(self, result: FileResult, settings: Settings) -> FileResult:
        """Give the result of the check."""
        return result

    def to_check(self, result: FileResult) -> FileResult:
        """Give the check."""
        return result

    def light(self, result: FileResult) -> FileResult:
        """Leave out the text of a file without findings."""
        return result if result.findings else result._replace(source=None)


class Fixes(Kind[FixResult]):
    """Files are fixed in memory."""

    def __init__(self, accept: Accept | None) -> None:
        self.accept = accept

    def do(self, source: Source, job: Job) -> FixResult:
        """Fix the text of a file."""
        from torchlint.engine.fixing import fix_source

        return fix_source(source, job.rules, job.settings, self.accept)

    def from_check(self, result: FileResult, settings: Settings) -> FixResult | None:
        """Give the result of a check that found nothing to apply."""
        from torchlint.engine.fixing import unchanged
        from torchlint.engine.grading import applies

        due = any(applies(finding, settings) for finding in result.findings)
        return None if due else unchanged(result)

    def to_check(self, result: FixResult) -> FileResult | None:
        """Give the check that a fix of nothing amounts to."""
        if result.changed:
            return None
        before = result.before
        return FileResult(before.path, before, result.left, result.suppressed, result.errors)

    def light(self, result: FixResult) -> FixResult:
        """Leave out the texts of a file without findings."""
        if result.changed or result.left:
            return result
        nothing = result.before.with_text("")
        return result._replace(before=nothing, after=nothing)


class Work(Generic[R]):
    """Jobs of one kind, none of which may take more than `limit` seconds, where that is not 0."""

    def __init__(self, kind: Kind[R], limit: float) -> None:
        self.kind: Kind[R] = kind
        self.limit = limit
        self.jobs: list[Job] = []

    def results(
        self, processes: int | None, numbers: Sequence[int] | None = None
    ) -> Iterator[tuple[int, Done[R]]]:
        """Start the jobs of these numbers, by default of all; give each when it is done."""
        numbers = range(len(self.jobs)) if numbers is None else numbers
        workers = self._workers(processes, numbers, self._done_apart)
        if workers is None:
            return ((number, self._done(number)) for number in numbers)
        return self._survived(workers, numbers, self._done, self.lost)

    def packed(self, processes: int | None) -> Iterator[tuple[int, bytes]]:
        """Do all jobs, in order or by several processes; give each pickled when it is done.

        This process has nothing to lose but the job that it is at.
        """
        numbers = range(len(self.jobs))
        workers = self._workers(processes, numbers, self._packed)
        if workers is None:
            return ((number, self._packed(number)) for number in numbers)
        return self._survived(
            workers, numbers, self._packed, lambda *lost: _dumps(self.lost(*lost))
        )

    def _workers(
        self, processes: int | None, numbers: Sequence[int], do: Callable[[int], X]
    ) -> Workers[X] | None:
        """Start processes for the jobs of some numbers, none where one is enough."""
        weights = [self.jobs[number].size for number in numbers]
        if len(numbers) < 2 or processes == 1 or sum(weights) < WORTH_FORKING:
            return None
        processes = min(processes or processors(), len(numbers))
        if processes == 1 or not can_fork():
            return None
        from torchlint.engine.workers import Workers

        self._import_common(numbers, processes)
        return Workers(lambda at: do(numbers[at]), weights, processes)

    def _packed(self, number: int) -> bytes:
        return _dumps(self._done_apart(number))

    def _done(self, number: int) -> Done[R]:
        """Do a job."""
        job = self.jobs[number]

        def given_up(said: str) -> Done[R]:
            return Done(self.kind.known(FileResult(job.path, None, errors=(said,))))

        from torchlint.engine.timelimit import within

        return within(self.limit, job.path, lambda: self._finished(job), given_up)

    def _finished(self, job: Job) -> Done[R]:
        if job.read is not None:
            result = self.kind.do(job.read.source, job)
            return Done(result, job.read.state, job.read.key)
        try:
            data, state = read_bytes(job.path)
        except OSError as error:
            said = f"{job.path} cannot be read: {error.strerror}"
            return Done(self.kind.known(FileResult(job.path, None, errors=(said,))))
        try:
            source = read_source(data, job.path)
        except SourceError:
            from torchlint.engine.checking import check_bytes

            checked = check_bytes(data, job.path, job.rules, job.settings)
            return Done(self.kind.known(checked))
        key = ""
        if job.context is not None:
            from torchlint.engine.cache import key_of

            key = key_of(data, job.path, job.context)
        return Done(self.kind.light(self.kind.do(source, job)), state, key)

    def _done_apart(self, number: int) -> Done[R]:
        """Do a job in a process that has nothing to lose but its file."""
        from torchlint.engine.timelimit import end_process_after

        end_process_after(self.limit)
        return self._done(number)

    def _survived(
        self,
        workers: Workers[X],
        numbers: Sequence[int],
        do: Callable[[int], X],
        lost: Callable[[int, Died], X],
    ) -> Iterator[tuple[int, X]]:
        for at, done in workers.results():
            number = numbers[at]
            yield number, lost(number, done) if isinstance(done, Died) else done
        for at in workers.left:
            yield numbers[at], do(numbers[at])

    def lost(self, number: int, died: Died) -> Done[R]:
        """Give the result of a job on which its process died."""
        from torchlint.engine.timelimit import FINAL, words

        path = self.jobs[number].path
        said = (
            f"INTERNAL ERROR: the process that looked at {path} {died.how}; "
            "the file was left out; please report"
        )
        said = words(path, self.limit) if died.signal == FINAL else said
        return Done(self.kind.known(FileResult(path, None, errors=(said,))))

    def _import_common(self, numbers: Sequence[int], processes: int) -> None:
        """Import once, before forking, what every process will need."""
        jobs = [self.jobs[number] for number in numbers]
        asked = [job.rules if job.asked is None else job.asked for job in jobs]
        heads = {head.code: head for each in asked for head in each}
        counts = Counter(head.code for each in asked for head in each)
        for code, head in heads.items():
            if counts[code] > processes:
                with contextlib.suppress(RegistryError):
                    head.load()


def _dumps(done: Done[R]) -> bytes:
    return pickle.dumps(done, pickle.HIGHEST_PROTOCOL)


def read_bytes(path: str) -> tuple[bytes, os.stat_result]:
    """Give what a file holds, and the state that it was in before it was read."""
    with open(path, "rb") as file:  # noqa: PTH123
        state = os.fstat(file.fileno())
        return file.read(), state
