"""Checking and fixing many files, in worker processes if there is enough to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from torchlint.config import Settings
from torchlint.engine.answers import Accept
from torchlint.engine.cache import Cache, key_of
from torchlint.engine.files import WORTH_REMEMBERING
from torchlint.engine.jobs import CheckTask, Done, FixTask, Job, Read, Task, Work, read_bytes
from torchlint.engine.programs import Programs
from torchlint.engine.project import Project
from torchlint.engine.relevance import is_clean, relevant
from torchlint.engine.results import FileResult, FixResult
from torchlint.engine.store import context
from torchlint.engine.timelimit import within
from torchlint.engine.usedelsewhere import Projects
from torchlint.notebook import is_notebook, read_source
from torchlint.registry import Selection
from torchlint.source import Source, SourceError

R = TypeVar("R", FileResult, FixResult)

WORTH_SHARING: Final = 150
"""From how many files on the workers, and not the main process, decide which rules are relevant.
"""
MAX_ROUNDS: Final = 10

FixAgain = Callable[[Sequence[Path], Mapping[str, Source]], Iterator[FixResult]]
"""A function that fixes files, some of which have another text than on the disk."""


def check_paths(
    files: Sequence[Path],
    project: Project,
    *,
    jobs: int | None = None,
    file_timeout: float = 0,
    cache_dir: Path | None = None,
    programs: Programs | None = None,
) -> Iterator[FileResult]:
    """Check files; yield one result for each, in the order of `files`.

    `jobs` is the number of processes, by default one for each processor; the workers start before
    this function returns, so start threads (a progress bar) afterwards. A file that takes more
    than `file_timeout` CPU seconds is given up with a warning; 0 is no limit. `cache_dir` is the
    folder of the cache, None for no cache. `programs` are the indexes to use, if there are some.
    """
    used_elsewhere = Projects(project.settings_at).used_elsewhere
    task = CheckTask(used_elsewhere, programs or Programs(cache_dir, project.settings_at))
    return _Batch(task, files, project, file_timeout, cache_dir).start(jobs)


def fix_paths(
    files: Sequence[Path],
    project: Project,
    *,
    jobs: int | None = None,
    file_timeout: float = 0,
    cache_dir: Path | None = None,
    accept: Accept | None = None,
    one_by_one: bool = False,
    programs: Programs | None = None,
) -> Iterator[FixResult]:
    """Fix files in memory; yield one result for each, in the order of `files`.

    Nothing is written: `write_atomic(path, result.after, result.before.to_bytes())` does that.
    Files are fixed again while fixes change what is linked to them, unless they are fixed
    `one_by_one`: then with `jobs=1` each is fixed when its result is consumed. `accept` is passed
    on to `fix_source`; the other arguments are those of `check_paths`.
    """
    programs = programs or Programs(cache_dir, project.settings_at)
    task = FixTask(Projects(project.settings_at).used_elsewhere, programs, accept)
    first = _Batch(task, files, project, file_timeout, cache_dir).start(jobs)
    if one_by_one:
        return first

    def again(some: Sequence[Path], texts: Mapping[str, Source]) -> Iterator[FixResult]:
        return _Batch(task, some, project, file_timeout, None, texts).start(jobs)

    return in_rounds(first, files, project, programs, again)


class _Batch(Generic[R]):
    """The files of one run: some have a result without parsing, the others become jobs."""

    def __init__(
        self,
        task: Task[R],
        files: Sequence[Path],
        project: Project,
        limit: float,
        cache_dir: Path | None,
        texts: Mapping[str, Source] = MappingProxyType({}),
    ) -> None:
        self.task: Task[R] = task
        self.texts = texts
        self.work: Work[R] = Work(task, limit)
        self.project = project
        self.cache_dir = cache_dir
        self.reported: set[str] = set()
        self.many = len(files) >= WORTH_REMEMBERING
        self.very_many = len(files) >= WORTH_SHARING
        self.folders: dict[str, tuple[Settings, Selection]] = {}
        self.contexts: dict[tuple[int, int], bytes] = {}
        self.files = files
        self.plan: list[R | int] = []

    def start(self, processes: int | None) -> Iterator[R]:
        """Start the work and return the results in order."""
        if len(self.files) > 1:
            linked = (str(path) for path in self.files if self._about(path)[0].program)
            self.task.programs.build(linked, processes)
        self.plan += map(self._planned, self.files)
        return self._in_order(self.work.results(processes))

    def _planned(self, path: Path) -> R | int:
        """Prepare a file; the time limit includes reading a notebook."""
        if not is_notebook(str(path)):
            return self._prepared(path)

        def given_up(said: str) -> R | int:
            return self.task.known(FileResult(str(path), None, warnings=(said,)))

        return within(self.work.limit, str(path), lambda: self._prepared(path), given_up)

    def _prepared(self, path: Path) -> R | int:
        """Return the result of a file, or the number of its job."""
        name = str(path)
        settings, rules = self._about(path)
        if name in self.texts:
            read = Read(self.texts[name], "")
            size = len(read.source.text)
            return self._job(Job(name, size, rules, settings, None, read, None, None))
        try:
            data = read_bytes(name)
        except OSError as error:
            said = f"{name} cannot be read: {error.strerror}"
            return self.task.known(FileResult(name, None, errors=(said,)))
        try:
            source = read_source(data, name)
        except SourceError:
            from torchlint.engine.checking import check_bytes

            return self.task.known(check_bytes(data, name, rules, settings))
        linked = self.task.programs.link(source, settings)
        asked = None if self.very_many else tuple(relevant(source.text, rules, linked))
        if asked is not None and is_clean(source, asked):
            return self.task.known(FileResult(name, None if self.many else source))
        key, context = "", self._context(settings, rules)
        if self.cache is not None and context is not None:
            key = key_of(data, name, context)
            kept = self.cache.get(key, source, self.task.used_elsewhere, linked)
            if kept is not None:
                known = self.task.from_check(kept, settings)
                if known is not None:
                    return self.task.light(known) if self.many else known
        size = len(source.text)
        if self.many:
            found = None if asked is None else linked
            return self._job(Job(name, size, rules, settings, context, None, asked, found))
        read = Read(source, key)
        return self._job(Job(name, size, rules, settings, context, read, asked, linked))

    def _job(self, job: Job) -> int:
        self.work.jobs.append(job)
        return len(self.work.jobs) - 1

    def _about(self, path: Path) -> tuple[Settings, Selection]:
        """Return the settings and rules of a file, cached by folder."""
        folder = os.path.dirname(str(path))  # noqa: PTH120
        if folder not in self.folders:
            self.folders[folder] = (self.project.settings(path), self.project.selection(path))
        return self.folders[folder]

    def _context(self, settings: Settings, rules: Selection) -> bytes | None:
        """Return what the key of a file in the cache depends on besides its content."""
        if self.cache_dir is None:
            return None
        about = (id(settings), id(rules))
        if about not in self.contexts:
            self.contexts[about] = context(settings, rules)
        return self.contexts[about]

    @cached_property
    def cache(self) -> Cache | None:
        """The cache of results, read on first use."""
        if self.cache_dir is None:
            return None

        return Cache(self.cache_dir, self.project.registry)

    def _in_order(self, results: Iterator[tuple[int, Done[R]]]) -> Iterator[R]:
        """Yield the results in order as they come, and save the cache at the end."""
        come: dict[int, R] = {}
        for planned in self.plan:
            if not isinstance(planned, int):
                yield self._without_repeats(planned)
                continue
            while planned not in come:
                number, done = next(results)
                come[number] = done.result
                self._keep(done)
            yield self._without_repeats(come.pop(planned))
        if self.cache is not None and self.work.jobs:
            self.cache.save()
        if self.cache_dir is not None:
            self.task.programs.save()

    def _keep(self, done: Done[R]) -> None:
        check = self.task.to_check(done.result)
        if self.cache is not None and check is not None and done.key:
            self.cache.put(done.key, check)

    def _without_repeats(self, result: R) -> R:
        """Drop errors that were already reported with an earlier file, such as those of packs."""
        fresh = tuple(error for error in result.errors if error not in self.reported)
        self.reported.update(fresh)
        return result if fresh == result.errors else result._replace(errors=fresh)


def in_rounds(
    first: Iterator[FixResult],
    files: Sequence[Path],
    project: Project,
    programs: Programs,
    again: FixAgain,
) -> Iterator[FixResult]:
    """Yield the results after the last round; every file of a round sees the texts before it."""
    results = list(first)
    if any(result.changed for result in results):
        _Rounds(files, project, programs, again).complete(results)
    yield from results


@dataclass
class _Rounds:
    """The rounds after the first one."""

    files: Sequence[Path]
    project: Project
    programs: Programs
    again: FixAgain
    texts: dict[str, Source] = field(default_factory=dict)
    """The texts that are not those on the disk, by path."""

    def complete(self, results: list[FixResult]) -> None:
        """Replace the results of files until the views of all files stay as they are."""
        before = self._digests()
        for _ in range(MAX_ROUNDS):
            if not self._took(results):
                return
            now = self._digests()
            due = [at for at in range(len(self.files)) if now[at] != before[at]]
            before = now
            later = self.again([self.files[at] for at in due], self.texts)
            for at, result in zip(due, later, strict=True):
                results[at] = _joined(results[at], result)

    def _took(self, results: list[FixResult]) -> bool:
        """Take over the texts of a round; return whether any is new."""
        is_new = False
        for result in results:
            known = self.texts.get(result.path, result.before)
            if result.changed and result.after.text != known.text:
                self.texts[result.path] = result.after
                self.programs.change(result.path, result.after)
                is_new = True
        return is_new

    def _digests(self) -> list[str]:
        """Return what each file is judged with, empty where it is judged alone."""
        return [self._digest(path) for path in self.files]

    def _digest(self, path: Path) -> str:
        settings = self.project.settings(path)
        source = self._source(str(path)) if settings.program else None
        return "" if source is None else self.programs.link(source, settings).digest

    def _source(self, name: str) -> Source | None:
        if name in self.texts:
            return self.texts[name]
        try:
            return read_source(read_bytes(name), name)
        except (OSError, SourceError):
            return None


def _joined(first: FixResult, later: FixResult) -> FixResult:
    """Return the result of two rounds over one file."""
    if not first.changed:
        return later
    return later._replace(
        before=first.before,
        applied=(*first.applied, *later.applied),
        errors=tuple(dict.fromkeys((*first.errors, *later.errors))),
        warnings=tuple(dict.fromkeys((*first.warnings, *later.warnings))),
    )
