"""The settings of each document: those of its folder, overridden by the editor's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from torchlint.config import ConfigError, Settings, read_values
from torchlint.engine import Project
from torchlint.engine.patterns import excluded_by
from torchlint.registry import Registry, Selection

EDITOR: Final = "the editor's settings"


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
