"""Errors of `torchlint new`."""

from __future__ import annotations


class ScaffoldError(Exception):
    """A rule or pack that cannot be written; the message says why, and nothing was written."""
