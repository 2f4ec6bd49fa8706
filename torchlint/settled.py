"""How long a file must be left alone before its times tell whether it was changed."""

from __future__ import annotations

from typing import Final

__all__ = ["SETTLED"]

SETTLED: Final = 2_000_000_000
"""Nanoseconds. The clocks of file systems tick, the slowest every two seconds: a file that was
written just before it was read can be written again and keep its times.
"""
