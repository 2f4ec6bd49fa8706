"""The output formats by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torchlint.report.paint import Paint
    from torchlint.report.report import Report

__all__ = ["BRIEF", "STATISTICS", "TEXT", "formatter", "render"]

_FORMATTERS: Final[Mapping[str, str]] = {
    "full": "torchlint.report.full:full",
    "concise": "torchlint.report.lists:concise",
    "grouped": "torchlint.report.lists:grouped",
    "json": "torchlint.report.ruffjson:as_json",
    "json-lines": "torchlint.report.ruffjson:as_json_lines",
    "sarif": "torchlint.report.sarif:sarif",
    "github": "torchlint.report.github:github",
    "gitlab": "torchlint.report.gitlab:gitlab",
    "junit": "torchlint.report.junit:junit",
}
_STATISTICS: Final[Mapping[str, str]] = {
    "full": "torchlint.report.statistics:statistics",
    "concise": "torchlint.report.statistics:statistics",
    "grouped": "torchlint.report.statistics:statistics",
    "json": "torchlint.report.statistics:statistics_json",
    "json-lines": "torchlint.report.statistics:statistics_json_lines",
}

TEXT: Final = frozenset({"full", "concise", "grouped"})
"""The formats for people: only these have colours and a last line."""
BRIEF: Final = TEXT | {"github", "junit"}
"""The formats that say nothing of a rule but its code and name."""
STATISTICS: Final = frozenset(_STATISTICS)
"""The formats that statistics come in."""


def render(report: Report, paint: Paint, name: str, *, statistics: bool = False) -> str:
    """Give a report in the format `name`."""
    return formatter(name, statistics=statistics)(report, paint)


def formatter(name: str, *, statistics: bool = False) -> Callable[[Report, Paint], str]:
    """Import what gives a report in the format `name`."""
    module, function = (_STATISTICS if statistics else _FORMATTERS)[name].split(":")
    found: Callable[[Report, Paint], str] = getattr(import_module(module), function)
    return found
