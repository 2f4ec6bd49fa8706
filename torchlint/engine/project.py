"""The configuration of a whole run: settings and rules for each folder, found once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from torchlint.config import Settings, load
from torchlint.registry import Registry, Selection

__all__ = ["CONFIGURATION", "Project"]

CONFIGURATION: Final = ("torchlint.toml", "pyproject.toml")
"""The names of files with settings, the first of which wins in a folder."""


class Project:
    """Gives the settings and the selected rules of every path of a run.

    The arguments are those of `torchlint.config.load`. Both methods raise `ConfigError`.
    """

    def __init__(
        self,
        registry: Registry,
        overrides: Mapping[str, Any] | None = None,
        *,
        isolated: bool = False,
        config_file: Path | None = None,
    ) -> None:
        self.registry = registry
        self.overrides = dict(overrides or {})
        self.isolated = isolated
        self.config_file = config_file
        self._settings: dict[str, Settings] = {}
        self._folders: dict[str, Settings] = {}
        self._selections: dict[int, Selection] = {}

    def settings(self, path: Path) -> Settings:
        """Give the settings that hold for a file or folder."""
        return self.settings_at(str(path))

    def settings_at(self, name: str) -> Settings:
        """Give the settings that hold for a file or folder by its name."""
        if name not in self._settings:
            absolute = os.path.join(os.getcwd(), name)  # noqa: PTH109, PTH118
            if not os.path.isdir(absolute):  # noqa: PTH112
                absolute = os.path.dirname(absolute)  # noqa: PTH120
            self._settings[name] = self._of_folder(str(Path(absolute)))
        return self._settings[name]

    def selection(self, path: Path) -> Selection:
        """Give the rules that the settings of a file or folder select."""
        settings = self.settings(path)
        if id(settings) not in self._selections:
            self._selections[id(settings)] = self.registry.select(settings)
        return self._selections[id(settings)]

    def _of_folder(self, folder: str) -> Settings:
        """Give the settings of a folder: those of its parent unless it has files of its own."""
        if folder not in self._folders:
            parent = os.path.dirname(folder)  # noqa: PTH120
            own = any(os.path.isfile(os.path.join(folder, name)) for name in CONFIGURATION)  # noqa: PTH113, PTH118
            if own or parent == folder:
                self._folders[folder] = load(
                    Path(folder),
                    self.overrides,
                    isolated=self.isolated,
                    config_file=self.config_file,
                )
            else:
                self._folders[folder] = self._of_folder(parent)
        return self._folders[folder]
