"""Fixing one file: repeat passes until no fix is left, and verify the result of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from torchlint.config import Settings
from torchlint.edit import Edit, touch
from torchlint.engine.answers import Accept, Answers
from torchlint.engine.checking import check_bytes, check_source
from torchlint.engine.fixproblem import fix_problem
from torchlint.engine.grading import applies
from torchlint.engine.keptimports import KeptImports, import_cleanup
from torchlint.engine.programs import Link, alone
from torchlint.engine.relevance import UNPARSABLE
from torchlint.engine.results import FileResult, FixResult
from torchlint.engine.usedelsewhere import UsedElsewhere, used_nowhere
from torchlint.finding import Finding
from torchlint.notebook import read_source
from torchlint.registry import Selection
from torchlint.source import Source, SourceError

MAX_PASSES: Final = 10


def fix_source(
    source: Source,
    rules: Selection,
    settings: Settings,
    accept: Accept | None = None,
    used_elsewhere: UsedElsewhere = used_nowhere,
    link: Link = alone,
) -> FixResult:
    """Apply every enabled fix, pass after pass, until none is left.

    `accept` is called once for each finding whose fix is about to be made, with the current text.
    `used_elsewhere` returns which names of this file other files use, `link` what the text of a
    pass is judged with.
    """
    answers = None if accept is None else Answers(accept)
    return _Fixing(source, rules, settings, answers, used_elsewhere, link).result()


def fix_bytes(
    data: bytes,
    path: str,
    rules: Selection,
    settings: Settings,
    accept: Accept | None = None,
    used_elsewhere: UsedElsewhere = used_nowhere,
    link: Link = alone,
) -> FixResult:
    """Fix a file; undecodable bytes are kept, with one TL001."""
    try:
        source = read_source(data, path)
    except SourceError:
        return unchanged(check_bytes(data, path, rules, settings))
    return fix_source(source, rules, settings, accept, used_elsewhere, link)


def unchanged(result: FileResult) -> FixResult:
    """Return the result of a check as the result of a fix that changed nothing."""
    source = result.source or Source(result.path, "")
    return FixResult.of(result, source, source)


@dataclass
class _Fixing:
    """The passes over one file."""

    before: Source
    rules: Selection
    settings: Settings
    answers: Answers | None
    used_elsewhere: UsedElsewhere
    link: Link
    applied: list[Finding] = field(default_factory=list)
    withheld: set[str] = field(default_factory=set)
    errors: dict[str, None] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.source = self.before
        self.readable = self.before
        """The first text that parses, where there is one."""
        self.imports = KeptImports(self.before)

    def result(self) -> FixResult:
        """Run the passes and return the text after the last valid one."""
        for _ in range(MAX_PASSES):
            checked = self._check()
            chosen = self._valid(checked)
            edits: Sequence[Edit]
            if chosen:
                edits = self.imports.edits(chosen)
                self.applied += chosen
            else:
                edits = (
                    import_cleanup(self.readable, self.source, self.used_elsewhere)
                    if self.applied
                    else ()
                )
            if not edits:
                return self._done(checked)
            self._make(edits)
            if any(finding.code == UNPARSABLE for finding in chosen):
                self.readable = self.source
        checked = self._check()
        endless = self._candidates(checked)
        if endless:
            codes = ", ".join(sorted({finding.code for finding in endless}))
            self._warn(
                f"internal error in {codes} on {self.source.path} (please report): fixes did not "
                f"settle within {MAX_PASSES} passes; their changes so far were kept"
            )
        return self._done(checked)

    def _done(self, checked: FileResult) -> FixResult:
        done = checked._replace(errors=tuple(self.errors), warnings=tuple(self.warnings))
        return FixResult.of(done, self.before, self.source, tuple(self.applied))

    def _make(self, edits: Sequence[Edit]) -> None:
        """Apply edits to the current text."""
        if self.answers is not None:
            self.answers.move(self.source, edits)
        self.source = self.source.edited(edits)
        self.imports = KeptImports(self.source)

    def _check(self) -> FileResult:
        linked = self.link(self.source, self.settings)
        checked = check_source(
            self.source, self.rules, self.settings, None, self.used_elsewhere, linked
        )
        self.errors.update(dict.fromkeys(checked.errors))
        self.warnings.update(dict.fromkeys(checked.warnings))
        return checked

    def _warn(self, said: str) -> None:
        self.warnings[said] = None

    def _candidates(self, checked: FileResult) -> list[Finding]:
        """Return the findings with enabled fixes, ordered by code and place."""
        due = [
            finding
            for finding in checked.findings
            if applies(finding, self.settings) and finding.code not in self.withheld
        ]
        return sorted(due, key=lambda finding: (finding.code, finding.span))

    def _valid(self, checked: FileResult) -> list[Finding]:
        """Choose the fixes of a pass; withhold rules whose fix breaks the text."""
        while chosen := self._chosen(checked):
            reason = self._problem(chosen)
            if reason is None:
                return chosen
            self._withhold(chosen)
        return []

    def _chosen(self, checked: FileResult) -> list[Finding]:
        """Choose the fixes of a pass: those of the first turn that has any."""
        for due in self._turns(self._candidates(checked)):
            if chosen := self._apart(due):
                return chosen
        return []

    def _turns(self, due: list[Finding]) -> Iterator[list[Finding]]:
        """Yield the findings in turns: first those of rules that wait for no other rule here."""
        codes = {finding.code for finding in due}
        after = {head.code: head.load().after for head in self.rules if head.code in codes}
        while codes:
            ready = {code for code in codes if codes.isdisjoint(after[code])} or codes
            yield [finding for finding in due if finding.code in ready]
            codes = codes - ready

    def _apart(self, due: list[Finding]) -> list[Finding]:
        """Choose fixes that do not touch each other; the rest waits for the next pass."""
        chosen: list[Finding] = []
        made: list[Edit] = []
        for finding in due:
            edits = [edit for edit in self.imports.edits([finding]) if edit not in made]
            if any(touch(edit, other) for edit in edits for other in made):
                continue
            if self.answers is None or self.answers.allows(self.source, finding):
                chosen.append(finding)
                made += edits
        return chosen

    def _problem(self, chosen: Sequence[Finding]) -> str | None:
        if not chosen:
            return None
        edits = self.imports.edits(chosen)
        try:
            after = self.source.edited(edits)
        except ValueError:
            return "has edits that clash"
        if after.text == self.source.text:
            return "changes nothing"
        return fix_problem(self.source, after, edits)

    def _withhold(self, chosen: Sequence[Finding]) -> None:
        """Find by bisection the first fix that breaks the text, and withhold its rule."""
        good, bad = 0, len(chosen)
        while bad - good > 1:
            middle = (good + bad) // 2
            if self._problem(chosen[:middle]) is None:
                good = middle
            else:
                bad = middle
        culprit = chosen[bad - 1]
        place = self.source.part(culprit.span).place
        self.withheld.add(culprit.code)
        self._warn(
            f"internal error in {culprit.code} on {self.source.path}:{place} (please report): "
            f"its fix {self._problem(chosen[:bad])}; it was not applied"
        )
