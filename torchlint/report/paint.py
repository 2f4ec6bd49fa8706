"""Colors and links for terminals, plain text elsewhere.

Red, green, magenta, bold and dim are readable on light and dark terminals: of the seven palettes in
common use, yellow and cyan fade on white, and blue on black.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import click

_SEVERITIES: Final = {"error": "red", "warning": "magenta"}
_SAFETIES: Final = {"exact": "green", "unsafe": "magenta"}


class Paint(NamedTuple):
    """The style of each part of a report."""

    color: bool = False
    links: bool = False
    width: int | None = None
    """The columns of the terminal, None elsewhere."""

    def _style(
        self, text: str, fg: str | None = None, bold: bool = False, dim: bool = False
    ) -> str:
        if not (self.color and text):
            return text
        return click.style(text, fg=fg, bold=bold or None, dim=dim or None)

    def path(self, text: str) -> str:
        """Style the path of a file."""
        return self._style(text, bold=True)

    def code(self, text: str, link: str | None = None, severity: str = "error") -> str:
        """Style the code of a rule, with `link` where the terminal can open it."""
        styled = self.severity(text, severity)
        return f"\x1b]8;;{link}\x1b\\{styled}\x1b]8;;\x1b\\" if self.links and link else styled

    def severity(self, text: str, severity: str) -> str:
        """Style a word by the severity of a finding."""
        return self._style(text, _SEVERITIES.get(severity), bold=True)

    def safety(self, text: str, word: str) -> str:
        """Style the safety class of a fix."""
        return self._style(text, _SAFETIES.get(word), bold=word == "close")

    def gutter(self, text: str) -> str:
        """Style line numbers and the border beside the source."""
        return self._style(text, dim=True)

    def mark(self, text: str) -> str:
        """Style the marks under the range of a finding."""
        return self._style(text, "red", bold=True)

    def note(self, text: str) -> str:
        """Style a note and the marks of its range."""
        return self._style(text, "magenta", bold=True)

    def help(self, text: str) -> str:
        """Style the word before the description of a fix."""
        return self._style(text, "green", bold=True)

    def removed(self, text: str) -> str:
        """Style a line that a fix removes."""
        return self._style(text, "red")

    def added(self, text: str) -> str:
        """Style a line that a fix adds."""
        return self._style(text, "green")

    def strong(self, text: str) -> str:
        """Style the most important words."""
        return self._style(text, bold=True)

    def warn(self, text: str) -> str:
        """Style a warning."""
        return self._style(text, "magenta")
