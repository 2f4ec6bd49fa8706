"""One run over files: its configuration, its input, and its errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from torchlint.caching import cached_method
from torchlint.cli.options import overrides
from torchlint.cli.recording import Recording, inputs_of
from torchlint.cli.replay import CACHE, Command, Output
from torchlint.cli.terminal import fail, paint_for, remark, warn, with_progress
from torchlint.config import ConfigError, Settings
from torchlint.config.settings import DEFAULT_EXCLUDE
from torchlint.engine import Discovery, FileResult, FixResult, Project, check_paths, discover
from torchlint.engine.programs import Programs
from torchlint.finding import Finding, Safety
from torchlint.registry import Registry, RegistryError, Selection, load_registry
from torchlint.report.formats import BRIEF, FOLDING, STATISTICS, ReportWriter, render
from torchlint.report.paint import Paint
from torchlint.report.report import Report, Unfinished, in_order_of
from torchlint.report.text import printable
from torchlint.source import Source

if TYPE_CHECKING:
    from torchlint.audit import Audit
    from torchlint.report.card import Card
    from torchlint.report.entry import Entry

STDIN: Final = Path("-")


@contextmanager
def refused() -> Iterator[None]:
    """Turn configuration and registry errors in the body into errors of the command line."""
    try:
        yield
    except (ConfigError, RegistryError) as error:
        raise click.ClickException(str(error)) from None


def known_rules() -> Registry:
    """Load the registry of rules, with a warning for each pack in a deprecated format."""
    with refused():
        registry = load_registry()
    for each in registry.deprecations:
        warn(each)
    return registry


def near(path: Path) -> str:
    """Return a path relative to the current folder if it is below that."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


class Run:
    """The options of a run, its settings, and whether it has failed."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.failed = False
        self.unfinished: list[Unfinished] = []
        """The warnings about files that could not be checked or fixed completely."""
        self.found = Discovery(())

    @cached_property
    def registry(self) -> Registry:
        """The registry of rules."""
        registry = known_rules()
        self.report_errors(registry.errors)
        return registry

    @cached_property
    def project(self) -> Project:
        """The settings of every path."""
        with refused():
            return Project(
                self.registry,
                overrides(self.options),
                isolated=self.options["isolated"],
                config_file=self.options["config_file"],
            )

    @cached_property
    def settings(self) -> Settings:
        """The settings of the run as a whole: those of the current folder."""
        with refused():
            return self.project.settings(Path())

    @property
    def quiet(self) -> bool:
        """Whether only findings and errors are printed."""
        return self.settings.quiet

    def code(self, something: bool) -> int:
        """Return the exit code: 2 if the run failed, else 1 if there is something to report."""
        if self.failed:
            return 2
        return 1 if something and not self.settings.exit_zero else 0

    def check_statistics(self) -> None:
        """Raise a usage error for `--statistics` in a format without them."""
        form = self.settings.output_format
        if self.settings.statistics and form not in STATISTICS:
            known = ", ".join(sorted(STATISTICS))
            raise click.UsageError(f"`--statistics` is not supported by `{form}`, only by {known}")

    def report_errors(self, errors: Sequence[str]) -> None:
        """Print errors; the run goes on and exits with 2."""
        for error in errors:
            fail(error)
            self.failed = True

    def report_problems(self, result: FileResult | FixResult | Audit) -> None:
        """Print the errors and warnings about a file; warnings do not change the exit code."""
        self.report_errors(result.errors)
        for said in result.warnings:
            warn(said)
            self.unfinished.append(Unfinished(result.path, said))

    def files(self, paths: Sequence[Path]) -> tuple[Path, ...]:
        """Find the files of a run; a wrong configuration is an error even without files."""
        paths = paths or (Path(),)
        with refused():
            for path in paths:
                self.project.selection(path)
            self.found = discover(paths, self.project.settings_at)
        found = self.found
        self.report_errors(tuple(dict.fromkeys(found.errors)))
        if not found.files and not found.errors and not self.quiet:
            warn("no Python files found")
        return found.files

    def show_files(self, paths: Sequence[Path]) -> int:
        """Print the files that a run would check, and return the exit code."""
        for file in self.files(paths):
            click.echo(printable(str(file)))
        return self.code(False)

    def reads_stdin(self, paths: Sequence[Path]) -> bool:
        """Return whether the run reads standard input."""
        if STDIN not in paths:
            if self.options["stdin_filename"] is not None:
                raise click.UsageError("`--stdin-filename` needs `-`, the path of standard input")
            return False
        if len(paths) > 1:
            raise click.UsageError("`-` (standard input) cannot be combined with other paths")
        return True

    def warn_left_out(self) -> None:
        """Print what the search for other modules left out, if the user wants to know."""
        if self.settings.verbose:
            for index in self.programs.indexes:
                if index.left_out:
                    remark(index.left_out)

    def stdin(self) -> tuple[bytes, str, Selection, Settings]:
        """Return standard input with its path, and the rules and settings for it.

        If the path is excluded and `force-exclude` is set, no rule is selected.
        """
        path = self.options["stdin_filename"] or str(STDIN)
        with refused():
            rules = self.project.selection(Path(path))
            settings = self.project.settings(Path(path))
            if settings.force_exclude and Path(path).is_file():
                found = discover((Path(path),), self.project.settings_at)
                rules = rules if found.files else rules.without(rules.codes)
        return sys.stdin.buffer.read(), path, rules, settings

    @property
    def cache_dir(self) -> Path | None:
        """The cache folder, None without a cache; the default one must not be a link."""
        settings = self.settings
        if settings.no_cache or settings.cache_dir is not None:
            return None if settings.no_cache else settings.cache_dir
        usual = Path(CACHE)
        return None if usual.is_symlink() else usual

    @cached_property
    def programs(self) -> Programs:
        """The indexes of the projects of the run."""
        return Programs(self.cache_dir, self.project.settings_at)

    def results(self, files: Sequence[Path]) -> Iterator[FileResult]:
        """Check files; show progress on a terminal if it takes long."""
        if not files:
            return iter(())

        with refused():
            results = check_paths(
                files,
                self.project,
                jobs=self.settings.jobs,
                file_timeout=self.settings.file_timeout,
                cache_dir=self.cache_dir,
                programs=self.programs,
            )
        return with_progress(results, len(files), wanted=not self.quiet)

    @property
    def paint(self) -> Paint:
        """The paint for standard output."""
        return paint_for(self.settings.color, sys.stdout)

    def entries(self, source: Source, findings: Sequence[Finding]) -> list[Entry]:
        """Return the findings of a file as entries of a report."""
        if not findings:
            return []
        with refused():
            settings = self.project.settings(Path(source.path))
        from torchlint.report.entry import Entry

        gate = Safety.UNSAFE if settings.unsafe_fixes else Safety.CLOSE
        severities, folds = self._severities(settings), self._folds(settings)
        return [
            Entry(
                source.path,
                source,
                finding,
                self._card(finding.code),
                gate,
                severities.get(finding.code),
                self.settings.fail_on,
                folds,
            )
            for finding in findings
        ]

    def _folds(self, settings: Settings) -> bool:
        """Whether findings of low impact are only counted if there are others.

        They are printed if the user chose the rules.
        """
        run = self.settings
        is_chosen = settings.select is not None or bool(settings.extend_select)
        return run.output_format in FOLDING and not (run.show_low or is_chosen)

    def _severities(self, settings: Settings) -> Mapping[str, str]:
        """Return the severities that settings choose, which most files of a run share."""
        known = self._chosen.get(id(settings))
        if known is None:
            known = self._chosen[id(settings)] = self.registry.severities(settings)
        return known

    @cached_property
    def _chosen(self) -> dict[int, Mapping[str, str]]:
        return {}

    def report_writer(self) -> ReportWriter | None:
        """Return a writer that reports file by file, None if the format cannot."""
        settings = self.settings
        if settings.sort != "file":
            return None
        form, statistics = settings.output_format, settings.statistics
        alone = settings.output_file is None and not sys.stdout.isatty()
        pour = self.show if alone else None
        return ReportWriter.in_format(form, self._report_paint, pour, statistics=statistics)

    def render(self, report: Report) -> str:
        """Return the text of a report."""
        settings = self.settings
        form, statistics = settings.output_format, settings.statistics
        if settings.sort != "file":
            report = report._replace(entries=tuple(in_order_of(settings.sort, report.entries)))
        return render(report, self._report_paint, form, statistics=statistics)

    def deliver(self, text: str) -> None:
        """Print a report, or write it to the output file."""
        file = self.settings.output_file
        if file is None:
            self.show(text)
        else:
            self.write_file(file, text.encode())

    @property
    def _report_paint(self) -> Paint:
        """The paint for the report: for standard output or for the output file."""
        settings = self.settings
        if settings.output_file is not None:
            return Paint(color=settings.color == "always")
        return self.paint

    def show(self, text: str) -> None:
        """Print the text of a report."""
        click.echo(text, nl=False, color=self.paint.color)

    def replay(self, command: Command | None) -> Output | None:
        """Return the recorded output of a command from a configured cache folder."""
        if command is None or self.cache_dir is None or str(self.cache_dir) == command.folder:
            return None
        return command.replay(str(self.cache_dir))

    def recording(self, command: Command | None, paths: Sequence[Path]) -> Recording | None:
        """Return a recording of this run, None if its output must not be replayed."""
        settings = self.settings
        more = (settings.output_file, settings.verbose, self.failed, self.registry.deprecations)
        if command is None or self.cache_dir is None or not self.found.files or any(more):
            return None

        linkable = list(self._linkable())
        bases = self._configurations
        inputs = inputs_of(paths, self.found, self.registry, bases, self.cache_dir, linkable)
        leaves_out = settings.exclude != DEFAULT_EXCLUDE or settings.extend_exclude
        searched = () if leaves_out else self.found.folders
        return Recording(command, self.cache_dir, inputs, searched, self.project.settings_at)

    def _linkable(self) -> Iterator[str]:
        """Yield all files and folders of the projects whose definitions may be linked."""
        with refused():
            asking = [file for file in self.found.files if self.project.settings(file).program]
        for index in dict.fromkeys(self.programs.index(str(file)) for file in asking):
            yield from (*index.folders, *index.files)

    @property
    def _configurations(self) -> tuple[Path, ...]:
        """The configuration files that are not found by their names: one given, and bases."""
        given = self.options["config_file"]
        bases = (file for settings in self.project.known() for file in settings.bases)
        return (*([] if given is None else [given]), *dict.fromkeys(bases))

    def write_file(self, file: Path, data: bytes, append: bool = False) -> None:
        """Write to the output file."""
        try:
            with file.open("ab" if append else "wb") as stream:
                stream.write(data)
        except OSError as error:
            self.report_errors([f"{near(file)}: cannot be written: {error.strerror}"])

    @cached_method
    def _card(self, code: str) -> Card:
        from torchlint.report.card import brief_card, card_of

        with refused():
            head = self.registry.find(code)
            if self.settings.output_format in BRIEF:
                return brief_card(head, self.settings.target_device)
            return card_of(head.load())
