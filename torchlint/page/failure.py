"""The error for a malformed page."""

from __future__ import annotations


class PageError(Exception):
    """A malformed page; the message begins with its file and line."""

    def __init__(self, file: str, line: int, said: str) -> None:
        super().__init__(f"{file}:{line}: {said}")
