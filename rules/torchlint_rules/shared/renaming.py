"""Calls of functions that have another name now, renamed together with their imports."""

from __future__ import annotations

import libcst as cst

from torchlint.api import Edits, Script, root_of


def renamed(
    script: Script, call: cst.Call, new: str, added: tuple[str, str] | None = None
) -> Edits | None:
    """Write the new qualified name of a called function, and a keyword that it needs.

    None if the import, or another use of it, cannot follow.
    """
    func = call.func
    if isinstance(func, cst.Attribute):
        word = _spelling(script, func, new)
        if word is None:
            return None
        return (*word, *_with_keyword(script, call, added))
    binding = script.scopes.only(func)
    line = binding.node
    if not isinstance(line, cst.ImportFrom) or isinstance(line.names, cst.ImportStar):
        return None
    module, _, last = new.rpartition(".")
    old = (script.name(func) or "").rpartition(".")[2]
    alias = next((each for each in line.names if each.evaluated_name == old), None)
    if alias is None or line.module is None:
        return None
    edits: Edits = ()
    if script.code(line.module) != module:
        if len(line.names) > 1:
            return None
        edits = script.edits.replace(line.module, module)
    if last != old:
        edits = (*edits, *script.edits.replace(alias.name, last))
    for use in script.scopes.uses(binding):
        caller = script.tree.parent(use)
        if added and not (isinstance(caller, cst.Call) and caller.func is use):
            return None
        if alias.asname is None and last != old:
            edits = (*edits, *script.edits.replace(use, last))
        if isinstance(caller, cst.Call):
            edits = (*edits, *_with_keyword(script, caller, added))
    return edits


def _spelling(script: Script, func: cst.Attribute, new: str) -> Edits | None:
    """Write a new qualified name in place of a dotted one, from a module that is imported."""
    module, _, last = new.rpartition(".")
    if script.name(func.value) == module:
        return script.edits.replace(func.attr, last)
    root = root_of(func)
    known = script.name(root)
    if known is not None and new.startswith(f"{known}."):
        return script.edits.replace(func, script.code(root) + new[len(known) :])
    imported = script.edits.importing("torch", at=func)
    if imported is None:
        return None
    word, edits = imported
    return (*edits, *script.edits.replace(func, word + new[len("torch") :]))


def _with_keyword(script: Script, call: cst.Call, added: tuple[str, str] | None) -> Edits:
    return script.edits.with_keyword(call, *added) if added is not None else ()
