"""Fixing one file: passes to a fixed point, each of them checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from torchlint.config import Settings
from torchlint.edit import Edit, touch
from torchlint.engine.answers import Accept, Answers
from torchlint.engine.checking import check_bytes, check_source
from torchlint.engine.grading import applies
from torchlint.engine.keptimports import KeptImports, tidying
from torchlint.engine.results import FileResult, FixResult
from torchlint.engine.trust import harm
from torchlint.finding import Finding
from torchlint.notebook import read_source
from torchlint.registry import Selection
from torchlint.source import Source, SourceError

__all__ = ["MAX_PASSES", "fix_bytes", "fix_source"]

MAX_PASSES: Final = 10


def fix_source(
    source: Source, rules: Selection, settings: Settings, accept: Accept | None = None
) -> FixResult:
    """Apply every enabled fix, again and again until there is none.

    `accept` is asked once for each finding whose fix is about to be made, with the text it is in.
    """
    return _Fixing(source, rules, settings, accept).result()


def fix_bytes(
    data: bytes, path: str, rules: Selection, settings: Settings, accept: Accept | None = None
) -> FixResult:
    """Fix a file; bytes that are no text are left as they are with one TL001."""
    try:
        source = read_source(data, path)
    except SourceError:
        return unchanged(check_bytes(data, path, rules, settings))
    return fix_source(source, rules, settings, accept)


def unchanged(result: FileResult) -> FixResult:
    """Give the outcome of a check as that of a fix that made nothing."""
    source = result.source or Source(result.path, "")
    return FixResult(source, source, (), result.findings, result.suppressed, result.errors)


class _Fixing:
    """The passes over one file."""

    def __init__(
        self, source: Source, rules: Selection, settings: Settings, accept: Accept | None
    ) -> None:
        self.before = self.source = source
        self.imports = KeptImports(source)
        self.rules = rules
        self.settings = settings
        self.answers = None if accept is None else Answers(accept)
        self.applied: list[Finding] = []
        self.withheld: set[str] = set()
        self.errors: dict[str, None] = {}

    def result(self) -> FixResult:
        """Run the passes; the text of the last one that did no harm stays."""
        for _ in range(MAX_PASSES):
            checked = self._check()
            chosen = self._harmless(checked)
            edits: Sequence[Edit]
            if chosen:
                edits = self.imports.edits(chosen)
                self.applied += chosen
            else:
                edits = tidying(self.before, self.source) if self.applied else ()
            if not edits:
                return self._done(checked)
            self._make(edits)
        checked = self._check()
        endless = self._candidates(checked)
        if endless:
            codes = ", ".join(sorted({finding.code for finding in endless}))
            self._report(
                f"INTERNAL ERROR in {codes}: fixes of {self.source.path} do not settle within "
                f"{MAX_PASSES} passes; what they made so far was kept; please report"
            )
        return self._done(checked)

    def _done(self, checked: FileResult) -> FixResult:
        return FixResult(
            self.before,
            self.source,
            tuple(self.applied),
            checked.findings,
            checked.suppressed,
            tuple(self.errors),
        )

    def _make(self, edits: Sequence[Edit]) -> None:
        """Go on with the text in which edits are made."""
        if self.answers is not None:
            self.answers.move(self.source, edits)
        self.source = self.source.edited(edits)
        self.imports = KeptImports(self.source)

    def _check(self) -> FileResult:
        checked = check_source(self.source, self.rules, self.settings)
        for error in checked.errors:
            self._report(error)
        return checked

    def _report(self, error: str) -> None:
        self.errors[error] = None

    def _candidates(self, checked: FileResult) -> list[Finding]:
        """Give the findings whose fixes are due: in the order of codes, then of places."""
        due = [
            finding
            for finding in checked.findings
            if applies(finding, self.settings) and finding.code not in self.withheld
        ]
        return sorted(due, key=lambda finding: (finding.code, finding.span))

    def _harmless(self, checked: FileResult) -> list[Finding]:
        """Choose the fixes of a pass; a rule whose fix does harm is named and left out."""
        while chosen := self._chosen(checked):
            reason = self._harm(chosen)
            if reason is None:
                return chosen
            self._withhold(chosen)
        return []

    def _chosen(self, checked: FileResult) -> list[Finding]:
        """Choose the fixes of a pass: those whose turn it is, as long as there are any."""
        for due in self._turns(self._candidates(checked)):
            if chosen := self._apart(due):
                return chosen
        return []

    def _turns(self, due: list[Finding]) -> Iterator[list[Finding]]:
        """Yield the findings of rules that wait for no other rule here, then those of the rest."""
        codes = {finding.code for finding in due}
        after = {head.code: head.load().after for head in self.rules if head.code in codes}
        while codes:
            ready = {code for code in codes if codes.isdisjoint(after[code])} or codes
            yield [finding for finding in due if finding.code in ready]
            codes = codes - ready

    def _apart(self, due: list[Finding]) -> list[Finding]:
        """Choose fixes that do not touch; the others wait for the next pass."""
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

    def _harm(self, chosen: Sequence[Finding]) -> str | None:
        if not chosen:
            return None
        edits = self.imports.edits(chosen)
        try:
            after = self.source.edited(edits)
        except ValueError:
            return "has edits that clash"
        if after.text == self.source.text:
            return "changes nothing"
        return harm(self.source, after, edits)

    def _withhold(self, chosen: Sequence[Finding]) -> None:
        """Find the first fix with which the text comes to harm, and withhold its rule."""
        good, bad = 0, len(chosen)
        while bad - good > 1:
            middle = (good + bad) // 2
            if self._harm(chosen[:middle]) is None:
                good = middle
            else:
                bad = middle
        culprit = chosen[bad - 1]
        place = self.source.part(culprit.span).place
        self.withheld.add(culprit.code)
        self._report(
            f"INTERNAL ERROR in {culprit.code}: its fix of {self.source.path}:{place} "
            f"{self._harm(chosen[:bad])}; it was not made; please report"
        )
