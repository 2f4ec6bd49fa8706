"""The configuration of a whole run: settings and rules for each folder, found once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchlint.config import Settings, load
from torchlint.registry import Registry, Selection

__all__ = ["Project"]


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
        self._settings: dict[Path, Settings] = {}
        self._folders: dict[Path, Settings] = {}
        self._selections: dict[int, Selection] = {}

    def settings(self, path: Path) -> Settings:
        """Give the settings that hold for a file or folder."""
        if path not in self._settings:
            absolute = path.absolute()
            folder = absolute if absolute.is_dir() else absolute.parent
            self._settings[path] = self._of_folder(folder)
        return self._settings[path]

    def selection(self, path: Path) -> Selection:
        """Give the rules that the settings of a file or folder select."""
        settings = self.settings(path)
        if id(settings) not in self._selections:
            self._selections[id(settings)] = self.registry.select(settings)
        return self._selections[id(settings)]

    def _of_folder(self, folder: Path) -> Settings:
        """Give the settings of a folder: those of its parent unless it has files of its own."""
        if folder not in self._folders:
            own = any((folder / name).is_file() for name in ("torchlint.toml", "pyproject.toml"))
            if own or folder.parent == folder:
                self._folders[folder] = load(
                    folder,
                    self.overrides,
                    isolated=self.isolated,
                    config_file=self.config_file,
                )
            else:
                self._folders[folder] = self._of_folder(folder.parent)
        return self._folders[folder]
