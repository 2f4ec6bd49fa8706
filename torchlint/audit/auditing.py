"""The audit of one file: findings of rules first, then the questions of each technique."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from torchlint import suppress
from torchlint.audit.catalogue import FAMILIES
from torchlint.audit.row import Basis, Line, Row, Status
from torchlint.audit.survey import ProgramFacts, Survey
from torchlint.audit.technique import Answer, Technique, cannot_tell, elsewhere, not_applicable
from torchlint.config import Settings
from torchlint.engine import check_source
from torchlint.engine.parsing import parse_script, syntax_tree
from torchlint.engine.patterns import ignored_here
from torchlint.engine.programs import Link, Linked, alone
from torchlint.engine.results import FileResult, internal_error
from torchlint.finding import Finding
from torchlint.measurement import Measurement, conclusive, measurements_beside
from torchlint.registry import Registry, RegistryError, RuleHead, Selection
from torchlint.semantic.scope.target import Target
from torchlint.source import Source
from torchlint.wording import first_of

OTHERS: Final = "other rules"
"""The family of rules that belong to no technique, such as those of other packs."""
_BY_IMPACT: Final = {"high": 0.9, "medium": 0.6, "low": 0.3}
_GOES_ON: Final = "the audit went on"
_OF_THE_ENGINE: Final = frozenset({"TL001", "TL002"})
_UNKNOWN: Final = ProgramFacts()
_STRONGEST_FIRST: Final = (
    (Status.MISSING, Basis.CODE),
    (Status.IN_USE, Basis.CODE),
    (Status.CANNOT_TELL, Basis.CODE),
    (Status.IN_USE, Basis.NO_FINDING),
    (Status.MISSING, Basis.NO_FINDING),
    (Status.NOT_APPLICABLE, Basis.CODE),
    (Status.CANNOT_TELL, Basis.ELSEWHERE),
)
"""Which module answers for a technique: one that lacks it comes before one that has it."""


@dataclass(frozen=True)
class Audit:
    """The checklist of one file, or of a program with all its modules.

    `errors` has one line each and means that the run failed; `warnings` name what could not be
    finished.
    """

    path: str
    """The file, or that that starts the program."""
    rows: tuple[Row, ...]
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    """The other files of the program."""
    facts: ProgramFacts = _UNKNOWN


def audit(
    source: Source,
    registry: Registry,
    settings: Settings,
    link: Link = alone,
    facts: ProgramFacts | None = None,
) -> Audit:
    """Answer every technique; raises `UnparsableError` for a text that does not parse.

    `link` returns the definitions of other modules that the script is judged with, `facts` is
    what is known of the program if another file starts it.

    All rules run, including those that are off by default or ignored: a technique whose rules
    are ignored or silenced by a comment is not applicable.
    """
    look = _FileAudit(source, registry, settings, link(source, settings), facts)
    rows = tuple(
        look.row(family, technique)
        for family, techniques in look.families.items()
        for technique in techniques
    )
    errors, warnings = (*look.errors, *look.result.errors), (*look.warnings, *look.result.warnings)
    return Audit(source.path, rows, errors, warnings, facts=look.survey.facts)


class _FileAudit:
    """The audit of one file in progress."""

    def __init__(
        self,
        source: Source,
        registry: Registry,
        settings: Settings,
        linked: Linked,
        facts: ProgramFacts | None,
    ) -> None:
        self.source = source
        self.linked = linked
        self.registry = registry
        self.settings = settings
        self.errors: list[str] = []
        self.warnings: list[str] = []
        target = Target(settings.target_torch, settings.target_device)
        script = parse_script(source, target, syntax_tree(source), linked.view)
        self.survey = Survey(script, facts)
        self.heads = {head.code: head for head in registry.rules}
        self.families = {**FAMILIES, OTHERS: tuple(self._others())}
        self.result = self._checked()

    def _others(self) -> Iterator[Technique]:
        """Yield a technique for each rule that belongs to none."""
        owned = {code for each in FAMILIES.values() for one in each for code in one.rules}
        for head in self.registry.rules:
            if head.code not in owned and head.code not in _OF_THE_ENGINE:
                try:
                    articles = head.load().articles
                except RegistryError as error:
                    self.errors.append(str(error))
                    continue
                yield Technique(head.name, articles, (_only_its_rule,), (head.code,))

    def row(self, family: str, technique: Technique) -> Row:
        """Return the row of a technique."""
        found = [each for each in self.result.findings if each.code in technique.rules]
        active = [each for each in found if not self._silenced(each)]
        answer = self._of_rules(found, active) or self._of_script(technique)
        path = answer.line.path if answer.line else ""
        return Row(
            family,
            technique.name,
            technique.articles,
            answer.status,
            answer.line.row if answer.line else None,
            answer.why,
            tuple(dict.fromkeys(each.code for each in active)),
            self._gain(technique, active) if answer.status is Status.MISSING else "",
            answer.line.cell if answer.line else None,
            path,
            answer.basis,
            self._worth(active),
        )

    def _gain(self, technique: Technique, active: Sequence[Finding]) -> str:
        """Return the gain of the technique: measurements on fixtures first, then cited figures."""
        codes = dict.fromkeys(each.code for each in active)
        measured = (each.words for code in codes if (each := self._measured(code)) is not None)
        return "; ".join(filter(None, (*measured, technique.gain)))

    def _worth(self, active: Sequence[Finding]) -> float:
        """Return the largest measured speed-up of the findings, else a number for the impact."""
        measured = (self._measured(each.code) for each in active)
        speedups = [each.ratio for each in measured if each is not None]
        impacts = [_BY_IMPACT[self.heads[each.code].impact] for each in active]
        return max([*speedups, *impacts], default=0.0)

    def _measured(self, code: str) -> Measurement | None:
        """Return the measurement that shows that a rule's fix is faster, None without one."""
        head = self.heads[code]
        if not head.file:
            return None
        found = conclusive(measurements_beside(head.file, code), head.gain, head.device)
        return next((each for each in found if each.verdict == "FASTER"), None)

    def _checked(self) -> FileResult:
        codes = {
            code
            for techniques in self.families.values()
            for technique in techniques
            for code in technique.rules
        }
        heads = [head for head in self.registry.rules if head.code in codes and self._fits(head)]
        return check_source(
            self.source,
            Selection(tuple(heads), self.registry.known),
            replace(self.settings, ignore_suppressions=True, per_file_ignores={}),
            linked=self.linked,
        )

    def _fits(self, head: RuleHead) -> bool:
        target = self.settings.target_torch
        return target is None or head.since <= target

    # -- findings of rules ----------------------------------------------------

    def _of_rules(self, found: list[Finding], active: list[Finding]) -> Answer | None:
        if active:
            first = active[0]
            why = self.heads[first.code].load().summary
            rows = sorted({self._line(each) for each in active[1:]} - {self._line(first)})
            off = "" if first.code in self._selected else f"; `check` has {first.code} off"
            line = self._line(first)
            return Answer(Status.MISSING, why + _also(rows) + off, line)
        if not found:
            return None
        first = found[0]
        if first.code in self._ignored:
            return not_applicable(f"your settings ignore {first.code}")
        return not_applicable(f"a comment silences {first.code} on line {self._line(first)}")

    def _line(self, finding: Finding) -> Line:
        return Line.of(self.source, finding.span.start)

    def _silenced(self, finding: Finding) -> bool:
        if finding.code in self._ignored:
            return True
        return not self.settings.ignore_suppressions and self._comments.silence(finding)

    @cached_property
    def _comments(self) -> suppress.Suppressions:
        return suppress.find_suppressions(self.source, self.registry.known)

    @cached_property
    def _ignored(self) -> frozenset[str]:
        words = (*self.settings.ignore, *self.settings.extend_ignore)
        registry = self.registry
        here = ignored_here(self.source.path, self.settings, registry.known, registry.groups)
        return (self.registry.covered(words) - self._selected) | here

    @cached_property
    def _selected(self) -> frozenset[str]:
        return frozenset(self.registry.select(self.settings).codes)

    # -- answers of the script ------------------------------------------------

    def _of_script(self, technique: Technique) -> Answer:
        try:
            answer = technique.answer(self.survey)
        except Exception as error:
            who = f"the technique `{technique.name}`"
            self.warnings.append(internal_error(who, self.source.path, error, _GOES_ON))
            return cannot_tell("torchlint failed while checking this")
        if answer.status is Status.IN_USE:
            return answer
        return next(self._too_new(technique), answer)

    def _too_new(self, technique: Technique) -> Iterator[Answer]:
        heads = [self.heads[code] for code in technique.rules if code in self.heads]
        if heads and not any(map(self._fits, heads)):
            needed = min(head.since for head in heads)
            target = self.settings.target_torch or needed
            yield not_applicable(
                f"needs torch {needed[0]}.{needed[1]}, but the target is {target[0]}.{target[1]}"
            )


def _only_its_rule(survey: Survey) -> Answer:
    return elsewhere("only its rule checks for it, and found nothing")


def _also(rows: list[Line]) -> str:
    """Return a list of the other lines, the first three by number."""
    if not rows:
        return ""
    return f" (also line{'s' if len(rows) > 1 else ''} {first_of(list(map(str, rows)), 3)})"


def of_program(audits: Sequence[Audit]) -> Audit:
    """Return the checklist of a program from those of its modules, the started one first."""
    start, *others = audits
    rows = [[_placed(row, each.path, start.path) for row in each.rows] for each in audits]
    return Audit(
        start.path,
        tuple(_joined(of_technique) for of_technique in zip(*rows, strict=True)),
        _once(line for each in audits for line in each.errors),
        _once(line for each in audits for line in each.warnings),
        tuple(each.path for each in others),
    )


def _placed(row: Row, path: str, start: str) -> Row:
    """Return a row of a module as one of its program: with the file that its line is in."""
    at = row.path or path
    return replace(row, path="" if at == start or row.line is None else at)


def _joined(rows: Iterable[Row]) -> Row:
    """Return the row of a technique for all modules."""
    strongest, *others = sorted(
        rows, key=lambda row: _STRONGEST_FIRST.index((row.status, row.basis))
    )
    if not strongest.rules:
        return strongest
    agreeing = [row for row in others if row.rules]
    places = _once(row.path for row in agreeing if row.path and row.path != strongest.path)
    return replace(
        strongest,
        why=f"{strongest.why}{_also_in(places)}",
        rules=_once(code for row in (strongest, *agreeing) for code in row.rules),
        gain="; ".join(_once(part for row in (strongest, *agreeing) for part in _parts(row.gain))),
        worth=max(row.worth for row in (strongest, *agreeing)),
    )


def _parts(gain: str) -> list[str]:
    return gain.split("; ") if gain else []


def _also_in(paths: Sequence[str]) -> str:
    """Return a list of the other files, the first three by name."""
    if not paths:
        return ""
    return f" (also in {first_of(paths, 3)})"


def _once(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lines))
