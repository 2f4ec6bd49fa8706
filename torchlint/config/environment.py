"""Settings from environment variables such as `TORCHLINT_OUTPUT_FORMAT`."""

from __future__ import annotations

import os
from typing import Any, Final

from torchlint.config.settings import ConfigError, option_names, variable_of
from torchlint.config.values import KINDS

_TABLES: Final = frozenset({"per_file_ignores", "severity", "rules"})
"""Options that only files and the command line set."""
_FLAGS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


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
