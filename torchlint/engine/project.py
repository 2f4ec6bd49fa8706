"""The configuration of a whole run: settings and selected rules of each folder, cached."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from torchlint import __version__
from torchlint.caching import cached_method
from torchlint.config import ConfigError, Settings, load, place
from torchlint.config.requirement import PROJECT_FILES, other_lists
from torchlint.program.folder import Layout, project_of
from torchlint.registry import Registry, Selection

CONFIGURATION: Final = ("torchlint.toml", *PROJECT_FILES)
"""The names of the files that settings come from."""
SettingsOf = Callable[[str], Settings]
"""A function that returns the settings of a path."""


class Project:
    """The settings and the selected rules of every path of a run.

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
        self._folders: dict[str, Settings] = {}
        self._selections: dict[int, Selection] = {}

    def settings(self, path: Path) -> Settings:
        """Return the settings of a file or folder."""
        return self.settings_at(str(path))

    @cached_method
    def settings_at(self, name: str) -> Settings:
        """Return the settings of a file or folder given by name."""
        absolute = os.path.join(os.getcwd(), name)  # noqa: PTH109, PTH118
        if not os.path.isdir(absolute):  # noqa: PTH112
            absolute = os.path.dirname(absolute)  # noqa: PTH120
        return self._of_folder(str(Path(absolute)))

    def known(self) -> Iterable[Settings]:
        """Return the settings of all folders that were asked for so far."""
        return self._folders.values()

    def selection(self, path: Path) -> Selection:
        """Return the rules that the settings of a file or folder select."""
        settings = self.settings(path)
        if id(settings) not in self._selections:
            self._selections[id(settings)] = self.registry.select(settings)
        return self._selections[id(settings)]

    def _of_folder(self, folder: str) -> Settings:
        """Return the settings of a folder; without a configuration file those of its parent."""
        if folder not in self._folders:
            parent = os.path.dirname(folder)  # noqa: PTH120
            own = any(os.path.isfile(os.path.join(folder, name)) for name in CONFIGURATION)  # noqa: PTH113, PTH118
            if own or parent == folder or other_lists(Path(folder)):
                settings = load(
                    Path(folder),
                    self.overrides,
                    isolated=self.isolated,
                    config_file=self.config_file,
                )
                require_version(settings)
                self._folders[folder] = settings
            else:
                self._folders[folder] = self._of_folder(parent)
        return self._folders[folder]


def require_version(settings: Settings) -> None:
    """Raise `ConfigError` if this is not the version of torchlint that the settings require."""
    wanted = settings.required_version
    if wanted is None:
        return
    from packaging.specifiers import SpecifierSet

    specifiers = wanted if wanted.strip()[:1] in "<>=!~" else f"=={wanted}"
    if not SpecifierSet(specifiers).contains(__version__, prereleases=True):
        where = place(settings, "required_version")
        said = f"this is torchlint {__version__}, the project wants {wanted}"
        raise ConfigError(f"{where}: `required-version`: {said}")


def default_settings(path: str) -> Settings:
    """Return the settings of a path without any configuration."""
    return Settings()


def layout_of(path: str, settings: Settings) -> Layout:
    """Return the root folder of the project of a file, and its source folders."""
    root = project_of(path)
    given = os.path.realpath(settings.project_root) if settings.project_root is not None else ""
    if given and os.path.realpath(path).startswith(os.path.join(given, "")):  # noqa: PTH118
        root = given
    folders = (os.path.realpath(settings.root / each) for each in settings.src)
    below = (os.path.relpath(each, root) for each in folders)
    return Layout(root, tuple(f"{Path(each).as_posix()}/" for each in below if each[:1] != "."))
