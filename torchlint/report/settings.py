"""The settings in force, as TOML with the origin of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from torchlint.config import Settings
from torchlint.report.paint import Paint
from torchlint.report.text import printable

_VERSIONS: Final = frozenset({"target_torch"})
_SHORT: Final = 6
_UNSET: Final = {
    "select": "the rules that are on by default",
    "target_torch": "the newest version known",
    "required_version": "any",
    "project_root": "the nearest folder upwards with a project file or repository",
    "output_file": "standard output",
    "baseline": "none",
    "jobs": "one for each processor",
    "cache_dir": ".torchlint_cache in the current folder",
}
_APART: Final = frozenset({"root", "config_file", "bases", "sources", "rules"})


def settings_in_force(settings: Settings, paint: Paint) -> str:
    """Return every option as a line of TOML, with its origin as a comment."""
    return "\n".join(_lines(settings, paint)) + "\n"


def _lines(settings: Settings, paint: Paint) -> Iterator[str]:
    file = str(settings.config_file) if settings.config_file else "none"
    yield paint.gutter(f"# configuration file: {printable(file)}")
    yield paint.gutter(f"# patterns count from: {printable(str(settings.root))}")
    for each in fields(settings):
        if each.name not in _APART:
            yield from _option(settings, each.name, paint)
    source = paint.gutter(f"  # {printable(settings.source_of('rules'))}")
    for rule, options in sorted(settings.rules.items()):
        yield ""
        yield f"[rules.{rule}]{source}"
        for key, value in options.items():
            yield f"{printable(key)} = {toml(value)}"


def _option(settings: Settings, name: str, paint: Paint) -> Iterator[str]:
    key = name.replace("_", "-")
    value = getattr(settings, name)
    source = paint.gutter(f"  # {printable(settings.source_of(name))}")
    if value is None:
        yield paint.gutter(f"# {key}: {_UNSET[name]}")
    elif isinstance(value, tuple) and name not in _VERSIONS and len(value) > _SHORT:
        yield f"{key} = [{source}"
        yield from (f"    {toml(each)}," for each in value)
        yield "]"
    else:
        yield f"{key} = {toml('.'.join(map(str, value)) if name in _VERSIONS else value)}{source}"


def toml(value: Any) -> str:
    """Return a value as TOML, on one line."""
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{toml(key)} = {toml(each)}" for key, each in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, (str, Path)):
        return json.dumps(str(value)).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else str(value)
