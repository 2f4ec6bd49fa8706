"""Where the project of a file is: its root folder, and the folders of its modules."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from torchlint.config import Settings
from torchlint.program.folder import Layout, project_of

SettingsOf = Callable[[str], Settings]
"""A function that returns the settings of a path."""


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
