"""Finding the configuration of a file and reading it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchlint.config.settings import Settings

__all__ = ["load"]


def load(
    path: Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    isolated: bool = False,
    config_file: Path | None = None,
) -> Settings:
    """Give the settings for a file or folder: the nearest file upwards, then `overrides`.

    `overrides` has the options given on the command line, by the names of the fields of
    `Settings` and in their types; what was not given must be left out. `isolated` reads no file,
    `config_file` reads this one. Raises `ConfigError`.
    """
    raise NotImplementedError
