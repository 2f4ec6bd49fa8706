"""Draws of NumPy: whether a call gives an array of random numbers, or a single one."""

from __future__ import annotations

from typing import Final

from torchlint.api import CallSite

_BY_SIDES: Final = frozenset({"numpy.random.rand", "numpy.random.randn"})


def draws_array(site: CallSite) -> bool:
    """Return whether a call of `numpy.random` says how many numbers it draws."""
    if site.name in _BY_SIDES:
        return bool(site.node.args)
    return site.given("size") is not None
