"""How old a file's timestamp must be before an equal one proves that nothing changed."""

from __future__ import annotations

from typing import Final

TIMESTAMP_MARGIN: Final = 2_000_000_000
"""Nanoseconds. File systems store times with up to two seconds of granularity, so a file written
shortly before it was read can change again and keep its timestamp.
"""
