"""Validating a table of settings: known keys, right types, clear errors."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from torchlint.config.settings import (
    ENVIRONMENT,
    ConfigError,
    Settings,
    key_of,
    nearest,
    option_names,
    target_version,
    variable_of,
)

DEVICES: Final = ("auto", "cuda", "cpu", "mps", "xpu")
"""The values of `target-device`."""
FORMATS: Final = tuple(
    (
        "full concise grouped json json-lines sarif github gitlab junit markdown rdjson azure "
        "pylint"
    ).split()
)
"""The values of `output-format`."""
COLORS: Final = ("auto", "always", "never")
"""The values of `color`."""
ORDERS: Final = ("file", "impact", "cost", "code")
"""The values of `sort`."""
SEVERITIES: Final = ("error", "warning", "note", "off")
"""The values of `severity`."""
STEPS: Final = ("high", "medium", "low", "error", "warning", "note")
"""The values of `fail-on`: three steps, each by its impact or its severity."""
MOST_SECONDS: Final = 1_000_000
"""The highest value of `file-timeout`."""
_WITHOUT_HEADING: Final = ": torchlint.toml has no heading `[tool.torchlint]`, only its keys"
_PATHS: Final = ("project_root", "output_file", "baseline", "cache_dir")


def read_table(table: Mapping[str, Any], file: Path) -> Settings:
    """Return the defaults with the settings in a table of `file`; raises `ConfigError`.

    Paths are relative to the folder of the file, and must stay in it.
    """
    values = read_values(table, partial(place_of, file))
    values.update(
        {
            option: _path_beside(file, option, values[option])
            for option in _PATHS
            if option in values
        }
    )
    return Settings(**values, config_file=file, sources=dict.fromkeys(values, str(file)))


def read_values(table: Mapping[str, Any], place_of_key: Callable[[str], str]) -> dict[str, Any]:
    """Return the options that a table sets, by field name; raises `ConfigError`.

    `place_of_key` returns the place of a key, for the message.
    """
    options = {key_of(option): option for option in option_names()}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in options:
            hint = nearest(key, options) if key != "tool" else _WITHOUT_HEADING
            raise ConfigError(f"{place_of_key(key)}: unknown key `{key}`{hint}")
        option = options[key]
        try:
            values[option] = KINDS[option].read(value)
        except ValueError as error:
            raise ConfigError(f"{place_of_key(key)}: `{key}`: {error}") from None
    return values


def place_of(file: Path, key: str, word: str | None = None) -> str:
    """Return `file:row` of a key, or of a word in its value."""
    row = line_of(read_text(file), key, word)
    return str(file) if row is None else f"{file}:{row}"


def place(settings: Settings, option: str, word: str | None = None) -> str:
    """Return where an option was set: `pyproject.toml:12`, or the option of the command line."""
    if option in settings.rules or option not in option_names():
        file = settings.config_file
        return place_of(file, option) if file is not None else option
    source = settings.source_of(option)
    if source == ENVIRONMENT:
        return variable_of(option)
    if source == "command line" or settings.config_file is None:
        return f"--{key_of(option)}"
    return place_of(_file_of(settings, option), key_of(option), word)


def _file_of(settings: Settings, option: str) -> Path:
    """Return the file that sets an option: the configuration, or one that it extends."""
    file = Path(settings.source_of(option))
    return file if file in settings.bases else settings.config_file or file


def _path_beside(file: Path, option: str, path: Path) -> Path:
    """Return a path relative to the folder of a configuration; raises `ConfigError`.

    The path must stay in that folder, so that a configuration in a foreign repository cannot make
    torchlint read or write elsewhere. Only the root of the project may be the folder itself.
    """
    found = file.parent / path
    home = os.path.realpath(file.parent)
    inside = os.path.join(home, "")  # noqa: PTH118
    key = key_of(option)
    place = os.path.realpath(found)
    if not (place.startswith(inside) or (option == "project_root" and place == home)):
        raise ConfigError(
            f"{place_of(file, key)}: `{key}`: {path} lies outside of the folder of this file, "
            "which a configuration file cannot name"
        )
    if found.exists() and not (found.is_file() or found.is_dir()):
        raise ConfigError(f"{place_of(file, key)}: `{key}`: {path} is neither file nor folder")
    if option == "project_root" and not found.is_dir():
        raise ConfigError(f"{place_of(file, key)}: `{key}`: there is no folder {path}")
    return found


def _words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError("must be a list of strings")
    return tuple(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _torch(value: Any) -> tuple[int, int]:
    if not isinstance(value, str):
        raise ValueError('must be a version in quotes such as "2.4"')
    return target_version(value)


def _one_of(words: Sequence[str], value: Any) -> str:
    if not isinstance(value, str) or value not in words:
        hint = nearest(value, words) if isinstance(value, str) else ""
        raise ValueError(f"must be one of {', '.join(words)}{hint}")
    return value


def _path(value: Any) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("must be a path in quotes")
    return Path(value)


def _positive(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError("must be a whole number above 0")
    return value


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= MOST_SECONDS:
        raise ValueError(f"must be seconds, {MOST_SECONDS:.0f} at most, or 0 for no limit")
    return value  # type: ignore[no-any-return]


def _by_pattern(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise ValueError("must be a table of patterns, each with a list of codes")
    try:
        return {pattern: _words(codes) for pattern, codes in value.items()}
    except ValueError:
        raise ValueError('needs a list of codes for each pattern: {"tests/*" = ["TL2"]}') from None


def _by_rule(value: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        raise ValueError("must hold one table for each rule, by its name")
    return {name: dict(options) for name, options in value.items()}


def _version(value: Any) -> str:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    text = value if isinstance(value, str) else ""
    try:
        SpecifierSet(text if re.match(r"\s*[<>=!~]", text) else f"=={text}")
    except InvalidSpecifier:
        raise ValueError('must be a version of torchlint such as "0.2.0" or ">=0.2"') from None
    return text


def _severities(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("must be a table of codes, each with a severity")
    return {word: _one_of(SEVERITIES, severity) for word, severity in value.items()}


class Kind(NamedTuple):
    """How the value of an option is read, and its JSON schema."""

    read: Callable[[Any], Any]
    schema: Mapping[str, Any]


def _choice(words: Sequence[str]) -> Kind:
    return Kind(partial(_one_of, words), {"enum": list(words)})


_STRINGS: Final = {"type": "array", "items": {"type": "string"}}
_WORDS: Final = Kind(_words, _STRINGS)
_FLAG: Final = Kind(_flag, {"type": "boolean"})
_PATH: Final = Kind(_path, {"type": "string", "minLength": 1})

KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(option_names(), _WORDS),
    "per_file_ignores": Kind(_by_pattern, {"type": "object", "additionalProperties": _STRINGS}),
    "severity": Kind(
        _severities, {"type": "object", "additionalProperties": {"enum": list(SEVERITIES)}}
    ),
    "target_torch": Kind(_torch, {"type": "string", "pattern": r"^[0-9]+\.[0-9]+(\.[0-9]+)?$"}),
    "target_device": _choice(DEVICES),
    "preview": _FLAG,
    "unsafe_fixes": _FLAG,
    "ignore_suppressions": _FLAG,
    "program": _FLAG,
    "project_root": _PATH,
    "respect_gitignore": _FLAG,
    "force_exclude": _FLAG,
    "required_version": Kind(_version, {"type": "string"}),
    "output_format": _choice(FORMATS),
    "output_file": _PATH,
    "statistics": _FLAG,
    "baseline": _PATH,
    "sort": _choice(ORDERS),
    "show_low": _FLAG,
    "fail_on": _choice(STEPS),
    "exit_zero": _FLAG,
    "jobs": Kind(_positive, {"type": "integer", "minimum": 1}),
    "file_timeout": Kind(_seconds, {"type": "number", "minimum": 0, "maximum": MOST_SECONDS}),
    "no_cache": _FLAG,
    "cache_dir": _PATH,
    "quiet": _FLAG,
    "verbose": _FLAG,
    "color": _choice(COLORS),
    "rules": Kind(_by_rule, {"type": "object", "additionalProperties": {"type": "object"}}),
}
"""Every option, by its field of `Settings`."""


def read_text(path: Path) -> str:
    """Return the text of a configuration file; raise `ConfigError` if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        row = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{row}: not UTF-8 text") from None


def parse(text: str, path: Path) -> dict[str, Any]:
    """Parse a TOML text; raise `ConfigError` with the line of a mistake."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason, _, place = str(error).partition(" (at ")
        row = re.match(r"line (\d+)", place)
        last = text.rstrip().count("\n") + 1
        raise ConfigError(f"{path}:{row[1] if row else last}: not valid TOML: {reason}") from None
    except RecursionError:
        raise ConfigError(f"{path}: not valid TOML: nested too deeply") from None
    except ValueError:
        raise ConfigError(f"{path}: not valid TOML: a number has too many digits") from None


def line_of(text: str, key: str, word: str | None = None) -> int | None:
    """Return the row that sets `key` (or is its table header), or the row of `word` after it."""
    quoted = rf"""(?:["']{re.escape(key)}["']|{re.escape(key)})"""
    for pattern in (rf"^\s*{quoted}\s*[=.]", rf"^\s*\[.*?{quoted}\s*[\].]", rf"{quoted}\s*="):
        found = re.search(pattern, text, re.MULTILINE)
        if found is not None:
            start = found.end() - len(found[0].lstrip())
            if word is not None:
                later = re.search(rf"""["']{re.escape(word)}["']""", text[start:])
                start += later.start() if later is not None else 0
            return text.count("\n", 0, start) + 1
    return None


def schema(descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Return the schema of `torchlint.toml`; `descriptions` are by field name."""
    extend = {"type": "string", "minLength": 1, "description": "A file to take settings from."}
    properties = {"extend": extend}
    for option, kind in KINDS.items():
        told = {"description": descriptions[option]} if option in descriptions else {}
        properties[key_of(option)] = {**kind.schema, **told}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "torchlint",
        "description": "Settings of torchlint, in torchlint.toml or under tool.torchlint.",
        "type": "object",
        "properties": dict(sorted(properties.items())),
        "additionalProperties": False,
    }
