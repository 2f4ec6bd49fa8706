"""Text that cannot steer a terminal: control characters written out."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["github_message", "github_property", "printable", "shown"]

_PLAIN: Final = re.compile(r"[ -~]*")


def shown(character: str) -> str:
    """Give a character as it is printed: itself, or its escape where it would not be visible."""
    if character == " " or character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


def printable(text: str) -> str:
    """Give `text` on one line, with everything that is not visible written as an escape."""
    return text if _PLAIN.fullmatch(text) else "".join(map(shown, text))


def github_message(text: str) -> str:
    """Give `text` as the message of a GitHub workflow command."""
    return "".join(
        f"%{ord(character):02X}" if character in "%\r\n" else shown(character) for character in text
    )


def github_property(text: str) -> str:
    """Give `text` as a property's value in a GitHub workflow command."""
    return github_message(text).replace(":", "%3A").replace(",", "%2C")
