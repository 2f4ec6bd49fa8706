"""The Python API: check and fix a text that is at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchlint.config import load
from torchlint.engine.checking import check_bytes, check_source
from torchlint.engine.fixing import fix_bytes, fix_source
from torchlint.engine.results import FileResult, FixResult
from torchlint.registry import load_registry
from torchlint.source import Source

__all__ = ["check", "fix"]


def check(source: str | bytes, path: str = "<string>", **options: Any) -> FileResult:
    """Give what torchlint finds in a script.

    `options` are the fields of `torchlint.config.Settings`, such as `select=("TL2",)`; no
    configuration file is read. Raises `ConfigError` for a value that cannot be followed.
    """
    settings = load(Path(path), options, isolated=True)
    rules = load_registry().select(settings)
    if isinstance(source, str):
        return check_source(Source(path, source), rules, settings)
    return check_bytes(source, path, rules, settings)


def fix(source: str | bytes, path: str = "<string>", **options: Any) -> FixResult:
    """Give a script with its fixes made: `result.after.text`.

    `options` are those of `check`; `unsafe_fixes=True` makes the unsafe ones too.
    """
    settings = load(Path(path), options, isolated=True)
    rules = load_registry().select(settings)
    if isinstance(source, str):
        return fix_source(Source(path, source), rules, settings)
    return fix_bytes(source, path, rules, settings)
