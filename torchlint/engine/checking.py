"""Checking one file: which rules matter, what they find, what comments silence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from torchlint.config import Settings
from torchlint.engine.parsing import UnparsableError, parse_script, syntax_tree
from torchlint.engine.patterns import ignored_here
from torchlint.engine.relevance import UNUSED, relevant
from torchlint.engine.results import FileResult
from torchlint.engine.timelimit import Overdue
from torchlint.mention import mentions_suppression
from torchlint.notebook import read_source
from torchlint.registry import RegistryError, RuleHead, Selection
from torchlint.source import Source, SourceError

if TYPE_CHECKING:
    import ast

    from torchlint.finding import Finding
    from torchlint.semantic.script import Script
    from torchlint.suppress import Suppressions

__all__ = ["check_bytes", "check_source"]

UNPARSABLE: Final = "TL001"
OWN: Final = frozenset({UNPARSABLE, UNUSED})
"""The codes of the two rules that the engine itself speaks for."""
FEW: Final = 3
"""How many rules a line names."""


def check_source(
    source: Source,
    rules: Selection,
    settings: Settings,
    asked: Iterable[RuleHead] | None = None,
) -> FileResult:
    """Give what the selected rules find in `source`; `asked` are those that are relevant to it."""
    kept = rules.without(ignored_here(source.path, settings, rules.known))
    if asked is None or kept is not rules:
        asked = relevant(source.text, kept)
    heads = list(asked)
    if not heads:
        return FileResult(source.path, source)
    try:
        return _Check(source, kept, settings).result(heads, syntax_tree(source))
    except UnparsableError as problem:
        return _unparsable(source, kept, problem)


def check_bytes(data: bytes, path: str, rules: Selection, settings: Settings) -> FileResult:
    """Give what the selected rules find in a file; bytes that are no text are one TL001."""
    try:
        source = read_source(data, path)
    except SourceError as error:
        shown = Source(path, data.decode("latin-1"), "latin-1")
        rules = rules.without(ignored_here(path, settings, rules.known))
        return _unparsable(shown, rules, UnparsableError(error.message, error.position))
    return check_source(source, rules, settings)


def _unparsable(source: Source, rules: Selection, problem: UnparsableError) -> FileResult:
    """Give the one finding of a text that does not parse."""
    if UNPARSABLE not in rules.codes:
        return FileResult(source.path, source)
    from torchlint.edit import Span
    from torchlint.finding import Finding
    from torchlint.suppress import silences_unparsed

    if silences_unparsed(source.text, UNPARSABLE, rules.known):
        return FileResult(source.path, source, suppressed=1)
    start = source.offset(problem.position)
    span = Span(start, min(start + 1, len(source.text)))
    finding = Finding(UNPARSABLE, span, f"this file cannot be parsed: {problem.reason}")
    return FileResult(source.path, source, (finding,))


class _Check:
    """One check of one text that CPython can parse."""

    def __init__(self, source: Source, rules: Selection, settings: Settings) -> None:
        self.source = source
        self.rules = rules
        self.settings = settings
        self.errors: list[str] = []
        self.failed: set[str] = set()
        self.too_deep: list[str] = []

    def result(self, heads: list[RuleHead], tree: ast.Module) -> FileResult:
        """Run the rules and leave out what comments silence; raises `UnparsableError`."""
        found = self._findings([head for head in heads if head.code not in OWN], tree)
        kept, suppressed = self._unsilenced(found)
        if kept:
            from torchlint.engine.grading import Grades

            grades = Grades.of(self.settings, self.rules.known)
            kept = [self._with_fix_that_fits(grades.graded(finding)) for finding in kept]
            kept.sort(key=lambda finding: (finding.span, finding.code, finding.message))
        return FileResult(
            self.source.path, self.source, tuple(kept), suppressed, tuple(self.errors)
        )

    def _findings(self, heads: list[RuleHead], tree: ast.Module) -> list[Finding]:
        """Give what the rules find, each once; raises `UnparsableError`."""
        if not heads:
            return []
        from torchlint.semantic.script import forget
        from torchlint.semantic.target import Target

        target = Target(self.settings.target_torch, self.settings.target_device)
        try:
            script = parse_script(self.source, target, tree)
        except UnparsableError:
            raise
        except Exception as error:
            self.failed.update(head.code for head in heads)
            self.errors.append(self._internal("the analysis", error, "no rule could be asked"))
            return []
        found = list(
            dict.fromkeys(finding for head in heads for finding in self._asked(head, script))
        )
        forget(script)
        if self.too_deep:
            self.errors.append(
                f"{self.source.path} is nested too deeply for {_some(self.too_deep)}: "
                "the other rules went on"
            )
        return found

    def _asked(self, head: RuleHead, script: Script) -> list[Finding]:
        """Ask one rule; one that fails is named and has found nothing."""
        options = self.settings.rules.get(head.name) or self.settings.rules.get(head.code)
        try:
            found = list(head.load()(options).check(script))
            for finding in found:
                self._refuse_wrong(finding, head)
        except Overdue as overdue:
            overdue.rule = head.code
            raise
        except RecursionError:
            self.too_deep.append(head.code)
        except RegistryError as error:
            self.errors.append(str(error))
        except Exception as error:
            self.errors.append(self._internal(head.code, error, "the other rules went on"))
        else:
            return found
        self.failed.add(head.code)
        return []

    def _refuse_wrong(self, finding: Finding, head: RuleHead) -> None:
        if finding.code != head.code:
            raise ValueError(f"a finding has the code {finding.code}")
        edits = finding.fix.edits if finding.fix is not None else ()
        if max([finding.span.end, *(edit.span.end for edit in edits)]) > len(self.source.text):
            raise ValueError("a place behind the end of the file")

    def _internal(self, who: str, error: Exception, rest: str) -> str:
        from traceback import extract_tb

        frames = extract_tb(error.__traceback__)
        place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        said = " ".join(str(error).split())
        return (
            f"INTERNAL ERROR in {who}: it failed on {self.source.path} with "
            f"{type(error).__name__}: {said}{place}; {rest}; please report"
        )

    def _unsilenced(self, found: list[Finding]) -> tuple[list[Finding], int]:
        """Give the findings that no comment silences, those about comments too, and a count."""
        judging = UNUSED in self.rules.codes
        if self.settings.ignore_suppressions or not (found or judging):
            return found, 0
        if not mentions_suppression(self.source.text):
            return found, 0
        from torchlint.suppress import find_suppressions

        marks = find_suppressions(self.source, self.rules.known)
        kept = [finding for finding in found if not marks.silence(finding)]
        if judging:
            about = list(self._about_comments(marks))
            found = found + about
            kept += [finding for finding in about if not marks.silence(finding)]
        return kept, len(found) - len(kept)

    def _with_fix_that_fits(self, finding: Finding) -> Finding:
        """Give a finding without its fix where the file cannot take that."""
        if finding.fix is None or self.source.takes(finding.fix.edits):
            return finding
        return replace(finding, fix=None)

    def _about_comments(self, marks: Suppressions) -> Iterator[Finding]:
        """Yield a finding for each suppression that silenced nothing."""
        from torchlint.finding import Finding, Fix

        ran = frozenset(self.rules.codes) - self.failed
        for unused in marks.unused(ran, self.rules.complete and not self.failed):
            where = "in this file" if unused.mark.kind == "ignore-file" else "here"
            message = f"{unused.what} suppresses nothing {where}: remove it"
            fix = Fix.exact("Remove the unused suppression", (unused.edit,))
            yield Finding(UNUSED, unused.span, message, fix)


def _some(codes: list[str]) -> str:
    """Name a few codes, and how many more there are."""
    more = f" and {len(codes) - FEW} more" if len(codes) > FEW else ""
    return ", ".join(codes[:FEW]) + more
