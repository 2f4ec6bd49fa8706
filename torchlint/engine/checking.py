"""Checking one file: choose the rules, run them, and apply suppression comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from torchlint.config import Settings
from torchlint.edit import Span
from torchlint.engine.grading import Grades
from torchlint.engine.keptimports import SharedImports
from torchlint.engine.newersyntax import renamed
from torchlint.engine.ownpart import own_part
from torchlint.engine.parsing import (
    UnparsableError,
    is_ordinary,
    parse_script,
    syntax_problem,
    syntax_tree,
)
from torchlint.engine.patterns import rules_here
from torchlint.engine.programs import Link, Linked, alone
from torchlint.engine.relevance import UNPARSABLE, UNUSED, is_clean, relevant
from torchlint.engine.results import FileResult, internal_error
from torchlint.engine.stakes import told_once, weighed
from torchlint.engine.timelimit import Overdue
from torchlint.engine.torchimports import TORCH, TorchImport, imports_torch, torch_import
from torchlint.engine.usedelsewhere import UsedElsewhere, used_nowhere
from torchlint.finding import Finding, Fix, Impact, Safety
from torchlint.notebook import read_source
from torchlint.registry import RegistryError, RuleHead, Selection
from torchlint.source import Source, SourceError
from torchlint.suppress import Suppressions, find_suppressions, silences_unparsed
from torchlint.suppressionwords import has_suppression_word
from torchlint.wording import first_of

if TYPE_CHECKING:
    import ast

    from torchlint.semantic.script import Script

OWN: Final = frozenset({UNPARSABLE, UNUSED})
"""The codes of the two rules that the engine itself implements."""
_IMPORTS_TORCH: Final = re.compile(r"(?m)^\s*(?:import|from) torch\b")
MOST_NAMED: Final = 3
"""How many rules a warning names."""


def check_source(
    source: Source,
    rules: Selection,
    settings: Settings,
    asked: Iterable[RuleHead] | None = None,
    used_elsewhere: UsedElsewhere = used_nowhere,
    linked: Linked | None = None,
) -> FileResult:
    """Return what the selected rules find in `source`.

    `asked` are the rules relevant to it, if already known. `linked` are the definitions of other
    modules that it is judged with.
    """
    linked = linked or alone(source, settings)
    kept = rules_here(source.path, source.text, rules, settings)
    if asked is None or kept is not rules:
        asked = relevant(source.text, kept, linked)
    heads = list(asked)
    if is_clean(source, heads):
        result = FileResult(source.path, source)
    else:
        try:
            check = _Check(source, kept, settings, used_elsewhere, linked)
            result = check.result(heads, syntax_tree(source))
        except UnparsableError as problem:
            result = _unparsable(source, kept, settings, problem)
    problems = (linked.problem,) if linked.problem else ()
    return result._replace(linked=linked.asked_digest, warnings=(*result.warnings, *problems))


def check_bytes(
    data: bytes,
    path: str,
    rules: Selection,
    settings: Settings,
    used_elsewhere: UsedElsewhere = used_nowhere,
    link: Link = alone,
) -> FileResult:
    """Return what the selected rules find in a file; undecodable bytes are one TL001."""
    try:
        source = read_source(data, path)
    except SourceError as error:
        shown = Source(path, data.decode("latin-1"), "latin-1")
        rules = rules_here(path, shown.text, rules, settings)
        problem = UnparsableError(error.message, error.position)
        return _unparsable(shown, rules, settings, problem)
    linked = link(source, settings)
    return check_source(source, rules, settings, None, used_elsewhere, linked)


def _unparsable(
    source: Source, rules: Selection, settings: Settings, problem: UnparsableError
) -> FileResult:
    """Return the single finding of a text that does not parse."""
    if UNPARSABLE not in rules.codes:
        return FileResult(source.path, source)

    if silences_unparsed(source.text, UNPARSABLE, rules.known):
        return FileResult(source.path, source, suppressed=1)
    start = source.offset(problem.position)
    span = Span(start, min(start + 1, len(source.text)))
    fix = renamed(source.text)
    if fix is not None and not source.takes(fix.edits):
        fix = None
    if problem.newer:
        finding = Finding(UNPARSABLE, span, problem.reason, impact="low")
    else:
        message = f"this file cannot be parsed: {problem.reason}"
        impact: Impact | None = None if "torch" in source.text else "low"
        finding = Finding(UNPARSABLE, span, message, fix, impact=impact)
    grades = Grades.of(settings, rules.known, rules.groups)
    return FileResult(source.path, source, (grades.graded(finding),))


@dataclass
class _Check:
    """One check of one text that CPython can parse."""

    source: Source
    rules: Selection
    settings: Settings
    used_elsewhere: UsedElsewhere
    linked: Linked
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    too_deep: dict[str, str] = field(default_factory=dict)
    """The warning for each rule that hit the recursion limit, by its code."""

    def result(self, heads: list[RuleHead], tree: ast.Module) -> FileResult:
        """Run the rules and apply suppression comments; raises `UnparsableError`."""
        found = self._findings([head for head in heads if head.code not in OWN], tree)
        found += self._of_broken_parts() if UNPARSABLE in self.rules.codes else ()
        kept, suppressed = self._unsilenced(found)
        uses: dict[str, bool | None] = {}
        if kept:
            imports = SharedImports(self.source, self.used_elsewhere, tree)
            uses = imports.import_uses
            grades = Grades.of(self.settings, self.rules.known, self.rules.groups)
            kept = [self._with_fix_that_fits(grades.graded(finding), imports) for finding in kept]
            kept.sort(key=lambda finding: (finding.span, finding.code, finding.message))
        return FileResult(
            self.source.path,
            self.source,
            tuple(kept),
            suppressed,
            tuple(self.errors),
            tuple(self.warnings),
            tuple(sorted(uses.items())),
        )

    def _findings(self, heads: list[RuleHead], tree: ast.Module) -> list[Finding]:
        """Return the findings of the rules, one of those that differ in notes alone.

        Raises `UnparsableError`.
        """
        heads, through_star = _of_the_file(heads, tree, self.linked)
        if not heads:
            return []
        from torchlint.semantic.scope.target import Target
        from torchlint.semantic.script import forget, sections

        target = Target(self.settings.target_torch, self.settings.target_device)
        try:
            script = parse_script(self.source, target, tree, self.linked.view)
        except UnparsableError:
            raise
        except Exception as error:
            self.failed.update(head.code for head in heads)
            self.warnings.append(self._internal("the analysis", error, "no rule ran"))
            return []
        parts = sections(script)
        said: dict[Finding, Finding] = {}
        for head in heads:
            for section in parts:
                for finding in self._run_rule(head, section):
                    said.setdefault(replace(finding, notes=()), finding)
        about_syncs = {each.code for each in heads if each.is_about_syncs}
        found = told_once(list(said.values()), about_syncs, script)
        for each in {*parts, script}:
            forget(each)
        if through_star:
            found = [_as_unsafe(finding) for finding in found]
        if self.too_deep:
            self.warnings += self._depth_warnings(tree)
        return found

    def _of_broken_parts(self) -> Iterator[Finding]:
        """Yield the finding of the cells that do not parse in a notebook whose others do."""
        broken = self.source.broken_parts()
        for start, cell in broken[:1]:
            problem = syntax_problem(cell)
            at = start + (cell.offset(problem.position) if problem else 0)
            more = f" (likewise for {len(broken) - 1} more)" if broken[1:] else ""
            message = f"this cell cannot be parsed: {problem}{more}"
            yield Finding(UNPARSABLE, Span(at, at + 1), message, impact="low")

    def _depth_warnings(self, tree: ast.Module) -> list[str]:
        """Return the warnings for recursion errors; only deep nesting is the file's fault."""
        if is_ordinary(tree):
            return list(self.too_deep.values())
        codes = first_of(list(self.too_deep), MOST_NAMED)
        return [f"{self.source.path} is nested too deeply for {codes}; other rules ran"]

    def _run_rule(self, head: RuleHead, script: Script) -> list[Finding]:
        """Run one rule; if it fails, add a warning and return no findings."""
        options = self.settings.rules.get(head.name) or self.settings.rules.get(head.code)
        try:
            found = list(head.load()(options).check(script))
            for finding in found:
                self._refuse_wrong(finding, head)
            if self.linked.view.modules:
                found = [own for each in found if (own := own_part(each, script)) is not None]
            weighing = (weighed(finding, head, script) for finding in found)
            found = [finding for finding in weighing if finding is not None]
        except Overdue as overdue:
            overdue.rule = head.code
            raise
        except RecursionError as error:
            self.too_deep[head.code] = self._internal(head.code, error)
        except RegistryError as error:
            self.errors.append(str(error))
        except Exception as error:
            self.warnings.append(self._internal(head.code, error))
        else:
            return found
        self.failed.add(head.code)
        return []

    def _refuse_wrong(self, finding: Finding, head: RuleHead) -> None:
        if finding.code != head.code:
            raise ValueError(f"a finding has the code {finding.code}")
        if self.linked.view.modules:
            return
        edits = finding.fix.edits if finding.fix is not None else ()
        if max([finding.span.end, *(edit.span.end for edit in edits)]) > len(self.source.text):
            raise ValueError("a place behind the end of the file")

    def _internal(self, who: str, error: Exception, rest: str = "other rules ran") -> str:
        return internal_error(who, self.source.path, error, rest)

    def _unsilenced(self, found: list[Finding]) -> tuple[list[Finding], int]:
        """Return the findings that no comment silences, and how many were silenced."""
        judging = UNUSED in self.rules.codes
        if self.settings.ignore_suppressions or not (found or judging):
            return found, 0
        if not has_suppression_word(self.source.text):
            return found, 0

        marks = find_suppressions(self.source, self.rules.known)
        kept = [
            replace(finding, fix=None) if marks.holds_back(finding) else finding
            for finding in found
            if not marks.silence(finding)
        ]
        if judging:
            about = list(self._about_comments(marks))
            found = found + about
            kept += [finding for finding in about if not marks.silence(finding)]
        return kept, len(found) - len(kept)

    def _with_fix_that_fits(self, finding: Finding, imports: SharedImports) -> Finding:
        """Return a finding with its fix reduced to edits that are safe for this and other files."""
        if finding.fix is None:
            return finding
        edits = imports.spare(finding.fix.edits)
        if edits is None or not self.source.takes(edits):
            return replace(finding, fix=None)
        return replace(finding, fix=replace(finding.fix, edits=edits))

    def _about_comments(self, marks: Suppressions) -> Iterator[Finding]:
        """Yield a finding for each unused suppression."""
        ran = frozenset(self.rules.codes) - self.failed
        for unused in marks.unused(ran, self.rules.complete and not self.failed):
            where = "in this file" if unused.mark.kind == "ignore-file" else "here"
            message = f"{unused.what} suppresses nothing {where}: remove it"
            fix = Fix.exact("Remove the unused suppression", (unused.edit,))
            yield Finding(UNUSED, unused.span, message, fix)


def _of_the_file(
    heads: list[RuleHead], tree: ast.Module, linked: Linked
) -> tuple[list[RuleHead], bool]:
    """Return the rules whose library is imported, and whether torch comes by a star import.

    An import of the file or of what is linked to it counts.
    """
    if not any(TORCH in head.about for head in heads):
        return heads, False
    found = torch_import(tree)
    if found is TorchImport.NONE and not imports_torch(linked.view):
        heads = [head for head in heads if TORCH not in head.about]
    return heads, found is TorchImport.THROUGH_STAR


def _as_unsafe(finding: Finding) -> Finding:
    """Return a finding of a file whose torch comes from a star import, with its fix made unsafe.

    A fix that would import torch is dropped.
    """
    fix = finding.fix
    if fix is None:
        return finding
    if any(_IMPORTS_TORCH.search(edit.text) for edit in fix.edits):
        return replace(finding, fix=None)
    if fix.safety <= Safety.UNSAFE:
        return finding
    because = "torch comes through a star import"
    return replace(finding, fix=replace(fix, safety=Safety.UNSAFE, because=because))
