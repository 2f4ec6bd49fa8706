"""TL508: an optimizer that holds frozen parameters."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Kind, Note, Optimizer, Rule, Script, receiver_of


class FrozenParametersInOptimizer(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every optimizer of a partly frozen network."""
        yield from self._misspelt(script)
        for optimizer in script.optimizers:
            arg = optimizer.given("params", 0)
            network = _all_of(arg.value) if arg is not None else None
            if arg is None or network is None:
                continue
            if optimizer.restores or optimizer.saves or optimizer.gets_more_groups:
                continue
            freeze = script.modules.freezing.frozen(network, optimizer.node)
            if freeze is None:
                continue
            what = script.code(network)
            part = f"a part of `{what}`" if freeze.partial else f"`{freeze.path}`"
            if freeze.path == what:
                part = f"most of `{what}`"
            text = f"[p for p in {what}.parameters() if p.requires_grad]"
            message = (
                f"{optimizer.label} gets all parameters of `{what}`, but {part} is "
                f"frozen: each step goes over parameters that never learn; pass `{text}`"
            )
            edits = script.edits.replace(arg.value, text)
            fix = (
                _fix(script, optimizer, network, edits)
                if script.program.devices.framework == "none"
                else None
            )
            note = Note(script.span(freeze.node), "frozen here")
            yield Finding(self.code, script.span(arg.value), message, fix, (note,))

    def _of_network(self, script: Script, line: cst.Assign, network: str) -> Finding:
        call = f"{network}.requires_grad_({script.code(line.value)})"
        message = f"a network has no `requires_grad`, so this changes no parameter: call `{call}`"
        edits = script.edits.replace(line, call)
        fix = Fix.unsafe("Call the method", edits, because="the line takes effect then")
        return Finding(self.code, script.span(line), message, fix)

    def _misspelt(self, script: Script) -> Iterator[Finding]:
        for line in script.tree.all(cst.Assign):
            target = line.targets[0].target
            if not isinstance(target, cst.Attribute) or script.code(target.value) == "self":
                continue
            of_network = script.kind(target.value) is Kind.MODULE and len(line.targets) == 1
            if of_network and target.attr.value == "requires_grad":
                yield self._of_network(script, line, script.code(target.value))
            if target.attr.value != "require_grad":
                continue
            message = (
                f"`{script.code(target)}` is a new attribute that nothing reads, so nothing is "
                "frozen: write `requires_grad`"
            )
            edits = script.edits.replace(target.attr, "requires_grad")
            because = "what has been learning until now really is frozen then"
            fix = Fix.unsafe("Write `requires_grad`", edits, because=because)
            yield Finding(self.code, script.span(target), message, fix)


def _fix(script: Script, optimizer: Optimizer, network: cst.BaseExpression, edits: Edits) -> Fix:
    """Return the fix: exact if no code of another module can unfreeze or read the parameters."""
    title, held = "Hand over what learns", script.tree.parent(optimizer.node)
    made = held.targets[0].target if isinstance(held, cst.Assign) else None
    paths = [script.code(each) for each in (network, made) if each is not None]
    regions = [*script.tree.modules, *script.tree.all(cst.FunctionDef)]
    found = (script.values.visibility.receiver(region, *paths) for region in regions)
    unseen = next((each for each in found if each is not None), None)
    if unseen is not None:
        called = script.tree.brief(unseen.func)
        because = f"`{called}` is not visible here and might unfreeze a part later"
        return Fix.unsafe(title, edits, because=because)
    if optimizer.is_stepped_unseen:
        because = "code that is not visible here gets the optimizer and might load an older state"
        return Fix.unsafe(title, edits, because=because)
    return Fix.exact(title, edits)


def _all_of(value: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the network of `network.parameters()`."""
    plain = isinstance(value, cst.Call) and not value.args
    return receiver_of(value, "parameters") if plain else None
