"""Finding and reading the configuration of a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torchlint.config.requirement import required_torch
from torchlint.config.settings import ENVIRONMENT, ConfigError, Settings, option_names, variable_of
from torchlint.config.values import KINDS, parse, place, place_of, read_table, read_text

_TABLES: Final = frozenset({"per_file_ignores", "severity", "rules"})
"""Options that only files and the command line set."""
_FLAGS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def load(
    path: Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    isolated: bool = False,
    config_file: Path | None = None,
) -> Settings:
    """Return the settings of a file or folder.

    They are those of the nearest configuration, then of the environment, then `overrides`, which
    maps fields of `Settings` to the options given on the command line; options that were not given
    are absent. With `isolated` no file is read, with `config_file` only that one.
    Raises `ConfigError`.
    """
    settings = Settings()
    if not isolated:
        folder = _folder(path)
        found = (config_file, _table(config_file)) if config_file else _nearest_table(folder)
        if found is not None:
            file, table = found
            settings = replace(_settings_in(table, file), root=file.parent.absolute())
            for source in settings.src:
                if not (settings.root / source).is_dir():
                    where = place(settings, "src", source)
                    raise ConfigError(f"{where}: `src`: there is no folder {source}")
        if settings.target_torch is None:
            settings = _with_own_torch(settings, folder)
    settings = _overridden(settings, from_environment(), ENVIRONMENT)
    return _overridden(settings, overrides or {}, "command line")


def _settings_in(table: Mapping[str, Any], file: Path, seen: tuple[Path, ...] = ()) -> Settings:
    """Return the settings in a table of `file`, over those of the file that it extends."""
    table = dict(table)
    base = table.pop("extend", None)
    own = read_table(table, file)
    if base is None:
        return own
    where = place_of(file, "extend")
    if not isinstance(base, str) or not base or "\0" in base:
        raise ConfigError(f"{where}: `extend`: must be a path in quotes")
    other = Path(os.path.normpath(file.parent / os.path.expanduser(base)))  # noqa: PTH111
    if other in (file, *seen):
        raise ConfigError(f"{where}: `extend`: {base} extends this file in turn")
    if not other.is_file():
        raise ConfigError(f"{where}: `extend`: there is no file {other}")
    below = _settings_in(_table(other), other, (*seen, file))
    merged = {name: _merged(name, below, own) for name in own.sources}
    return replace(
        below,
        **merged,
        config_file=file,
        bases=(other, *below.bases),
        sources={**below.sources, **own.sources},
    )


def _merged(option: str, below: Settings, own: Settings) -> Any:
    """Return the value of an option that a file sets: lists to extend grow, tables are merged."""
    value, before = getattr(own, option), getattr(below, option)
    if option.startswith("extend_"):
        return (*before, *value)
    return {**before, **value} if isinstance(value, dict) else value


def _folder(path: Path) -> Path:
    path = path.absolute()
    return path if path.is_dir() else path.parent


def _nearest_table(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Return the nearest configuration in a folder or above it, and its file."""
    for parent in (folder, *folder.parents):
        own = parent / "torchlint.toml"
        if own.is_file():
            return own, _table(own)
        shared = parent / "pyproject.toml"
        if shared.is_file() and "torchlint" in read_text(shared):
            table = _table_in_pyproject(shared)
            if table is not None:
                return shared, table
    return None


def _table(file: Path) -> dict[str, Any]:
    """Return the table of settings in a file that `--config` names, or in a `torchlint.toml`."""
    if file.name == "pyproject.toml":
        return _table_in_pyproject(file) or {}
    return parse(read_text(file), file)


def _table_in_pyproject(file: Path) -> dict[str, Any] | None:
    tool = parse(read_text(file), file).get("tool", {})
    table = tool.get("torchlint") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ConfigError(f"{file}: `tool.torchlint` must be a table")
    return table


def _with_own_torch(settings: Settings, folder: Path) -> Settings:
    """Set `target_torch` from the version of torch that the project around `folder` requires."""
    required = required_torch(folder)
    if required is None:
        return settings
    version, file = required
    sources = {**settings.sources, "target_torch": f"{file} (torch requirement)"}
    return replace(settings, target_torch=version, sources=sources)


def _overridden(settings: Settings, overrides: Mapping[str, Any], source: str) -> Settings:
    """Apply options to settings: `extend` lists grow, everything else is replaced."""
    if not overrides:
        return settings
    values = dict(overrides)
    for option in ("extend_select", "extend_ignore", "extend_exclude"):
        if option in values:
            values[option] = (*getattr(settings, option), *values[option])
    if "select" in values:
        values["extend_select"] = overrides.get("extend_select", ())
    sources = {**settings.sources, **dict.fromkeys(overrides, source)}
    return replace(settings, **values, sources=sources)


def from_environment() -> dict[str, Any]:
    """Return the settings in the environment, by field name; raises `ConfigError`."""
    values: dict[str, Any] = {}
    for option in option_names():
        text = os.environ.get(variable_of(option), "").strip()
        if not text or option in _TABLES:
            continue
        kind = KINDS[option]
        try:
            values[option] = kind.read(_parsed(text, kind.schema.get("type")))
        except ValueError as error:
            raise ConfigError(f"{variable_of(option)}: {error}") from None
    return values


def _parsed(text: str, kind: Any) -> Any:
    """Return a text as the type of a setting, or unchanged if it has another form."""
    if kind == "boolean":
        return _FLAGS.get(text.lower(), text)
    if kind == "array":
        return text.replace(",", " ").split()
    if kind == "integer":
        return int(text) if text.isdecimal() else text
    if kind == "number":
        return float(text) if text.replace(".", "", 1).isdecimal() else text
    return text
