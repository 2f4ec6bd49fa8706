"""Reading TOML files, and finding the line of a key or a word for error messages."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from torchlint.config.settings import ConfigError


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
