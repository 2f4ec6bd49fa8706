"""TL506: gradients that are clipped in the wrong place or one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Act,
    Edits,
    Finding,
    Fix,
    Impact,
    Kind,
    Rule,
    Script,
    method_of,
    receiver_of,
)
from torchlint_rules.shared.accumulators import clips_of_parts
from torchlint_rules.shared.renaming import renamed
from torchlint_rules.tl506_misplaced_clipping.cliporder import (
    Clip,
    into_closing,
    misplaced,
    without_effect,
)

_OLD: Final = "torch.nn.utils.clip_grad_norm"
_NEW: Final = "torch.nn.utils.clip_grad_norm_"
_CLIPS: Final = (_NEW, "torch.nn.utils.clip_grad_value_", _OLD)
_NORMS: Final = ("torch.norm", "torch.linalg.norm", "torch.linalg.vector_norm")
_OPTIONS: Final = {"lightning": "gradient_clip_val=...", "transformers": "max_grad_norm=..."}
"""The options of frameworks that clip gradients themselves."""
_GRADIENTS: Final = frozenset("grad grads gradient gradients".split())
_CLIPPED_NOW: Final = "gradients that were never clipped are clipped from now on"


class MisplacedClipping(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every misplaced clipping."""
        windows = script.loops.gradient_accumulations.windows()
        closings = [each.closing for each in windows if each.closing is not None]
        for site in script.calls.of(*_CLIPS):
            call = site.node
            said = _said(script, call, closings)
            if said is not None:
                message, title, edits, impact = said
                own = script.loops.owner(call) == "none"
                fix = Fix.unsafe(title, edits, because=_CLIPPED_NOW) if edits and own else None
                yield Finding(self.code, script.span(call), message, fix, impact=impact)
                continue
            if site.name == _OLD:
                message = "`clip_grad_norm` is deprecated: write `clip_grad_norm_`"
                edits = renamed(script, call, _NEW)
                fix = Fix.exact("Write `clip_grad_norm_`", edits) if edits else None
                yield Finding(self.code, script.span(call.func), message, fix)
            yield from self._one_by_one(script, call)
        for call in clips_of_parts(script):
            yield self._of_parts(script, call)
        yield from self._by_hand(script)
        yield from self._clamped(script)

    def _of_parts(self, script: Script, call: cst.Call) -> Finding:
        """Return the finding for a clipping of what Accelerate has not yet added up."""
        test = f"if {script.code(script.calls.at(call).receiver)}.sync_gradients:"
        message = (
            f"`{script.code(call.func)}` clips the gradients of each micro-batch before they are "
            f"accumulated: put it under `{test}`"
        )
        line, fix = script.tree.statement(call), None
        if isinstance(script.tree.parent(call), cst.Expr) and script.edits.stands_alone(line):
            edits = script.edits.wrap([line], test)
            because = "gradients are clipped once, after they were added up"
            fix = Fix.unsafe("Clip where the gradients are synchronized", edits, because=because)
        return Finding(self.code, script.span(call), message, fix)

    def _clamped(self, script: Script) -> Iterator[Finding]:
        """Yield the loops that limit the gradients of a network one by one."""
        for site in script.calls.of_methods("clamp_"):
            call = site.node
            grad = site.receiver
            if isinstance(grad, cst.Attribute) and grad.attr.value == "data":
                grad = grad.value
            loop = next(script.loops.around(call), None)
            if loop is None or not isinstance(loop.node, cst.For) or not call.args:
                continue
            held = grad.value if isinstance(grad, cst.Attribute) else None
            if held is None or cst.ensure_type(grad, cst.Attribute).attr.value != "grad":
                continue
            drawn = loop.node.iter
            if method_of(drawn) != "parameters" and script.values.key(drawn) != "params":
                continue
            if script.code(held) == script.code(loop.node.target):
                message = (
                    f"`{script.code(call)}` limits one gradient after the other: "
                    "`torch.nn.utils.clip_grad_value_` takes them all at once"
                )
                yield Finding(self.code, script.span(call), message, impact="low")

    def _one_by_one(self, script: Script, call: cst.Call) -> Iterator[Finding]:
        arg = script.calls.at(call).given("foreach")
        if arg is None or not script.values.value_of(arg.value).equals(False):
            return
        message = "`foreach=False` clips one parameter after the other: leave it out"
        edits, title = script.edits.without_argument(call, arg), "Remove `foreach=False`"
        fix = Fix.exact(title, edits)
        if script.program.devices.can_use_accelerator or not _is_of_this_file(script, call):
            fix = Fix.close(title, edits, because="on a GPU the norm can round differently")
        yield Finding(self.code, script.span(arg), message, fix)

    def _by_hand(self, script: Script) -> Iterator[Finding]:
        for loop in script.loops.all():
            node = loop.node
            if not isinstance(node, cst.For) or not _adds_norms(script, node):
                continue
            better = "`torch.nn.utils.get_total_norm`"
            if not script.program.target.has((2, 6)):
                better = "`torch.stack(torch._foreach_norm(grads)).norm()`"
            waits = "item()" in script.code(node) or "float(" in script.code(node)
            cost = "which waits for the device each time" if waits else "a few kernels for each"
            message = (
                f"the norm of the gradients is added up one parameter after the other, {cost}: "
                f"{better} takes them all at once"
            )
            yield Finding(self.code, script.tree.header(node), message)


def _is_of_this_file(script: Script, call: cst.Call) -> bool:
    """Return whether the clipped values are the parameters of a network that the file builds."""
    network = receiver_of(call.args[0].value) if call.args else None
    return network is not None and script.values.visibility.shows(network)


def _said(
    script: Script, call: cst.Call, closings: list[cst.If]
) -> tuple[str, str, Edits | None, Impact | None] | None:
    """Return the finding for a misplaced clipping."""
    found = without_effect(script, call)
    if found is not None:
        return (
            _order_message(script, found),
            "Clip between backward and step",
            misplaced(script, found),
            None,
        )
    name = script.code(call.func)
    home = script.scopes.function(call)
    if home is not None and _is_before_backward(script, home):
        option = _OPTIONS[script.values.hooks.framework(home) or ""]
        message = (
            f"`{name}` comes before `backward()` runs on what `{home.name.value}` returns: it "
            f"clips nothing; pass `{option}` to the trainer instead"
        )
        return message, "", None, None
    empty = _used_up(script, call)
    if empty is not None:
        given, line = empty
        message = (
            f"`{script.code(given)}` is an iterator that was used up before: `{name}` finds no "
            "gradients and clips nothing; make a list of it"
        )
        edits = (
            *script.edits.insert(script.span(line.value).start, "list("),
            *script.edits.insert(script.span(line.value).end, ")"),
        )
        return message, "Keep the parameters in a list", edits, None
    for closing in closings:
        passes = _passes(script, closing)
        if passes != 1 and _clips_each_part(script, call, closing):
            message = (
                f"`{name}` clips the gradients of each micro-batch before they are accumulated; "
                "clip once, before the step"
            )
            direct = script.tree.parent(script.tree.statement(call)) is script.tree.parent(closing)
            inside = into_closing(script, call, closing) if direct else None
            return message, "Clip before the step", inside, None if passes else "low"
    return None


def _is_before_backward(script: Script, method: cst.FunctionDef) -> bool:
    """Return whether a method returns its loss to a framework without going backward itself."""
    if not script.values.hooks.sends(method):
        return False
    acts = script.optimizers.updates.within(method.body)
    return not any(each.act is Act.BACKWARD for each in acts) and not any(
        isinstance(receiver_of(call, method.name.value), cst.Call)  # as `super().training_step(x)`
        for call in script.tree.within(method.body, cst.Call)
    )


def _passes(script: Script, closing: cst.If) -> int:
    """Return in how many passes one steps, 0 if that is a setting (`step % args.every == 0`)."""
    for each in script.tree.within(closing.test, cst.BinaryOperation):
        if isinstance(each.operator, cst.Modulo):
            count = script.values.value_of(each.right).literal
            return count if type(count) is int else 0
    return 0


def _order_message(script: Script, clip: Clip) -> str:
    name = script.code(clip.call.func)
    where = "before `backward()` has made any gradients"
    if not clip.early:
        where = f"after `{script.code(clip.step.call.func)}()` has used the gradients"
    return f"`{name}` comes {where}: it clips nothing; move it between the two"


def _clips_each_part(script: Script, call: cst.Call, closing: cst.If) -> bool:
    """Return whether a clipping is between backward and the `if` that steps, in one block."""
    block = script.tree.parent(closing)
    if script.tree.inside(call, closing) or not isinstance(block, cst.IndentedBlock):
        return False
    if any(_is_scaled(script, each) for each in script.tree.within(closing.body, cst.Call)):
        return False
    if not script.tree.inside(call, block) or not _branches_only(script, call, block):
        return False
    if script.tree.order(call) > script.tree.order(closing):
        return False
    acts = [each for each in script.optimizers.updates.within(block) if each.act is Act.BACKWARD]
    return any(script.tree.order(each.at) < script.tree.order(call) for each in acts)


def _branches_only(script: Script, node: cst.CSTNode, block: cst.IndentedBlock) -> bool:
    """Return whether only `if`s and `with`s that do not count iterations are between two nodes."""
    for outer in script.tree.ancestors(node):
        if outer is block:
            return True
        if isinstance(outer, (cst.For, cst.While, cst.FunctionDef, cst.Lambda, cst.Try)):
            return False
        if isinstance(outer, cst.If) and "%" in script.code(outer.test):
            return False
    return False


def _is_scaled(script: Script, call: cst.Call) -> bool:
    """Return whether a gradient scaler steps, so that another rule checks the clipping."""
    owner = receiver_of(call)
    return owner is not None and script.kind(owner) is Kind.SCALER


def _used_up(script: Script, call: cst.Call) -> tuple[cst.BaseExpression, cst.Assign] | None:
    """Return an iterator over parameters that other code exhausts before this call."""
    given = call.args[0].value if call.args else None
    made = script.values.origins.of(given).known if given is not None else ()
    value = made[0] if len(made) == 1 else None
    line = script.tree.parent(value) if isinstance(value, cst.Call) else None
    if given is None or not isinstance(value, cst.Call) or not isinstance(line, cst.Assign):
        return None
    if method_of(value) != "parameters" and script.name(value.func) != "builtins.filter":
        return None
    if script.scopes.home(line) is not script.scopes.home(call):
        again = script.loops.is_in_loop(call) and not script.loops.is_in_loop(line)
        return (given, line) if again else None
    if any(not script.tree.inside(line, loop.node) for loop in script.loops.around(call)):
        return given, line
    uses = script.scopes.uses(script.scopes.only(given)) if isinstance(given, cst.Name) else ()
    first = [
        use
        for use in uses
        if script.tree.order(use) < script.tree.order(given)
        and script.tree.choice(use, given) is None
    ]
    passed = any(isinstance(script.tree.parent(use), cst.Arg) for use in first)
    return (given, line) if passed else None


def _adds_norms(script: Script, loop: cst.For) -> bool:
    """Return whether a loop sums the norms of the gradients of its items."""
    norms = [
        call
        for call in script.tree.within(loop.body, cst.Call)
        if _is_norm(script, call, loop) and next(script.loops.around(call)).node is loop
    ]
    if not norms:
        return False
    named = {
        target.target.value
        for line in script.tree.within(loop.body, cst.Assign)
        if any(script.tree.inside(norm, line.value) for norm in norms)
        for target in line.targets
        if isinstance(target.target, cst.Name)
    }
    return any(
        any(script.tree.inside(norm, line.value) for norm in norms)
        or any(name.value in named for name in script.tree.within(line.value, cst.Name))
        for line in script.tree.within(loop.body, cst.AugAssign)
    )


def _is_norm(script: Script, call: cst.Call, loop: cst.For) -> bool:
    tensor = receiver_of(call, "norm")
    if script.name(call.func) in _NORMS and call.args:
        tensor = call.args[0].value
    if tensor is None:
        return False
    owner = script.code(tensor)
    if owner.endswith((".grad", ".grad.data", ".grad.detach()")):
        return True
    gradients = isinstance(loop.iter, (cst.Name, cst.Attribute)) and not _GRADIENTS.isdisjoint(
        script.names.words(script.code(loop.iter).rpartition(".")[2])
    )
    own = isinstance(loop.target, cst.Name) and owner.partition(".")[0] == loop.target.value
    return gradients and own and owner.partition(".")[2] in ("", "data", "detach()")
