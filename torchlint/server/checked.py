"""The results for one version of a document."""

from __future__ import annotations

import io
import tokenize
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchlint.config import Settings
from torchlint.edit import Span, apply_edits
from torchlint.engine import FileResult, check_source, fix_source
from torchlint.engine.fixproblem import fix_problem
from torchlint.engine.ignorecomments import annotate
from torchlint.engine.programs import Linked, Programs
from torchlint.engine.timelimit import within
from torchlint.engine.usedelsewhere import Projects
from torchlint.finding import Finding, Safety
from torchlint.registry import RuleHead, Selection
from torchlint.source import Source

if TYPE_CHECKING:
    from torchlint.server.preferences import Preferences


@dataclass(frozen=True)
class Checked:
    """The findings of one version of a document, and the available edits."""

    uri: str
    version: int | None
    source: Source
    rules: Selection
    settings: Settings
    result: FileResult
    programs: Programs
    _sound: dict[Finding, bool] = field(default_factory=dict)

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
            after = self.source.with_text(apply_edits(self.source.text, finding.fix.edits))
        except ValueError:
            return False
        return fix_problem(self.source, after, finding.fix.edits) is None


def checked(
    uri: str,
    version: int | None,
    text: str,
    path: Path,
    preferences: Preferences,
    programs: Programs,
) -> Checked:
    """Check one version of a document; raises `ConfigError`."""
    rules, settings = preferences.of(path)
    source = Source(str(path), text, _encoding(text))
    linked = programs.link(source, settings)
    used_elsewhere = Projects(preferences.settings).used_elsewhere
    result = within(
        settings.file_timeout,
        source.path,
        lambda: check_source(source, rules, settings, None, used_elsewhere, linked),
        lambda text: FileResult(source.path, source, warnings=(text,)),
    )
    return Checked(uri, version, source, rules, settings, result, programs)


def unchecked(uri: str, version: int | None, text: str, path: Path) -> Checked:
    """Return a version of a document without results."""
    source = Source(str(path), text)
    nothing = FileResult(source.path, source)
    return Checked(uri, version, source, Selection((), {}), Settings(), nothing, Programs())


def _encoding(text: str) -> str:
    """Return the encoding that a text declares for its file, UTF-8 by default."""
    head = io.BytesIO(text.encode("utf-8", "surrogatepass"))
    try:
        return tokenize.detect_encoding(head.readline)[0]
    except SyntaxError:
        return "utf-8"
