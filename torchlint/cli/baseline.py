"""The options `--baseline` and `--write-baseline`: hide findings that are already known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import click

from torchlint.cli.run import Run, near, refused
from torchlint.cli.terminal import remark
from torchlint.engine import FileResult
from torchlint.engine.patterns import ignored_here
from torchlint.report.baseline import Baseline, BaselineError, is_baseline
from torchlint.report.entry import Entry
from torchlint.report.identity import Identity, relative_path
from torchlint.report.summary import plural
from torchlint.report.text import printable


def known_findings(run: Run, write: bool) -> KnownFindings | None:
    """Return the baseline of a run, None without one; raise a usage error if it is malformed."""
    file = run.settings.baseline
    if file is None:
        if write:
            raise click.UsageError(
                "`--write-baseline` needs `--baseline FILE`, or `baseline` in the configuration"
            )
        return None
    shown = Path(near(file))
    try:
        if not write:
            return KnownFindings(run, Baseline.read(shown))
        if shown.exists() and not is_baseline(shown):
            raise BaselineError(
                f"{shown} is not a baseline, and `--write-baseline` would write over it"
            )
        return KnownFindings(run, _before(shown))
    except BaselineError as error:
        raise click.ClickException(str(error)) from None


def _before(file: Path) -> Baseline:
    """Return the old baseline that is to be rewritten; empty if it is unreadable."""
    try:
        return Baseline.read(file)
    except BaselineError:
        return Baseline(file, {})


class KnownFindings:
    """The baseline of a run, and the files and rules that the run covers."""

    def __init__(self, run: Run, baseline: Baseline) -> None:
        self._run = run
        self._baseline = baseline
        self._codes: dict[str, frozenset[str]] = {}

    def noting(self, results: Iterable[FileResult]) -> Iterator[FileResult]:
        """Pass results on, and record which files were checked with which rules."""
        for result in results:
            parsed = all(finding.code != "TL001" for finding in result.findings)
            self.saw(result.path, whole=result.is_whole and parsed)
            yield result

    def saw(self, path: str, whole: bool) -> None:
        """Record that a file was checked; with no rules if the check failed."""
        project = self._run.project
        with refused():
            rules, settings = project.selection(Path(path)), project.settings(Path(path))
        codes = frozenset(rules.codes) - ignored_here(path, settings, rules.known, rules.groups)
        self._codes[relative_path(path, self._folder)] = codes if whole else frozenset()

    def unknown(self, entries: Sequence[Entry], hidden: list[str]) -> list[Entry]:
        """Return the findings that are new; add a line about the others to `hidden`."""
        new = self._baseline.unknown(entries)
        if len(new) < len(entries):
            left_out = plural(len(entries) - len(new), "finding")
            hidden.append(f"{left_out} hidden: known from {printable(str(self._baseline.file))}")
        return new

    def knows(self, entry: Entry) -> bool:
        """Return whether the baseline lists a finding like this one."""
        return self._baseline.knows(entry)

    def mention_gone(self, entries: Sequence[Entry]) -> None:
        """Print how many known findings are gone, and with `--verbose` which."""
        gone = self._baseline.gone(entries, self._looked_for)
        if not gone or self._run.quiet:
            return
        count = gone.total()
        verb, them = ("is", "it") if count == 1 else ("are", "them")
        remark(
            f"{plural(count, 'finding')} of {self._baseline.file} {verb} gone:"
            f" `--write-baseline` removes {them}."
        )
        if self._run.settings.verbose:
            for each, times in sorted(gone.items()):
                often = f" ({times} times)" if times > 1 else ""
                remark(f"  {printable(each.path)}: {each.code} {printable(each.statement)}{often}")

    def write(self, entries: Sequence[Entry]) -> int:
        """Write the baseline and return the exit code."""
        file = self._baseline.file
        updated = self._baseline.updated(entries, self._looked_for)
        self._run.write_file(file, updated.to_bytes())
        if not self._run.failed and not self._run.quiet:
            remark(f"Wrote {plural(sum(updated.counts.values()), 'finding')} to {file}.")
        return self._run.code(False)

    @cached_property
    def _folder(self) -> Path:
        return self._baseline.file.absolute().parent

    def _looked_for(self, identity: Identity) -> bool:
        if identity.path in self._codes:
            return identity.code in self._codes[identity.path]
        return identity.path != "-" and not (self._folder / identity.path).exists()
