"""Text that cannot control a terminal: invisible characters become escapes."""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = re.compile(r"[ -~]*")


def shown(character: str) -> str:
    """Return a character, or its escape where it is not visible."""
    if character == " " or character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


def printable(text: str) -> str:
    """Return `text` on one line, with everything invisible escaped."""
    return text if _PLAIN.fullmatch(text) else "".join(map(shown, text))


def github_message(text: str) -> str:
    """Return `text` as the message of a GitHub workflow command."""
    return "".join(
        f"%{ord(character):02X}" if character in "%\r\n" else shown(character) for character in text
    )


def github_property(text: str) -> str:
    """Return `text` as a property's value in a GitHub workflow command."""
    return github_message(text).replace(":", "%3A").replace(",", "%2C")
