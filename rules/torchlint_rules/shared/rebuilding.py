"""Objects that the iterations of a training loop rebuild from the same arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    CALLERS,
    Edits,
    Invariance,
    Loader,
    Loop,
    Role,
    Script,
    method_of,
    receiver_of,
    word_of,
)

_OTHER_RUNS: Final = frozenset(
    "fold folds kfold split splits run runs trial trials seed seeds task tasks client clients "
    "phase phases stage stages lr lrs rate rates config configs grid restart restarts cycle "
    "round rounds model models net nets".split()
)
_AFRESH: Final = frozenset(
    "reset_parameters load_state_dict apply reset init_weights deepcopy reinit initialize".split()
)
_MOVES: Final = frozenset("to cuda cpu double float half xpu".split())


class Rebuilt(NamedTuple):
    """An object that each iteration of `often` builds, maybe through `runs`; `whole` is its code.

    `loop` is the outermost loop in which it stays the same.
    """

    call: cst.Call
    whole: cst.BaseExpression
    often: Loop
    loop: Loop
    runs: tuple[cst.Call, ...]

    @property
    def unit(self) -> str:
        """The kind of iteration that rebuilds it."""
        return "batch" if self.often.is_batch else "epoch"


def rebuilt(script: Script, call: cst.Call, loops: Sequence[Loop]) -> Rebuilt | None:
    """Return the outermost loop whose iterations build an object from the same arguments."""
    whole = moved(script, call)
    found: Rebuilt | None = None
    for loop, runs in ways(script, call, CALLERS):
        if loop not in loops:
            break
        if is_rare(script, runs[0] if runs else call, loop) or _is_another_run(script, loop):
            break
        if not _is_same(script, whole, call, loop, runs):
            break
        if found is not None and found.runs != runs:
            break
        found = Rebuilt(call, whole, found.often if found is not None else loop, loop, runs)
    return found


def moved(script: Script, call: cst.Call) -> cst.BaseExpression:
    """Return a call with the moves chained to it (`nn.MSELoss().to(device)`)."""
    node: cst.BaseExpression = call
    while True:
        outer = script.tree.parent(node)
        around = script.tree.parent(outer)
        if not isinstance(outer, cst.Attribute) or outer.attr.value not in _MOVES:
            return node
        if not isinstance(around, cst.Call) or around.func is not outer:
            return node
        node = around


def ways(
    script: Script, node: cst.CSTNode, depth: int = CALLERS
) -> Iterator[tuple[Loop, tuple[cst.Call, ...]]]:
    """Yield the loops around a node, innermost first, else those that call its function."""
    around = list(script.loops.around(node))
    function = script.scopes.function(node)
    yield from ((loop, ()) for loop in around)
    if around or function is None or not depth:
        return
    for call in script.functions.callers(function):
        for loop, runs in ways(script, call, depth - 1):
            yield loop, (*runs, call)


def is_rare(script: Script, node: cst.CSTNode, loop: Loop) -> bool:
    """Return whether only some iterations of a loop reach a node."""
    for child, outer in script.tree.outward(node):
        if child is loop.node:
            return False
        if isinstance(outer, (cst.ExceptHandler, cst.IfExp, cst.Lambda)):
            return True
        if isinstance(outer, cst.If) and child is not outer.test:
            return True
    return True


def _is_another_run(script: Script, loop: Loop) -> bool:
    """Return whether each iteration of a loop trains from the start: folds, seeds, settings."""
    node = loop.node
    head = (
        f"{script.code(node.target)} {script.code(node.iter)}" if isinstance(node, cst.For) else ""
    )
    if _OTHER_RUNS.intersection(script.names.words(head)) and not loop.is_batch:
        return True
    if isinstance(node, cst.For) and isinstance(node.target, cst.Name):
        counts = isinstance(node.iter, cst.Call) and script.name(node.iter.func) == "builtins.range"
        if not counts and any(
            _sets_up(script, loader, node, node.target) for loader in script.loaders
        ):
            return True
    return any(word_of(call) in _AFRESH for call in script.tree.within(node.body, cst.Call))


def _sets_up(script: Script, loader: Loader, node: cst.For, target: cst.Name) -> bool:
    """Return whether each pass of a loop makes a loader by its own value, a batch size."""
    return script.tree.inside(loader.node, node.body) and any(
        name.value == target.value for name in script.tree.within(loader.node, cst.Name)
    )


# -- invariance ------------------------------------------------------------------------------


def _is_same(
    script: Script,
    whole: cst.BaseExpression,
    call: cst.Call,
    loop: Loop,
    runs: tuple[cst.Call, ...],
) -> bool:
    """Return whether all iterations make the same object, be it `enabled` or not."""
    told = [arg for arg in call.args if arg.keyword is None or arg.keyword.value != "enabled"]
    values = [arg.value for arg in told]
    node = whole
    while node is not call and isinstance(node, cst.Call) and (inner := receiver_of(node)):
        values += [arg.value for arg in node.args]
        node = inner
    return all(_stays(script, value, loop, runs) for value in values)


def _stays(
    script: Script, value: cst.BaseExpression, loop: Loop, runs: tuple[cst.Call, ...]
) -> bool:
    """Return whether a value, such as a network's parameters, is the same in all iterations."""
    if isinstance(value, cst.Call):
        owner = receiver_of(value, "parameters", "named_parameters")
        if owner is not None:
            return _keeps_parts(script, owner, loop) and (
                script.loops.invariances.of(owner, loop.node, runs) is Invariance.INVARIANT
            )
    if isinstance(value, (cst.ListComp, cst.GeneratorExp)):
        return _stays(script, value.for_in.iter, loop, runs)
    if isinstance(value, (cst.List, cst.Tuple, cst.Dict)):
        return all(_stays(script, each.value, loop, runs) for each in value.elements)
    if isinstance(value, cst.BinaryOperation):
        return all(_stays(script, side, loop, runs) for side in (value.left, value.right))
    return script.loops.invariances.of(value, loop.node, runs) is Invariance.INVARIANT


def _keeps_parts(script: Script, network: cst.BaseExpression, loop: Loop) -> bool:
    """Return whether no iteration replaces, freezes or unfreezes parts of a network."""
    path = script.code(network)
    for line in script.tree.within(loop.node.body, cst.Assign):
        target = script.code(line.targets[0].target)
        if target.startswith(f"{path}.") or target.endswith(".requires_grad"):
            return False
    return not any(
        method_of(call) == "requires_grad_" for call in script.tree.within(loop.node.body, cst.Call)
    )


# -- the fix --------------------------------------------------------------------------------


def hoisted(script: Script, found: Rebuilt) -> Edits | None:
    """Move the construction of an object before the loop, None if its name has other values."""
    edits, loop = script.edits, found.loop.node
    if found.runs or not edits.stands_alone(loop):
        return None
    outer = script.tree.parent(found.whole)
    if not isinstance(outer, cst.Call) or outer.func is not found.whole:
        target = outer.targets[0].target if isinstance(outer, cst.Assign) else found.whole
        bound = script.scopes.scope(target).bindings.get(script.code(target), [])
        return edits.hoisted(found.whole, loop) if len(bound) == 1 else None
    # a loss that is built where it is called: `nn.MSELoss()(a, b)`
    kind = script.name(found.call.func) or ""
    if any(site.node.args for site in script.calls.of(kind)):
        return None
    return edits.named_before(
        found.whole, "_".join(script.names.words(kind.rpartition(".")[2])), loop
    )


def training_loops(script: Script) -> list[Loop]:
    """Return the loops whose iterations are epochs or batches."""
    found: dict[int, Loop] = {}
    for batches in script.loops.of(Role.TRAIN_BATCH):
        if batches.loader is not None:
            found[id(batches.node)] = batches
        epoch = script.program.epoch_loop(batches)
        if epoch is not None and not epoch.is_batch:
            found[id(epoch.node)] = epoch
    return list(found.values())


def loss_loops(script: Script) -> list[Loop]:
    """Return the loops whose iterations are epochs, or batches of training or evaluation."""
    found = {id(loop.node): loop for loop in training_loops(script)}
    for loop in script.loops.of(Role.TRAIN_BATCH, Role.EVAL_BATCH):
        found[id(loop.node)] = loop
    return list(found.values())
