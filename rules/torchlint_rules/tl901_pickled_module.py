"""TL901: a checkpoint that pickles the whole network with its class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Final

import libcst as cst

from torchlint.api import Binding, CallSite, Edits, Finding, Fix, How, Kind, Rule, Script

_PICKLES: Final = ("pickle.dump", "dill.dump", "joblib.dump", "cloudpickle.dump")
"""What pickles whatever it gets; the network is the first argument."""


class PickledModule(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every network that is passed to `torch.save` or to pickle."""
        saves = [
            (site, network)
            for site in script.calls.of("torch.save")
            if (network := _network(script, site)) is not None
            and not _in_memory(script, site)
            and not _tests(script, site)
        ]
        loads = list(script.calls.of("torch.load")) if saves else []
        for site, network in saves:
            name = script.code(network)
            message = (
                f"this file pickles `{name}` with its class: only this very code can load it, and "
                f"torch.load refuses it by default since 2.6; save its `state_dict()`"
            )
            together = [one for one, other in saves if script.code(other) == name]
            fix = _fix(script, name, together, loads) if len(together) == len(saves) else None
            yield Finding(self.code, script.span(site.node), message, fix)
        for site in script.calls.of(*_PICKLES):
            given = site.node.args[0].value if site.node.args else None
            if given is not None and _is_network(script, given) and not _tests(script, site):
                message = (
                    f"this file pickles `{script.code(given)}` with its class: only this very code "
                    f"can load it; save its `state_dict()` with `torch.save`"
                )
                yield Finding(self.code, script.span(site.node), message)


def _network(script: Script, site: CallSite) -> cst.BaseExpression | None:
    """Return the network that a call pickles, None where it pickles none."""
    given = site.given("obj", 0)
    if given is None:
        return None
    if _is_network(script, given.value):
        return given.value
    value = script.values.value_of(given.value).node
    parts = value.elements if isinstance(value, (cst.Dict, cst.List, cst.Tuple)) else ()
    for part in parts:
        if _is_network(script, part.value):
            return part.value
    return None


def _is_network(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a value is a network, as what only comes from a file need not be."""
    roots = script.modules.roots(node)
    return script.kind(node) is Kind.MODULE and not all(
        isinstance(root, cst.Call) and script.name(root.func) == "torch.load" for root in roots
    )


def _in_memory(script: Script, site: CallSite) -> bool:
    """Return whether a call writes to a buffer in memory."""
    given = site.given("f", 1)
    value = script.values.value_of(given.value).node if given is not None else None
    return isinstance(value, cst.Call) and script.name(value.func) in ("io.BytesIO",)


def _tests(script: Script, site: CallSite) -> bool:
    """Return whether a test checks that a network can be pickled."""
    function = script.scopes.function(site.node)
    return function is not None and function.name.value.startswith("test_")


def _place(script: Script, site: CallSite) -> str:
    """Return the path that a call writes to or reads from, as source text."""
    given = site.given("f")
    if given is None:
        return ""
    if isinstance(given.value, cst.Name):
        for binding in script.scopes.reaching(given.value):
            opened = binding.value
            if binding.how is How.WITH and isinstance(opened, cst.Call) and opened.args:
                return script.values.code_of(opened.args[0].value)
    return script.values.code_of(given.value)


# -- the fix ------------------------------------------------------------------


def _fix(
    script: Script, name: str, saves: Sequence[CallSite], loads: Sequence[CallSite]
) -> Fix | None:
    """Return the fix of all places that write and read a file, None if they do not match."""
    places = {_place(script, site) for site in (*saves, *loads)}
    if not loads or len(places) != 1 or "" in places:
        return None
    edits: Edits = ()
    saved: set[Binding] = set()
    for site in saves:
        given = site.given("obj", 0)
        if given is None or not isinstance(given.value, cst.Name):
            return None
        saved.update(script.scopes.reaching(given.value))
        edits = (*edits, *script.edits.insert(script.span(given.value).end, ".state_dict()"))
    for site in loads:
        read = _loaded(script, site, name, saved)
        if read is None:
            return None
        edits = (*edits, *read)
    title = "Save and load the state dict"
    return Fix.unsafe(
        title, edits, because="files that were written before cannot be read any more"
    )


def _loaded(script: Script, site: CallSite, name: str, saved: Set[Binding]) -> Edits | None:
    """Return the edits that load a state dict into an existing network with a given name."""
    line = script.tree.parent(site.node)
    if not isinstance(line, cst.Assign) or len(line.targets) != 1:
        return None
    target = line.targets[0].target
    if not isinstance(target, cst.Name) or target.value != name:
        return None
    before = script.scopes.reaching_name(name, line, script.scopes.scope(target))
    there = {binding for binding in before if binding.node is not line}
    if not there or not there <= saved:
        return None
    edits: Edits = script.edits.delete(script.span(target).start, script.span(site.node).start)
    edits = (*edits, *script.edits.insert(script.span(site.node).start, f"{name}.load_state_dict("))
    trusted = site.given("weights_only")
    if trusted is not None and site.argument("weights_only").equals(False):
        edits = (*edits, *script.edits.replace(trusted.value, "True"))
    return (*edits, *script.edits.insert(script.span(site.node).end, ")"))
