"""TL315: attention weights that are computed and discarded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, How, Rule, Script, State

_LAYER: Final = "torch.nn.MultiheadAttention"
_POSITION: Final = 4


class DiscardedAttentionWeights(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every call of an attention layer that only uses the first result."""
        if not any(script.calls.of(_LAYER)):
            return
        for call in script.tree.all(cst.Call):
            if len(call.args) < 2 or not _is_first_only(script, call):
                continue
            if _is_tried_once(script, call):
                continue
            layer = script.values.value_of(call.func).node
            if not isinstance(layer, cst.Call) or script.name(layer.func) != _LAYER:
                continue
            if script.modules.may_be_hooked(call.func):
                continue
            wanted = script.calls.at(call).argument("need_weights", _POSITION)
            if wanted.state is State.ABSENT or wanted.equals(True):
                yield self._finding(script, call, layer)

    def _finding(self, script: Script, call: cst.Call, layer: cst.Call) -> Finding:
        site = script.calls.at(call)
        given = site.given("need_weights", _POSITION)
        fix = None
        if given is not None or not site.has_splat:
            edits = script.edits.set_argument(call, given, "need_weights", "False")
            title = "Pass `need_weights=False`"
            regions = [*script.tree.modules, *script.tree.all(cst.FunctionDef)]
            path = script.code(call.func)
            given_away = (script.values.visibility.receiver(region, path) for region in regions)
            unseen = next((each for each in given_away if each is not None), None)
            dropout = script.calls.at(layer).argument("dropout")
            if unseen is not None:
                because = (
                    f"`{script.tree.brief(unseen.func)}` gets the layer and might read its weights"
                )
                fix = Fix.unsafe(title, edits, because=because)
            elif dropout.state is State.ABSENT or dropout.literal in (0, 0.0):
                fix = Fix.close(title, edits, because="another kernel rounds differently")
            else:
                because = "dropout may draw other elements under the same seed"
                fix = Fix.unsafe(title, edits, because=because)
        named = script.code(call.func)
        named = f"`{named}`" if "(" not in named else "the layer"
        message = (
            f"{named} stores attention weights that are thrown away: pass `need_weights=False`"
        )
        return Finding(self.code, script.span(call), message, fix)


def _is_tried_once(script: Script, call: cst.Call) -> bool:
    """Return whether a call outside functions and loops runs a layer once, to look at it."""
    in_loop = next(script.loops.around(call), None) is not None
    return script.scopes.function(call) is None and not in_loop


def _is_first_only(script: Script, call: cst.Call) -> bool:
    """Return whether only the first result of a call is used."""
    holder = script.tree.parent(call)
    if isinstance(holder, cst.Subscript):
        return holder.value is call and script.values.key(holder) == 0
    if not isinstance(holder, cst.Assign) or len(holder.targets) != 1:
        return False
    target = holder.targets[0].target
    if isinstance(target, cst.Name):
        uses = _uses(script, target)
        holders = [script.tree.parent(use) for use in uses or ()]
        return bool(holders) and all(
            isinstance(each, cst.Subscript) and script.values.key(each) == 0 for each in holders
        )
    if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
        return False
    second = target.elements[1].value
    return isinstance(second, cst.Name) and _uses(script, second) == []


def _uses(script: Script, target: cst.Name) -> list[cst.Name] | None:
    """Return the reads of an assigned name, None if it may be read elsewhere."""
    binding = script.scopes.stored(target)
    function = script.scopes.function(target)
    if binding is None or binding.how not in (How.ASSIGN, How.UNPACKED):
        return None
    outward = script.scopes.scope(target).outward
    if (function is None and target.value != "_") or target.value in outward:
        return None
    return list(script.scopes.uses(binding, script.scopes.home(target)))
