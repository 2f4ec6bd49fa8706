"""The results for one version of a script or notebook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from torchlint.caching import cached_method
from torchlint.config import ConfigError, Settings, read_values
from torchlint.edit import Span
from torchlint.engine import FileResult, Project, check_source, fix_source
from torchlint.engine.fixproblem import fix_problem
from torchlint.engine.ignorecomments import annotate
from torchlint.engine.patterns import excluded_by
from torchlint.engine.programs import Linked, Programs
from torchlint.engine.timelimit import within
from torchlint.engine.usedelsewhere import Projects
from torchlint.finding import Finding, Safety
from torchlint.registry import Registry, RuleHead, Selection
from torchlint.server.subject import Subject
from torchlint.source import Source

EDITOR: Final = "the editor's settings"


@dataclass(frozen=True)
class Checked:
    """The findings of one version of a script or notebook, and the available edits."""

    subject: Subject
    rules: Selection
    settings: Settings
    result: FileResult
    programs: Programs

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

    @cached_method
    def is_sound(self, finding: Finding) -> bool:
        """Return whether a finding has a fix that is safe to apply alone."""
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


class Preferences:
    """The rules and settings by path; an editor's settings may differ by folder."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._everywhere: Mapping[str, Any] = {}
        self._by_folder: dict[Path, Mapping[str, Any]] = {}
        self._projects: dict[Path | None, Project] = {}

    def set(self, table: Any, folder: Path | None = None) -> None:
        """Store the editor's settings for one folder or for all; raises `ConfigError`.

        `table` has the keys of a configuration file. Invalid settings change nothing.
        """
        values = self._read(table)
        if folder is None:
            self._everywhere = values
        else:
            self._by_folder[folder] = values
        self.forget()

    def forget(self) -> None:
        """Drop cached configuration, so that files are read again when needed."""
        self._projects = {}

    def of(self, path: Path) -> tuple[Selection, Settings]:
        """Return the rules, none for an excluded file, and the settings; raises `ConfigError`.

        The file need not exist.
        """
        project = self._project(self._folder_of(path))
        settings, rules = project.settings(path), project.selection(path)
        if path.suffix == ".pyi" or _left_out(path, settings):
            rules = rules.without(rules.codes)
        return rules, settings

    def settings(self, path: str) -> Settings:
        """Return the settings of a file, the defaults where its configuration is wrong."""
        try:
            return self.of(Path(path))[1]
        except ConfigError:
            return Settings()

    def _folder_of(self, path: Path) -> Path | None:
        """Return the innermost folder with its own settings that contains a path."""
        around = [folder for folder in self._by_folder if path.is_relative_to(folder)]
        return max(around, key=lambda folder: len(folder.parts), default=None)

    def _project(self, folder: Path | None) -> Project:
        projects = self._projects
        if folder not in projects:
            own = self._everywhere if folder is None else self._by_folder[folder]
            projects[folder] = Project(self.registry, {**self._everywhere, **own})
        return projects[folder]

    def _read(self, table: Any) -> dict[str, Any]:
        """Return the settings of an editor, where null and an empty list mean none."""
        table = table or {}
        if not isinstance(table, dict):
            raise ConfigError(f"{EDITOR}: must be a table such as " + '{"select": ["TL2"]}')
        values = read_values(table, lambda key: EDITOR)
        try:
            self.registry.select(Settings(**values))
        except ConfigError as error:
            raise ConfigError(f"{EDITOR}: {error.message.removeprefix('--')}") from None
        return values


def _left_out(path: Path, settings: Settings) -> bool:
    patterns = excluded_by(settings)
    inside = [parent for parent in path.parents if parent.is_relative_to(settings.root)]
    return any(patterns.match(str(each)) for each in (path, *inside))
