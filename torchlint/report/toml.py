"""Values in TOML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


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
