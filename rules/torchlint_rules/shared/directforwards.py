"""Calls of `forward` that skip what calling the network itself would run."""

from __future__ import annotations

import libcst as cst

from torchlint.api import Finding, Fix, Script


def direct_forward(script: Script, code: str, call: cst.Call, what: str, because: str) -> Finding:
    """Return the finding, with its fix, for a call of `forward` that skips something."""
    func = cst.ensure_type(call.func, cst.Attribute)
    network = script.tree.brief(func.value)
    message = f"`{network}.forward` skips {what}: call `{network}` itself"
    start, end = script.span(func.value).end, script.span(func.attr).end
    fix = None
    if "#" not in script.tree.source.text[start:end]:
        edits = script.edits.delete(start, end)
        fix = Fix.unsafe("Call the network itself", edits, because=because)
    return Finding(code, script.span(call), message, fix)
