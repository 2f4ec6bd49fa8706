"""One run over files: its configuration, its input, and what went wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from torchlint.cli.failure import fail, warn
from torchlint.cli.options import overrides
from torchlint.cli.printed import CACHE
from torchlint.cli.terminal import paint_for, with_progress
from torchlint.config import ConfigError, Settings
from torchlint.engine import Discovery, Project, discover
from torchlint.registry import Registry, RegistryError, Selection, load_registry
from torchlint.report.formats import BRIEF, STATISTICS, Telling, get_ready, render
from torchlint.report.paint import Paint

if TYPE_CHECKING:
    from torchlint.cli.printed import Command, Printed
    from torchlint.cli.recording import Recording
    from torchlint.engine import FileResult
    from torchlint.engine.standby import Standby
    from torchlint.finding import Finding
    from torchlint.report.card import Card
    from torchlint.report.entry import Entry
    from torchlint.report.report import Report
    from torchlint.source import Source

__all__ = ["STDIN", "Run", "near", "refused"]

STDIN: Final = Path("-")


@contextmanager
def refused() -> Iterator[None]:
    """Turn a wrong configuration or a broken rule pack into a usage error."""
    try:
        yield
    except (ConfigError, RegistryError) as error:
        raise click.ClickException(str(error)) from None


def near(path: Path) -> str:
    """Give a path as it is seen from the current folder, where it lies below that."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


class Run:
    """The options of a run, and whether it failed so far."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.failed = False
        self.found = Discovery(())

    @cached_property
    def registry(self) -> Registry:
        """The rules there are."""
        with refused():
            registry = load_registry()
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
        """The settings that hold for the run as a whole: those of the current folder."""
        with refused():
            return self.project.settings(Path())

    @property
    def quiet(self) -> bool:
        """Whether only findings and errors are printed."""
        return self.settings.quiet

    def code(self, something: bool) -> int:
        """Give the exit code: 2 where the run failed, else 1 where there is something."""
        if self.failed:
            return 2
        return 1 if something and not self.settings.exit_zero else 0

    def check_statistics(self) -> None:
        """Refuse statistics in a format that has none."""
        form = self.settings.output_format
        if self.settings.statistics and form not in STATISTICS:
            known = ", ".join(sorted(STATISTICS))
            raise click.UsageError(f"`--statistics` has no form in `{form}`: take {known}")

    def report_errors(self, errors: Sequence[str]) -> None:
        """Print what went wrong; the run goes on and fails in the end."""
        for error in errors:
            fail(error)
            self.failed = True

    def files(self, paths: Sequence[Path]) -> tuple[Path, ...]:
        """Find the files of a run; a wrong configuration is refused even where there are none."""
        paths = paths or (Path(),)
        with refused():
            for path in paths:
                self.project.selection(path)
            self.found = discover(paths, self.project)
        found = self.found
        self.report_errors(tuple(dict.fromkeys(found.errors)))
        if not found.files and not found.errors and not self.quiet:
            warn("no Python files found: nothing was looked at")
        return found.files

    def reads_stdin(self, paths: Sequence[Path]) -> bool:
        """Whether the run is about standard input."""
        if STDIN not in paths:
            if self.options["stdin_filename"] is not None:
                raise click.UsageError("`--stdin-filename` needs `-`, the path of standard input")
            return False
        if len(paths) > 1:
            raise click.UsageError("`-` (standard input) cannot stand beside other paths")
        return True

    def stdin(self) -> tuple[bytes, str, Selection, Settings]:
        """Read standard input; give its bytes and path, and the rules and settings for it.

        A file that is excluded by force has no rules.
        """
        path = self.options["stdin_filename"] or str(STDIN)
        with refused():
            rules = self.project.selection(Path(path))
            settings = self.project.settings(Path(path))
            if settings.force_exclude and Path(path).is_file():
                found = discover((Path(path),), self.project)
                rules = rules if found.files else rules.without(rules.codes)
        return sys.stdin.buffer.read(), path, rules, settings

    @property
    def cache_dir(self) -> Path | None:
        """Where results are kept, None where nowhere: a link may lead out of somebody's tree."""
        settings = self.settings
        if settings.no_cache or settings.cache_dir is not None:
            return None if settings.no_cache else settings.cache_dir
        usual = Path(CACHE)
        return None if usual.is_symlink() else usual

    def results(
        self, files: Sequence[Path], standby: Standby | None = None
    ) -> Iterator[FileResult]:
        """Check files; on a terminal long work shows how far it is."""
        if not files:
            return iter(())
        from torchlint.engine import check_paths

        with refused():
            results = check_paths(
                files,
                self.project,
                jobs=self.settings.jobs,
                file_timeout=self.settings.file_timeout,
                cache_dir=self.cache_dir,
                standby=standby,
            )
        return with_progress(results, len(files), wanted=not self.quiet)

    @property
    def paint(self) -> Paint:
        """What standard output can show."""
        return paint_for(self.settings.color, sys.stdout)

    def entries(self, source: Source, findings: Sequence[Finding]) -> list[Entry]:
        """Give the findings of a file as reports want them."""
        if not findings:
            return []
        with refused():
            settings = self.project.settings(Path(source.path))
        from torchlint.finding import Safety
        from torchlint.report.entry import Entry

        gate = Safety.UNSAFE if settings.unsafe_fixes else Safety.CLOSE
        return [
            Entry(source.path, source, finding, self._card(finding.code), gate)
            for finding in findings
        ]

    def get_ready_to_report(self) -> None:
        """Import now, while others work, what a report of findings takes."""
        import torchlint.report.block
        import torchlint.report.card
        import torchlint.report.entry  # noqa: F401

        get_ready(self.settings.output_format, statistics=self.settings.statistics)

    def telling(self) -> Telling | None:
        """Begin a report that is made file by file, None where the format is none for that."""
        settings = self.settings
        form, statistics = settings.output_format, settings.statistics
        alone = settings.output_file is None and not sys.stdout.isatty()
        pour = self.show if alone else None
        return Telling.in_format(form, self._report_paint, pour, statistics=statistics)

    def render(self, report: Report) -> str:
        """Give the text of a report."""
        settings = self.settings
        form, statistics = settings.output_format, settings.statistics
        return render(report, self._report_paint, form, statistics=statistics)

    def deliver(self, text: str) -> None:
        """Print the text of a report, or write it to the file that was named."""
        file = self.settings.output_file
        if file is None:
            self.show(text)
        else:
            self.write_file(file, text.encode())

    @property
    def _report_paint(self) -> Paint:
        """What standard output, or the file that was named, can show."""
        settings = self.settings
        if settings.output_file is not None:
            return Paint(color=settings.color == "always")
        return self.paint

    def show(self, text: str) -> None:
        """Print the text of a report."""
        click.echo(text, nl=False, color=self.paint.color)

    def printed(self, command: Command | None) -> Printed | None:
        """Give what the command printed before, where the configuration says what keeps that."""
        if command is None or self.cache_dir is None or str(self.cache_dir) == command.folder:
            return None
        return command.printed(str(self.cache_dir))

    def recording(self, command: Command | None, paths: Sequence[Path]) -> Recording | None:
        """Begin to keep what is printed of the files found, None where this run does more."""
        settings = self.settings
        more = (settings.output_file, settings.verbose, self.failed)
        if command is None or self.cache_dir is None or not self.found.files or any(more):
            return None
        from torchlint.cli.recording import Recording, sight_of

        config_file = self.options["config_file"]
        sight = sight_of(paths, self.found, self.registry, config_file, self.cache_dir)
        return Recording(command, self.cache_dir, sight)

    def write_file(self, file: Path, data: bytes, append: bool = False) -> None:
        """Write to the file that `--output-file` names."""
        try:
            with file.open("ab" if append else "wb") as stream:
                stream.write(data)
        except OSError as error:
            self.report_errors([f"{near(file)}: cannot be written: {error.strerror}"])

    def _card(self, code: str) -> Card:
        if code not in self._cards:
            from torchlint.report.card import brief_card, card_of

            with refused():
                head = self.registry.find(code)
                if self.settings.output_format in BRIEF:
                    self._cards[code] = brief_card(head.code, head.name, head.file)
                else:
                    self._cards[code] = card_of(head.load())
        return self._cards[code]

    @cached_property
    def _cards(self) -> dict[str, Card]:
        return {}
