"""TL509: Python loops over parameters that one kernel could replace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Act, Finding, Fix, How, Kind, Role, Rule, Script, method_of, receiver_of
from torchlint_rules.tl509_python_optimizer_step.movingaverages import (
    Average,
    average_of,
    by_difference,
    copied_from_lerp,
    in_a_new_tensor,
    in_two_lines,
    scaled_and_added,
)
from torchlint_rules.tl509_python_optimizer_step.ownoptimizers import own_optimizers, updates_lists
from torchlint_rules.tl509_python_optimizer_step.weightdecay import can_decay

_ITERATED: Final = frozenset("parameters named_parameters".split())
_STATE: Final = _ITERATED | {"buffers", "named_buffers", "state_dict"}
_UPDATING: Final = frozenset("add_ sub_ copy_ addcdiv_".split())
_SQUARES: Final = re.compile(r"\.pow\(2(?:\.0)?\)|\*\* ?2\b|\.square\(\)|torch\.square\(")
_APART: Final = (
    "the networks are made in code that is not visible here: `lerp_` refuses tensors of two types, "
    "and writes into memory that they share"
)


class PythonOptimizerStep(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag loops over parameters, and optimizers with `foreach=False`."""
        yield from self._one_by_one(script)
        for owner, own, name in own_optimizers(script):
            message = (
                f"`{owner.name.value}` updates parameters one by one from Python: "
                f"`torch.optim.{name}` steps with all of them in a few kernels"
            )
            yield Finding(self.code, script.tree.header(own), message)
        for loop in script.tree.own(cst.For):
            yield from self._averages_in_parts(script, loop)
        for loop in _loops(script):
            names = frozenset(name.value for name in script.tree.within(loop.target, cst.Name))
            for line in _lines(script, loop):
                average = average_of(script, line, names)
                if average is not None:
                    yield self._average(script, average, loop)
                elif _is_update(script, loop, line) and _replaces_optimizer(script, loop):
                    yield self._update(script, loop, line)
                elif _is_penalty(script, loop, line):
                    yield self._penalty(script, line)
        for site in script.calls.of("builtins.sum"):
            holder = script.tree.parent(site.node)
            if isinstance(holder, cst.Assign) and _sums_in_place(script, site.node):
                if _penalises(script, holder):
                    yield self._penalty(script, holder)

    def _one_by_one(self, script: Script) -> Iterator[Finding]:
        for site in script.optimizers:
            given = site.given("foreach")
            if (
                given is None
                or script.code(given.value) != "False"
                or site.given("fused") is not None
            ):
                continue
            if script.program.devices.can_use_accelerator:
                message = (
                    f"`foreach=False` makes {site.label} step parameter by parameter on the GPU "
                    "too: drop it, unless the memory of one more copy of the parameters is missing"
                )
                edits = script.edits.without_argument(site.node, given)
                because = "kernels over several tensors round differently"
                fix = Fix.close("Drop `foreach=False`", edits, because=because)
                fixed = fix if script.program.devices.framework == "none" else None
                yield Finding(self.code, script.span(site.node), message, fixed)

    def _averages_in_parts(self, script: Script, loop: cst.For) -> Iterator[Finding]:
        names = frozenset(name.value for name in script.tree.within(loop.target, cst.Name))
        owner = script.scopes.class_of(script.scopes.function(loop) or loop)
        contexts = script.tree.within(loop.body, cst.WithItem)
        opened = (name.value for each in contexts for name in script.tree.within(each, cst.Name))
        if not names.isdisjoint(opened) or (owner is not None and updates_lists(script, owner)):
            return  # parameters in shards are gathered one by one
        state = {method_of(call) for call in script.tree.within(loop.iter, cst.Call)}
        forms = [scaled_and_added, copied_from_lerp, by_difference, in_two_lines]
        forms += [in_a_new_tensor] if _over_parameters(script, loop.iter) else []
        for line in _lines(script, loop) if names else ():
            for average in filter(None, (form(script, line, names) for form in forms)):
                if isinstance(average.node, cst.AugAssign) and state.isdisjoint(_STATE):
                    continue  # numbers have the operators, too
                each = "two kernels" if isinstance(average.node, cst.Call) else "three kernels"
                yield Finding(
                    self.code,
                    script.span(average.node),
                    f"`{average.old}` is averaged tensor by tensor, with {each} for each: "
                    f"`torch._foreach_lerp_(old, new, {average.weight})` over lists of all "
                    "tensors takes a few in all",
                )

    def _average(self, script: Script, average: Average, loop: cst.For) -> Finding:
        written = f"{average.old}.lerp_({average.new}, {average.weight})"
        call = average.node
        copies = isinstance(call, cst.Call) and script.code(call.func).endswith(".copy_")
        passes = "four" if copies else "three"
        message = (
            f"`{average.old}` is averaged in {passes} passes over memory: `{written}` takes one, "
            "and is about 4 times as fast"
        )
        fix = None
        commented = "#" in script.code(average.node)
        if (
            script.program.devices.framework == "none"
            and not commented
            and not _lerp_may_fail(script, loop)
        ):
            edits = script.edits.replace(average.node, written)
            title = "Average in place with `lerp_`"
            fix = Fix.close(title, edits, because="`lerp_` rounds differently")
            if not _is_made_here(script, loop):
                fix = Fix.unsafe(title, edits, because=_APART)
        return Finding(self.code, script.span(average.node), message, fix)

    def _update(self, script: Script, loop: cst.For, line: cst.BaseSmallStatement) -> Finding:
        message = (
            "parameters are updated one by one from Python: `torch.optim.SGD` steps with all of "
            "them in a few kernels"
        )
        few = isinstance(script.values.value_of(loop.iter).node, (cst.List, cst.Tuple))
        return Finding(self.code, script.span(line), message, impact="low" if few else None)

    def _penalty(self, script: Script, line: cst.BaseSmallStatement) -> Finding:
        message = (
            "squares of all parameters are summed for the loss, one by one: `weight_decay` of the "
            "optimizer does the same in its step, for plain SGD with twice the factor"
        )
        return Finding(self.code, script.span(line), message)


# -- loops over parameters -------------------------------------------------------


def _loops(script: Script) -> Iterator[cst.For]:
    """Yield the loops that may iterate over the parameters of networks."""
    for loop in script.tree.own(cst.For):
        if _over_parameters(script, loop.iter) or isinstance(loop.iter, cst.Name):
            yield loop


def _over_parameters(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether all iterated values are the parameters of networks."""
    if not isinstance(node, cst.Call):
        return False
    name = script.name(node.func)
    if name in ("builtins.zip", "builtins.list", "builtins.filter"):
        inner = [arg.value for arg in node.args if not isinstance(arg.value, cst.Lambda)]
        return bool(inner) and all(_over_parameters(script, each) for each in inner)
    return method_of(node) in _ITERATED


def _owners(script: Script, loop: cst.For) -> list[cst.BaseExpression]:
    """Return the networks whose parameters a loop iterates over."""
    iterated = script.values.value_of(loop.iter).node or loop.iter
    found = (receiver_of(call, *_ITERATED) for call in script.tree.within(iterated, cst.Call))
    return [owner for owner in found if owner is not None]


def _is_made_here(script: Script, loop: cst.For) -> bool:
    """Return whether this file builds all networks whose parameters a loop iterates over."""
    owners = _owners(script, loop)
    return bool(owners) and all(script.values.visibility.shows(owner) for owner in owners)


def _lines(script: Script, loop: cst.For) -> Iterator[cst.BaseSmallStatement]:
    """Yield the assignments and calls directly in a loop."""
    for kind in (cst.Assign, cst.AugAssign, cst.Expr):
        for line in script.tree.within(loop.body, kind):
            nearest = next(
                (outer for outer in script.tree.ancestors(line) if isinstance(outer, cst.For)), None
            )
            if nearest is loop and script.scopes.home(line) is script.scopes.home(loop):
                yield line


def _lerp_may_fail(script: Script, loop: cst.For) -> bool:
    """Return whether two tensors of a loop may share their storage, or differ in dtype."""
    owners = _owners(script, loop)
    for site in script.calls.of_methods("half", "bfloat16"):
        if not owners or any(script.modules.may_touch(site.receiver, owner) for owner in owners):
            return True
    return any(_shares_storage(line) for line in script.tree.all(cst.Assign))


def _shares_storage(line: cst.Assign) -> bool:
    """Return whether a line makes two tensors share memory (`a.data = b.data`)."""
    sides = (line.targets[0].target, line.value)
    return all(type(side) is cst.Attribute and side.attr.value == "data" for side in sides)


# -- updates ---------------------------------------------------------------------


def _is_update(script: Script, loop: cst.For, line: cst.BaseSmallStatement) -> bool:
    """Return whether a line updates the loop's parameter by its gradient."""
    if isinstance(line, cst.AugAssign):
        return _is_parameter(script, loop, line.target) and _reads_gradient(script, line.value)
    if isinstance(line, cst.Assign):
        target = line.targets[0].target
        whole = isinstance(target, cst.Attribute) and _is_parameter(script, loop, target)
        return whole and _reads_gradient(script, line.value)
    call = line.value if isinstance(line, cst.Expr) else None
    owner = receiver_of(call, *_UPDATING)
    if not isinstance(call, cst.Call) or owner is None:
        return False
    return _is_parameter(script, loop, owner) and any(
        _reads_gradient(script, arg.value) for arg in call.args
    )


def _is_parameter(script: Script, loop: cst.For, node: cst.BaseExpression) -> bool:
    """Return whether an expression is `p` or `p.data` for a target `p` of a loop."""
    if isinstance(node, cst.Attribute) and node.attr.value == "data":
        node = node.value
    return isinstance(node, cst.Name) and any(
        binding.node is loop or (binding.how is How.AUGMENTED and script.tree.inside(node, loop))
        for binding in script.scopes.reaching_name(node.value, node, script.scopes.scope(node))
    )


def _reads_gradient(script: Script, node: cst.BaseExpression) -> bool:
    return any(each.attr.value == "grad" for each in script.tree.within(node, cst.Attribute))


def _replaces_optimizer(script: Script, loop: cst.For) -> bool:
    """Return whether a loop replaces an optimizer: after a backward pass, without a step."""
    owner = script.scopes.class_of(loop)
    if owner is not None and any("Optim" in base for base in script.functions.bases(owner)):
        return False
    around = next(
        (each for each in script.loops.around(loop) if each.role is Role.TRAIN_BATCH), None
    )
    function = script.scopes.function(loop)
    region = around.node.body if around is not None else function and function.body
    if region is None or (function is not None and function.name.value == "step"):
        return False
    acts = script.optimizers.updates.within(region)
    return any(each.act is Act.BACKWARD for each in acts) and not any(
        each.act is Act.STEP and script.tree.choice(each.at, loop) is None for each in acts
    )


# -- penalties -------------------------------------------------------------------


def _is_penalty(script: Script, loop: cst.For, line: cst.BaseSmallStatement) -> bool:
    """Return whether a line of a loop over parameters adds the squares of one to the loss."""
    iterated = script.values.value_of(loop.iter).node
    if iterated is None or not _over_parameters(script, iterated):
        return False
    if not isinstance(line, (cst.Assign, cst.AugAssign)):
        return False
    own = any(
        binding.node is loop
        for name in script.tree.within(line.value, cst.Name)
        for binding in script.scopes.reaching(name)
    )
    return own and _penalises(script, line)


def _sums_in_place(script: Script, call: cst.Call) -> bool:
    """Return whether a call sums over the parameters of a network in one expression."""
    inner = call.args[0].value if len(call.args) == 1 else None
    return isinstance(inner, (cst.GeneratorExp, cst.ListComp)) and _over_parameters(
        script, inner.for_in.iter
    )


def _penalises(script: Script, line: cst.Assign | cst.AugAssign) -> bool:
    """Return whether a line adds squares of parameters to a loss with a backward call."""
    target = line.target if isinstance(line, cst.AugAssign) else line.targets[0].target
    if not isinstance(target, cst.Name) or not _SQUARES.search(script.code(line.value)):
        return False
    if script.kind(target) in (Kind.NDARRAY, Kind.STRING) or ".grad" in script.code(line.value):
        return False
    combined = script.tree.within(line.value, cst.BinaryOperation)
    if any(isinstance(each.operator, cst.Subtract) for each in combined):
        return False  # a distance to other weights
    return script.values.losses.feeds(target) and can_decay(script, line)
