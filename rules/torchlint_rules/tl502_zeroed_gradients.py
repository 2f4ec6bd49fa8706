"""TL502: gradients that are zeroed instead of set to None."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Act, Edits, Finding, Fix, Frequency, How, Kind, Rule, Script, receiver_of

_ZEROING: Final = ("zero_", "fill_")
_GRAPHS: Final = frozenset("CUDAGraph graph make_graphed_callables graphed".split())
_VIEWS: Final = "gradient_as_bucket_view"
_COST: Final = "sets gradients to zero, which the backward pass then reads and adds to"
_BECAUSE: Final = (
    "a parameter without a gradient is left alone, where with zeros momentum and weight decay "
    "still move it"
)


class ZeroedGradients(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag code that zeroes gradients, unless other code needs the tensors."""
        is_test = script.program.purpose.is_test
        calls = [call for call in _told(script) if not is_test(call)]
        loops = [each for each in _by_hand(script) if not is_test(each[0])]
        own = [loop for loop, _ in loops]
        for call in calls:
            if _are_needed(_around(script, call), own):
                continue
            edits = script.edits.without_argument(call, call.args[0])
            message = f"`{script.code(call)}` {_COST}: drop the argument"
            fix = _fix(script, call, "Drop the argument", edits)
            yield Finding(self.code, script.span(call), message, fix)
        for loop, filled in loops:
            if _are_needed(_around(script, loop), own):
                continue
            network = _network(script, loop)
            cleared = f"{script.code(network)}.zero_grad()" if network is not None else ""
            edits = _replaced(script, loop, cleared) if _does_nothing_else(script, loop) else ()
            spare = script.edits.without_imports(loop) if edits else None
            edits = script.edits.united(edits, spare or ())
            message = f"`{script.code(filled)}` {_COST}: `{cleared or 'optimizer.zero_grad()'}`"
            fix = _fix(script, filled, f"Call `{cleared}`", edits) if edits else None
            place = loop if edits else filled
            yield Finding(self.code, script.span(place), f"{message} sets them to None", fix)


def _around(script: Script, node: cst.CSTNode) -> Script:
    """Return what has to do with the training around a node."""
    home = script.scopes.function(node)
    beside = [
        step for step in script.loops.steps.all if script.scopes.function(step.backward) is home
    ]
    return script.around(beside[0].backward) if beside else script


def _told(script: Script) -> Iterator[cst.Call]:
    """Yield the calls of `zero_grad` with `set_to_none=False`."""
    for site in script.calls.of_methods("zero_grad"):
        call = site.node
        if len(call.args) != 1 or not site.argument("set_to_none").equals(False):
            continue
        given = site.given("set_to_none")
        owner = site.receiver
        if given is None or script.kind(owner) not in (Kind.OPTIMIZER, Kind.MODULE):
            continue
        if isinstance(given.value, cst.Name) and given.value.value == "False":
            yield call


# -- loops by hand -------------------------------------------------------------


def _by_hand(script: Script) -> Iterator[tuple[cst.For, cst.BaseExpression]]:
    """Yield the loops that zero the gradient of each parameter, with the zeroing statement."""
    for site in script.calls.of_methods(*_ZEROING):
        call = site.node
        if site.method == "zero_" or _is_zero(call):
            loop = _loop_over(script, call, _owner_of_gradient(site.receiver))
            if loop is not None:
                yield loop, call
    for made in script.calls.of("torch.zeros_like", "torch.zeros"):
        line = script.tree.parent(made.node)
        if isinstance(line, cst.Assign) and len(line.targets) == 1:
            target = line.targets[0].target
            loop = _loop_over(script, line, _owner_of_gradient(target))
            if loop is not None:
                yield loop, target


def _is_zero(call: cst.Call) -> bool:
    value = call.args[0].value if len(call.args) == 1 else None
    return isinstance(value, (cst.Integer, cst.Float)) and float(value.value) == 0


def _owner_of_gradient(node: cst.BaseExpression) -> cst.Name | None:
    """Return `p` of `p.grad` and `p.grad.data`."""
    if isinstance(node, cst.Attribute) and node.attr.value == "data":
        node = node.value
    if isinstance(node, cst.Attribute) and node.attr.value == "grad":
        return node.value if isinstance(node.value, cst.Name) else None
    return None


def _loop_over(script: Script, node: cst.CSTNode, owner: cst.Name | None) -> cst.For | None:
    """Return the hot loop over a network's parameters whose target is a name."""
    bindings = script.scopes.reaching(owner) if owner is not None else ()
    if len(bindings) != 1 or bindings[0].how is not How.LOOP:
        return None
    loop = bindings[0].node
    if not isinstance(loop, cst.For) or _network(script, loop) is None:
        return None
    if script.loops.frequency(loop) is not Frequency.EVERY_PASS or _updates(script, loop):
        return None
    guards = [test for test in script.tree.tests_around(node) if script.tree.inside(test, loop)]
    return loop if all(".grad" in script.code(test) for test in guards) else None


def _network(script: Script, loop: cst.For) -> cst.BaseExpression | None:
    """Return the network if a loop iterates over all of its parameters."""
    value = script.values.value_of(loop.iter).node
    if isinstance(value, cst.Call) and script.name(value.func) in (
        "builtins.list",
        "builtins.tuple",
    ):
        value = value.args[0].value if len(value.args) == 1 else None
    network = receiver_of(value, "parameters", "named_parameters")
    if not isinstance(value, cst.Call) or value.args or network is None:
        return None
    return network if script.kind(network) is Kind.MODULE else None


def _updates(script: Script, loop: cst.For) -> bool:
    """Return whether a loop reads the gradients before it zeroes them."""
    for node in script.tree.within(loop, cst.Attribute):
        if node.attr.value != "grad":
            continue
        holder = script.tree.parent(node)
        if isinstance(holder, cst.Attribute) and holder.attr.value == "data":
            holder = script.tree.parent(holder)
        if isinstance(holder, cst.Attribute) and holder.attr.value in (*_ZEROING, "detach_"):
            continue
        if not isinstance(holder, (cst.Comparison, cst.AssignTarget, cst.If)):
            return True
    return False


def _does_nothing_else(script: Script, loop: cst.For) -> bool:
    """Return whether all lines of a loop only handle gradients."""
    return loop.orelse is None and all(
        ".grad" in script.code(small) and "\n" not in script.code(small)
        for kind in (cst.SimpleStatementLine, cst.SimpleStatementSuite)
        for line in script.tree.within(loop, kind)
        for small in line.body
    )


def _replaced(script: Script, loop: cst.For, text: str) -> Edits:
    if not script.edits.stands_alone(loop) or "#" in script.code(loop):
        return ()
    return script.edits.replace(loop, text)


# -- needed gradients ------------------------------------------------------------


def _are_needed(script: Script, loops: list[cst.For]) -> bool:
    """Return whether code outside some loops reads gradients, or keeps them at fixed addresses."""
    if any(
        arg.keyword is not None and arg.keyword.value == _VIEWS for arg in script.tree.all(cst.Arg)
    ):
        return True
    for node in script.tree.all(cst.Attribute):
        word = node.attr.value
        if word in _GRAPHS and (script.name(node) or "").startswith("torch.cuda."):
            return True
        if word == "grad" and not any(script.tree.inside(node, loop) for loop in loops):
            if (script.name(node) or "") != "torch.autograd.grad" and not _is_let_go(script, node):
                return True
    return False


def _is_let_go(script: Script, node: cst.Attribute) -> bool:
    """Return whether a gradient is set to None."""
    target = script.tree.parent(node)
    line = script.tree.parent(target) if isinstance(target, cst.AssignTarget) else None
    return isinstance(line, cst.Assign) and script.code(line.value) == "None"


# -- the fix -------------------------------------------------------------------


def _fix(script: Script, place: cst.BaseExpression, title: str, edits: Edits) -> Fix | None:
    if script.loops.owner(place) != "none":
        return None
    if _is_exact(script, place):
        return Fix.exact(title, edits)
    return Fix.unsafe(title, edits, because=_BECAUSE)


def _is_exact(script: Script, place: cst.BaseExpression) -> bool:
    """Return whether every parameter certainly gets a gradient between clearing and stepping."""
    loop = script.loops.batch_loop(place)
    if loop is None or not _goes_backward_and_steps(script, loop.node.body):
        return False
    for step in script.optimizers.steps:
        if script.tree.inside(step, loop.node):
            stepped = script.loops.stepped(step)
            made = script.optimizers.made_by(stepped) if stepped is not None else None
            if made is None or not all(_steps_whole_network(script, call) for call in made):
                return False
    return script.values.visibility.unseen_call(loop.node.body) is None


def _goes_backward_and_steps(script: Script, body: cst.BaseSuite) -> bool:
    """Return whether each iteration runs backward, steps and clears exactly once, in any order."""
    acts = []
    for update in script.optimizers.updates.within(body):
        line = script.tree.statement(update.at)
        if update.at is not update.call or script.tree.parent(line) is not body:
            return False
        acts.append(update.act)
    jumps = (cst.Break, cst.Continue, cst.Return)
    return acts.count(Act.BACKWARD) == acts.count(Act.STEP) == acts.count(Act.CLEAR) == 1 and all(
        next(script.tree.within(body, jump), None) is None for jump in jumps
    )


def _steps_whole_network(script: Script, call: cst.Call) -> bool:
    """Return whether an optimizer has the parameters of one network, all of them always used."""
    given = script.calls.at(call).given("params", 0)
    value = given.value if given is not None else None
    network = receiver_of(value, "parameters")
    if not isinstance(value, cst.Call) or value.args or network is None:
        return False
    return script.values.usage.is_whole(network)
