"""TL319: networks that run in float32 beside a training under autocast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Evaluation,
    Finding,
    Fix,
    Grad,
    Kind,
    Note,
    Rule,
    Script,
    Step,
    receiver_of,
    word_of,
)
from torchlint_rules.shared.cuda import makers, run_by

_OTHER: Final = frozenset("half bfloat16 quantize export swa_model ema".split())
_ARRAYS: Final = frozenset("numpy np".split())
_WIDENING: Final = frozenset("float double".split())
_LOW: Final = frozenset({"torch.float16", "torch.half", "torch.bfloat16"})
_BECAUSE: Final = "evaluation then rounds as training does, to 8 bits in bfloat16"


class EvaluationOutsideAutocast(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag what runs outside the autocast of training: evaluations, and networks that teach."""
        if not any(
            script.values.precision.autocast(call) is call for call in script.tree.all(cst.Call)
        ):
            return
        for evaluation in script.evaluations.all:
            if script.loops.owner(evaluation.node) != "none" or _differs(script, evaluation):
                continue
            for forward in evaluation.forwards:
                autocast = _training_autocast(script, forward.call, forward.network)
                if autocast is not None and not _is_optional(script, evaluation, forward.call):
                    fix = _fix(script, evaluation, forward.call, autocast)
                    yield self._finding(script, forward.call, autocast, fix)
                    break
        yield from self._by_flags(script)
        yield from self._of_teachers(script)

    def _of_teachers(self, script: Script) -> Iterator[Finding]:
        """Yield the findings of networks that a step under autocast runs without gradients."""
        told: set[cst.Call] = set()
        for step in script.loops.steps.all:
            autocast = _step_autocast(script, step)
            if autocast is None:
                continue
            beside = script.modules.lineage.of(step.backward.func, recorded=False).calls
            wide = [call for call, network in beside if _is_wide_teacher(script, call, network)]
            inner = {each for call in wide for each in script.functions.callees(call)}
            for call in wide:
                if call not in told and script.scopes.function(call) not in inner:
                    told.add(call)
                    message = (
                        f"`{script.tree.brief(call)}` runs in float32 beside a step under "
                        f"autocast: wrap it in `{script.tree.brief(autocast)}` too"
                    )
                    notes = (Note(script.span(autocast), "the step runs under this autocast"),)
                    yield Finding(self.code, script.span(call), message, None, notes)

    def _by_flags(self, script: Script) -> Iterator[Finding]:
        """Yield the findings in loops that train or evaluate, as a flag says."""
        flags = script.evaluations.flagged
        for region, branch in {id(e.region): (e.region, e.branch) for e in flags.all}.values():
            for call in flags.forwards(region, branch):
                network = script.loops.module_call(call)
                autocast = _training_autocast(script, call, network) if network else None
                if autocast is not None:
                    yield self._finding(script, call, autocast, None)
                    break

    def _finding(
        self, script: Script, call: cst.Call, autocast: cst.Call, fix: Fix | None
    ) -> Finding:
        message = (
            f"`{script.tree.brief(call)}` evaluates in float32 what trains under autocast: wrap it "
            f"in `{script.tree.brief(autocast)}` too"
        )
        notes = (Note(script.span(autocast), "the training step runs under this autocast"),)
        return Finding(self.code, script.span(call), message, fix, notes)


def _step_autocast(script: Script, step: Step) -> cst.Call | None:
    """Return the autocast of all forward passes that a step learns from, if it is on."""
    learning = [
        call for call in step.forwards if script.values.gradients.grad(call) is not Grad.OFF
    ]
    around = [script.values.autocasting.around(call).calls for call in learning]
    if not around or not all(around) or script.values.autocasting.is_off(around[0][0]):
        return None
    return around[0][0]


def _is_wide_teacher(script: Script, call: cst.Call, network: cst.BaseExpression) -> bool:
    """Return whether a call runs a network of float32 without gradients, outside autocast."""
    here = script.values.autocasting.around(call)
    if here.calls or not here.complete or script.values.gradients.grad(call) is not Grad.OFF:
        return False
    if _casts_itself(script, network) or not _WIDENING.isdisjoint(_spoken(script, call)):
        return False
    made = makers(script, network)
    if not made or not all(map(_is_float32, made)):
        return False
    return not any(
        _is_lowered(script, site.node, network)
        for site in script.calls.of_methods("half", "bfloat16", "to")
    )


def _is_float32(made: cst.Call) -> bool:
    """Return whether a network is made in float32: not as it was saved, nor as an option says."""
    return not word_of(made).startswith("from_") and not any(
        arg.keyword is not None and "dtype" in arg.keyword.value for arg in made.args
    )


def _is_lowered(script: Script, call: cst.Call, network: cst.BaseExpression) -> bool:
    """Return whether a call gives a network another type."""
    receiver = receiver_of(call)
    if receiver is None or not script.modules.same(receiver, network):
        return False
    return word_of(call) != "to" or any(
        script.name(arg.value) in _LOW or (arg.keyword is not None and arg.keyword.value == "dtype")
        for arg in call.args
    )


def _differs(script: Script, evaluation: Evaluation) -> bool:
    """Return whether an evaluation chooses a precision of its own, or needs gradients."""
    if script.evaluations.needs_gradients(evaluation.node):
        return True
    return not _OTHER.isdisjoint(_spoken(script, evaluation.node))


def _spoken(script: Script, region: cst.CSTNode) -> set[str]:
    """Return the names and attributes that code reads."""
    names = {name.value for name in script.tree.within(region, cst.Name)}
    return names | {each.attr.value for each in script.tree.within(region, cst.Attribute)}


def _training_autocast(
    script: Script, call: cst.Call, network: cst.BaseExpression
) -> cst.Call | None:
    """Return the autocast of the training steps of a network that an evaluation runs without."""
    here = script.values.autocasting.around(call)
    if here.calls or not here.complete or _casts_itself(script, network):
        return None
    if not _WIDENING.isdisjoint(_spoken(script, call)):
        return None
    found: list[cst.Call] = []
    wide: list[cst.Call] = []
    for step in script.loops.steps.all:
        for forward in step.forwards:
            if not any(script.modules.same(each, network) for each in run_by(script, forward)):
                continue
            calls = script.values.autocasting.around(forward).calls
            if not calls:
                wide.append(forward)
            elif script.calls.at(calls[0]).argument("enabled", 2).equals(False):
                return None
            else:
                found.append(calls[0])
    chosen = (any(script.tree.choice(one, each) for one in found) for each in wide)
    return found[0] if found and all(chosen) else None


def _is_optional(script: Script, evaluation: Evaluation, call: cst.Call) -> bool:
    """Return whether another branch of an evaluation runs under autocast instead of a call."""
    return any(
        script.tree.choice(each.call, call) is not None
        and bool(script.values.autocasting.around(each.call).calls)
        for each in evaluation.forwards
    )


def _casts_itself(script: Script, network: cst.BaseExpression) -> bool:
    """Return whether the class of a network uses autocast, or converts what it gets."""
    return any(
        script.values.precision.autocast(call) is call
        for owner in script.modules.submodules.classes(network)
        for call in script.tree.within(owner, cst.Call)
    )


def _fix(script: Script, evaluation: Evaluation, call: cst.Call, autocast: cst.Call) -> Fix | None:
    """Return the edit that puts the forward pass and the loss under the same autocast."""
    lines = _lines(script, call)
    others = [each.call for each in evaluation.forwards if each.call is not call]
    if not lines or not all(any(script.tree.inside(o, line) for line in lines) for o in others):
        return None
    if not all(map(script.edits.stands_alone, lines)) or not _is_valid_at(script, autocast, call):
        return None
    if any(True for _ in script.tree.branches(autocast)):
        return None
    region = script.scopes.region(evaluation.node)
    arrays = not _ARRAYS.isdisjoint(_spoken(script, region))
    inside = (node for line in lines for node in script.tree.within(line, cst.Return))
    if arrays or any(True for _ in inside):
        return None
    header = f"with {script.code(autocast)}:"
    return Fix.unsafe(
        "Evaluate under the autocast of training",
        script.edits.wrap(lines, header),
        because=_BECAUSE,
    )


def _lines(script: Script, call: cst.Call) -> list[cst.CSTNode]:
    """Return the statements of one block from a forward pass to the last loss of it."""
    first = script.tree.statement(call)
    block = script.tree.parent(first)
    if not isinstance(first, cst.SimpleStatementLine) or not isinstance(block, cst.IndentedBlock):
        return []
    behind = block.body[list(block.body).index(first) :]
    last = max(
        index for index, line in enumerate(behind) if line is first or _has_loss(script, line)
    )
    lines: list[cst.CSTNode] = [*behind[: last + 1]]
    return lines if all(isinstance(line, cst.SimpleStatementLine) for line in lines) else []


def _has_loss(script: Script, line: cst.CSTNode) -> bool:
    """Return whether a statement computes a loss."""
    return any(
        script.kind(call.func) is Kind.CRITERION
        or (script.name(call.func) or "").startswith("torch.nn.functional.")
        for call in script.tree.within(line, cst.Call)
    )


def _is_valid_at(script: Script, autocast: cst.Call, place: cst.CSTNode) -> bool:
    """Return whether the names in a call mean the same at another place."""
    if script.tree.module_of(autocast) is not script.tree.module_of(place):
        return False
    return all(
        script.scopes.reaching_name(name.value, place, script.scopes.scope(place))
        == script.scopes.reaching(name)
        for name in script.tree.within(autocast, cst.Name)
        if script.scopes.reads(name) and script.scopes.reaching(name)
    )
