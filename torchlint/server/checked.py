"""The results for one version of a script or notebook."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from torchlint.config import Settings
from torchlint.edit import Span
from torchlint.engine import FileResult, check_source, fix_source
from torchlint.engine.fixproblem import fix_problem
from torchlint.engine.ignorecomments import annotate
from torchlint.engine.programs import Linked, Programs
from torchlint.engine.timelimit import within
from torchlint.engine.usedelsewhere import Projects
from torchlint.finding import Finding, Safety
from torchlint.registry import RuleHead, Selection
from torchlint.server.subject import Subject
from torchlint.source import Source

if TYPE_CHECKING:
    from torchlint.server.preferences import Preferences


@dataclass(frozen=True)
class Checked:
    """The findings of one version of a script or notebook, and the available edits."""

    subject: Subject
    rules: Selection
    settings: Settings
    result: FileResult
    programs: Programs
    _sound: dict[Finding, bool] = field(default_factory=dict)

    @property
    def source(self) -> Source:
        """The text that was checked."""
        return self.subject.source

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the rules, in the order of the text."""
        return self.result.findings

    def head(self, code: str) -> RuleHead:
        """Return the rule of a code."""
        return next(head for head in self.rules if head.code == code)

    def near(self, span: Span) -> list[Finding]:
        """Return the findings that overlap or touch a span."""
        return [
            finding
            for finding in self.findings
            if finding.span.start <= span.end and span.start <= finding.span.end
        ]

    def is_sound(self, finding: Finding) -> bool:
        """Return whether a finding has a fix that is safe to apply alone."""
        if finding not in self._sound:
            self._sound[finding] = self._does_no_harm(finding)
        return self._sound[finding]

    def has_safe_fixes(self) -> bool:
        """Return whether any fix keeps the numbers."""
        return any(
            finding.fix is not None and finding.fix.safety >= Safety.CLOSE
            for finding in self.findings
        )

    def fixed(self) -> Source:
        """Return the text after every safe fix, repeated until there is none."""
        settings = replace(self.settings, unsafe_fixes=False)
        return within(
            settings.file_timeout,
            self.source.path,
            lambda: (
                fix_source(
                    self.source,
                    self.rules,
                    settings,
                    used_elsewhere=Projects(lambda _: self.settings).used_elsewhere,
                    link=self.programs.link,
                ).after
            ),
            lambda text: self.source,
        )

    def is_stale(self) -> bool:
        """Return whether the definitions that the document was judged with have changed."""
        judged_with = self.result.linked
        return bool(judged_with) and judged_with != self._linked.digest

    @property
    def _linked(self) -> Linked:
        return self.programs.link(self.source, self.settings)

    def silenced(self, finding: Finding) -> Source | None:
        """Return the text with a comment that silences a finding, None where none can stand."""
        annotated = annotate(self.source, [finding], self.rules.known)
        return annotated.source if annotated.silenced else None

    def _does_no_harm(self, finding: Finding) -> bool:
        if finding.fix is None or not finding.fix.edits or finding.fix.safety is Safety.SHOW:
            return False
        try:
            after = self.source.edited(finding.fix.edits)
        except ValueError:
            return False
        return fix_problem(self.source, after, finding.fix.edits) is None


def checked(subject: Subject, preferences: Preferences, programs: Programs) -> Checked:
    """Check one version of a script or notebook; raises `ConfigError`."""
    rules, settings = preferences.of(subject.path)
    source = subject.source
    linked = programs.link(source, settings)
    used_elsewhere = Projects(preferences.settings).used_elsewhere
    result = within(
        settings.file_timeout,
        source.path,
        lambda: check_source(source, rules, settings, None, used_elsewhere, linked),
        lambda text: FileResult(source.path, source, warnings=(text,)),
    )
    return Checked(subject, rules, settings, result, programs)


def unchecked(subject: Subject) -> Checked:
    """Return a version of a script or notebook without results."""
    nothing = FileResult(subject.source.path, subject.source)
    return Checked(subject, Selection((), {}), Settings(), nothing, Programs())
