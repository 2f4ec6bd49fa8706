"""The severity of a finding: by the impact of its rule, or by the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_BY_IMPACT: Final[Mapping[str, str]] = {"high": "error", "medium": "warning", "low": "note"}
_ORDER: Final = ("note", "warning", "error")


def severity_of(impact: str, chosen: str | None = None) -> str:
    """Return `error`, `warning` or `note`: what the settings chose, else by the impact."""
    return chosen or _BY_IMPACT.get(impact, "warning")


def at_least(severity: str, step: str) -> bool:
    """Return whether a severity reaches a step, which may be an impact as well."""
    return _ORDER.index(severity) >= _ORDER.index(_BY_IMPACT.get(step, step))
