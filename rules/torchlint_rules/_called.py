"""Which functions a file calls, asked once for all rules that look for some of them."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from torchlint.api import Script

__all__ = ["called", "calls_of"]


def called(script: Script) -> tuple[str, ...]:
    """Give the qualified names of all that a file calls, each once."""
    return script.once(_called)


def _called(script: Script) -> tuple[str, ...]:
    names = dict.fromkeys(script.name(call.func) for call in script.all(cst.Call))
    return tuple(name for name in names if name is not None)


def calls_of(script: Script, is_meant: Callable[[str], object]) -> list[cst.Call]:
    """Give the calls of the functions whose qualified names a test takes."""
    names = [name for name in called(script) if is_meant(name)]
    return [site.node for site in script.calls(*names)] if names else []
