"""The configuration of a whole run: settings and rules for each folder, found once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchlint.config import Settings
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

    def settings(self, path: Path) -> Settings:
        """Give the settings that hold for a file or folder."""
        raise NotImplementedError

    def selection(self, path: Path) -> Selection:
        """Give the rules that are applied to a file, without what is ignored for it alone."""
        raise NotImplementedError
