"""Checking one file: which rules matter, what they find, what comments silence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from torchlint import suppress
from torchlint.config import Settings
from torchlint.edit import Span
from torchlint.engine.grading import Grades
from torchlint.engine.parsing import UnparsableError, parse_script, syntax_tree
from torchlint.engine.patterns import ignored_here
from torchlint.engine.results import FileResult
from torchlint.finding import Finding, Fix
from torchlint.notebook import read_source
from torchlint.registry import RegistryError, RuleHead, Selection
from torchlint.source import Source, SourceError

if TYPE_CHECKING:
    import ast

    from torchlint.semantic.script import Script

__all__ = ["check_bytes", "check_source", "matters"]

UNPARSABLE: Final = "TL001"
UNUSED: Final = "TL002"
OWN: Final = frozenset({UNPARSABLE, UNUSED})
"""The codes of the two rules that the engine itself speaks for."""


def check_source(source: Source, rules: Selection, settings: Settings) -> FileResult:
    """Give what the selected rules find in `source`."""
    rules = rules.without(ignored_here(source.path, settings, rules.known))
    if not matters(source.text, rules):
        return FileResult(source.path, source)
    try:
        return _Check(source, rules, settings).result(syntax_tree(source))
    except UnparsableError as problem:
        return _unparsable(source, rules, problem)


def check_bytes(data: bytes, path: str, rules: Selection, settings: Settings) -> FileResult:
    """Give what the selected rules find in a file; bytes that are no text are one TL001."""
    try:
        source = read_source(data, path)
    except SourceError as error:
        shown = Source(path, data.decode("latin-1"), "latin-1")
        rules = rules.without(ignored_here(path, settings, rules.known))
        return _unparsable(shown, rules, UnparsableError(error.message, error.position))
    return check_source(source, rules, settings)


def matters(text: str, rules: Selection) -> bool:
    """Whether any rule may have something to say of a text: decided by words alone."""
    words = _Words(text)
    return any(_needed(head, words, rules) for head in rules)


class _Words:
    """Which words a text holds, each looked for once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._held: dict[str, bool] = {}

    def any(self, words: tuple[str, ...]) -> bool:
        """Whether the text holds one of some words."""
        held = self._held
        for word in words:
            found = held.get(word)
            if found is None:
                found = held[word] = word in self.text
            if found:
                return True
        return False


def _needed(head: RuleHead, words: _Words, rules: Selection) -> bool:
    if head.code == UNUSED:
        return suppress.speaks_of_rules(words.text, rules.known)
    return words.any(head.about) and words.any(head.needs)


def _unparsable(source: Source, rules: Selection, problem: UnparsableError) -> FileResult:
    """Give the one finding of a text that does not parse."""
    if UNPARSABLE not in rules.codes:
        return FileResult(source.path, source)
    if suppress.silences_unparsed(source.text, UNPARSABLE, rules.known):
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

    def result(self, tree: ast.Module) -> FileResult:
        """Run the rules and leave out what comments silence; raises `UnparsableError`."""
        heads = [head for head in self.rules if head.code not in OWN]
        words = _Words(self.source.text)
        asked = [head for head in heads if _needed(head, words, self.rules)]
        found = self._findings(asked, tree)
        kept, suppressed = self._unsilenced(found)
        if kept:
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
        return list(
            dict.fromkeys(finding for head in heads for finding in self._asked(head, script))
        )

    def _asked(self, head: RuleHead, script: Script) -> list[Finding]:
        """Ask one rule; one that fails is named and has found nothing."""
        options = self.settings.rules.get(head.name) or self.settings.rules.get(head.code)
        try:
            found = list(head.load()(options).check(script))
            for finding in found:
                self._refuse_wrong(finding, head)
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
        marks = suppress.find_suppressions(self.source, self.rules.known)
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

    def _about_comments(self, marks: suppress.Suppressions) -> Iterator[Finding]:
        """Yield a finding for each suppression that silenced nothing."""
        ran = frozenset(self.rules.codes) - self.failed
        for unused in marks.unused(ran, self.rules.complete and not self.failed):
            where = "in this file" if unused.mark.kind == "ignore-file" else "here"
            message = f"{unused.what} suppresses nothing {where}: remove it"
            fix = Fix.exact("Remove the unused suppression", (unused.edit,))
            yield Finding(UNUSED, unused.span, message, fix)
