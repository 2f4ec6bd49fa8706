"""TL316: code that the compiler cannot put into one graph, inside what is compiled."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import Finding, Frame, Impact, Note, Rule, Script, receiver_of
from torchlint_rules.shared.breakingconstructs import CONSTRUCTS, NAMES
from torchlint_rules.shared.graphbreaks import GraphBreak, graph_breaks
from torchlint_rules.shared.grouping import joined


class GraphBreakInCompiled(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every construct that ends the graph of compiled code."""
        alike: dict[str, list[tuple[cst.CSTNode, Finding]]] = {}
        for found, frame in graph_breaks(script):
            finding = self._finding(script, found, frame)
            alike.setdefault(found.construct, []).append((frame.function, finding))
        for of_one_kind in alike.values():
            yield from joined(script, of_one_kind, ("break", "breaks"))

    def _finding(self, script: Script, found: GraphBreak, frame: Frame) -> Finding:
        construct = CONSTRUCTS[found.construct]
        lost = _lost(script, found, frame)
        impact: Impact = "high" if lost is not None else "medium"
        if lost is None and found.construct == "backward":
            impact = "low"
        cost = "ends the compiled graph here"
        if lost is not None:
            cost = f"keeps the compiler from compiling any of `{lost}`"
        if (
            construct.waits
            and script.program.devices.can_use_accelerator
            and not _is_on_host(script, found.node)
        ):
            cost += " and waits for the device"
        message = (
            f"`{script.tree.brief(found.node)}` {cost} (torch: {NAMES[construct.name]}, "
            f"{construct.name}): {construct.cure}"
        )
        return Finding(
            self.code, script.span(found.node), message, None, _notes(script, frame), impact=impact
        )


def _lost(script: Script, found: GraphBreak, frame: Frame) -> str | None:
    """Return the name of the function that is not compiled because of a break."""
    function = script.modules.compiled.unbroken(found.node) or frame.skipped
    if found.skips:
        function = frame.function
    if function is None:
        return None
    owner = script.scopes.class_of(function)
    name = function.name.value
    return name if owner is None else f"{owner.name.value}.{name}"


def _is_on_host(script: Script, node: cst.CSTNode) -> bool:
    """Return whether what is read is in host memory already."""
    read = node
    if isinstance(node, cst.Call):
        owner = receiver_of(node) if script.name(node.func) is None else None
        read = owner or (node.args[0].value if node.args else node)
    return isinstance(read, cst.BaseExpression) and script.values.placement.on_host(read)


def _notes(script: Script, frame: Frame) -> tuple[Note, ...]:
    """Return a note about where the code is compiled."""
    node: cst.CSTNode = frame.compilation.node
    return (Note(script.span(node), "it is compiled here"),)
