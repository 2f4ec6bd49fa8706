"""The command `clean`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click

from torchlint.cli.options import configuration_file_options
from torchlint.cli.replay import CACHE, SUFFIX
from torchlint.cli.run import refused
from torchlint.cli.terminal import remark
from torchlint.config import load
from torchlint.report.summary import plural

_WRITTEN: Final = re.compile(
    r"[0-9a-f]{16}(?:(?:-[a-z]+)?\.json|\.outlines)|[0-9a-f]{8}" + re.escape(SUFFIX)
)
"""Matches the names of the files of a cache. No other file is removed."""


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path), default=Path())
@configuration_file_options
def clean(path: Path, config_file: Path | None, isolated: bool) -> None:
    """Delete the caches below a folder, and the configured one.

    PATH is a folder, by default the current one.
    """
    with refused():
        configured = load(path, isolated=isolated, config_file=config_file).cache_dir
    folders = {each for each in path.rglob(CACHE) if each.is_dir() and not each.is_symlink()}
    if configured is not None and configured.is_dir():
        folders.add(configured)
    emptied = [folder for folder in sorted(folders) if _emptied(folder)]
    for folder in emptied:
        remark(f"- {folder}")
    remark(f"Emptied {plural(len(emptied), 'cache')}.")


def _emptied(folder: Path) -> bool:
    """Remove the files of a cache; return whether there were any."""
    files = [file for file in folder.iterdir() if _WRITTEN.fullmatch(file.name)]
    for file in files:
        file.unlink()
    left = list(folder.iterdir())
    if folder.name == CACHE and [file.name for file in left] == [".gitignore"]:
        left[0].unlink()
        folder.rmdir()
    return bool(files)
