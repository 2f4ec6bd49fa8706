"""One run over files: its configuration, its input, and what went wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import click

from torchlint.cli.failure import fail, warn
from torchlint.cli.options import overrides
from torchlint.config import ConfigError, Settings
from torchlint.engine import Project, discover
from torchlint.finding import Finding, Safety
from torchlint.registry import Registry, RegistryError, Selection, load_registry
from torchlint.report.card import Card, brief_card, card_of
from torchlint.report.entry import Entry
from torchlint.report.formats import BRIEF, STATISTICS
from torchlint.report.paint import Paint
from torchlint.source import Source

__all__ = ["STDIN", "Run", "refused"]

STDIN: Final = Path("-")
_CACHE: Final = ".torchlint_cache"


@contextmanager
def refused() -> Iterator[None]:
    """Turn a wrong configuration or a broken rule pack into a usage error."""
    try:
        yield
    except (ConfigError, RegistryError) as error:
        raise click.ClickException(str(error)) from None


@dataclass
class Run:
    """The options of a run, and whether it failed so far."""

    options: Mapping[str, Any]
    failed: bool = field(default=False, init=False)

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

    @property
    def quiet(self) -> bool:
        """Whether only findings and errors are printed."""
        return bool(self.options["quiet"])

    def code(self, something: bool) -> int:
        """Give the exit code: 2 where the run failed, else 1 where there is something."""
        if self.failed:
            return 2
        return 1 if something and not self.options["exit_zero"] else 0

    def check_statistics(self) -> None:
        """Refuse statistics in a format that has none."""
        form = self.options["output_format"]
        if self.options["statistics"] and form not in STATISTICS:
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
            found = discover(paths, self.project)
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
        """Where results are kept, None where nowhere."""
        if self.options["no_cache"]:
            return None
        chosen: Path | None = self.options["cache_dir"]
        return chosen or Path(_CACHE)

    def entries(self, source: Source, findings: Sequence[Finding]) -> list[Entry]:
        """Give the findings of a file as reports want them."""
        if not findings:
            return []
        with refused():
            settings = self.project.settings(Path(source.path))
        gate = Safety.UNSAFE if settings.unsafe_fixes else Safety.CLOSE
        return [
            Entry(source.path, source, finding, self._card(finding.code), gate)
            for finding in findings
        ]

    def deliver(self, render: Callable[[Paint], str], paint: Paint) -> None:
        """Print a report, or write it to the file that was named."""
        file: Path | None = self.options["output_file"]
        if file is None:
            click.echo(render(paint), nl=False, color=paint.color)
        else:
            plain = Paint(color=self.options["color"] == "always")
            self.write_file(file, render(plain).encode())

    def write_file(self, file: Path, data: bytes, append: bool = False) -> None:
        """Write to the file that `--output-file` names."""
        try:
            with file.open("ab" if append else "wb") as stream:
                stream.write(data)
        except OSError as error:
            self.report_errors([f"{file}: cannot be written: {error.strerror}"])

    def _card(self, code: str) -> Card:
        if code not in self._cards:
            with refused():
                head = self.registry.find(code)
                if self.options["output_format"] in BRIEF:
                    self._cards[code] = brief_card(head.code, head.name, head.file)
                else:
                    self._cards[code] = card_of(head.load())
        return self._cards[code]

    @cached_property
    def _cards(self) -> dict[str, Card]:
        return {}
