"""TL317: compiled code that torch compiles again in every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Note, Rule, Script
from torchlint_rules.tl317_recompiled_each_step.compiledstate import Change, changes

_CURES: Final = {
    "counter": "count in a buffer, or in the training loop",
    "list": "keep it outside of the compiled code, or only the last one",
    "setting": "pass it as a tensor, or set it once in a while",
}
_BECAUSE: Final = "what reads it gets a tensor instead of a number"


class RecompiledEachStep(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag what changes in every step although compiled code is guarded on it."""
        if not script.modules.compiled.all:
            return
        for found in changes(script):
            message = (
                f"`{script.tree.brief(found.node)}` makes torch compile `{_named(script, found)}` "
                f"again in every step, and run it uncompiled after 8 times: {_CURES[found.kind]}"
            )
            notes = (Note(script.span(found.frame.compilation.node), "it is compiled here"),)
            yield Finding(self.code, script.span(found.node), message, _fix(script, found), notes)


def _named(script: Script, found: Change) -> str:
    """Return the name of the compiled function that reads what changes."""
    function = found.frame.function
    owner = script.scopes.class_of(function)
    return f"{owner.name.value}.{function.name.value}" if owner else function.name.value


def _fix(script: Script, found: Change) -> Fix | None:
    """Make a counter a buffer where the network only counts with it."""
    edits = _buffer(script, found)
    if edits is None:
        return None
    return Fix.unsafe("Count in a buffer", *edits, because=_BECAUSE)


def _buffer(script: Script, found: Change) -> tuple[Edits, ...] | None:
    start = found.start
    if start is None or not isinstance(start.targets[0].target, cst.Attribute):
        return None
    home, word = script.scopes.function(start), start.targets[0].target.attr.value
    if home is None or home.name.value != "__init__" or len(start.targets) != 1:
        return None
    if not script.edits.stands_alone(script.tree.statement(start)) or _is_read(script, found, word):
        return None
    imported = script.edits.importing("torch", at=start)
    if imported is None:
        return None
    holder = script.code(start.targets[0].target.value)
    code = (
        f'{holder}.register_buffer("{word}", {imported[0]}.tensor({script.code(start.value)}), '
        "persistent=False)"
    )
    return script.edits.replace(start, code), imported[1]


def _is_read(script: Script, found: Change, word: str) -> bool:
    """Return whether compiled code reads a counter beside counting."""
    functions = {frame.function for frame in script.modules.compiled.frames}
    return any(
        script.scopes.function(use) in functions and not script.tree.inside(use, found.node)
        for use in script.functions.attributes(word)
    )
