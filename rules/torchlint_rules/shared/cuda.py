"""Shared checks of the rules for programs that train on NVIDIA GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Duty, Edits, Grad, Kind, Move, Role, Script, Step, method_of, receiver_of

_MOVES: Final = ("cuda", "to")
_ENVIRONMENTS: Final = frozenset(
    "gym gymnasium procgen pettingzoo dm_control unityagents stable_baselines3 envpool".split()
)
_CLASSIFIERS: Final = re.compile(
    r"torchvision\.models\.(?:\w+\.)?(?:alexnet|convnext|densenet|efficientnet|googlenet|inception|"
    r"mnasnet|mobilenet|regnet|resnet|resnext|shufflenet|squeezenet|vgg|wide_resnet)\w*"
)
_BY_NAME: Final = re.compile(
    r"(?:wide_?|pre_?act_?)?resne[xs]?t\w*|vgg\w*|densenet\w*|mobilenet\w*|efficientnet\w*|alexnet\w*|"
    r"(?:res)?u_?net\w*|generator(?:u_?|res)net|lenet\w*|\w*convnet\w*|\w*cnn",
    re.IGNORECASE,
)
_OWN_KERNELS: Final = (
    "torch_geometric.", "torch_sparse.", "torch_scatter.", "dgl.", "e3nn.", "higher.", "pyro.",
    "gpytorch.", "opacus.", "torch.utils.cpp_extension.", "torch.sparse.", "functorch.",
    "learn2learn.", "torchdiffeq.",
)  # fmt: skip
_FULL: Final = frozenset({
    "torch.nn.BCELoss", "torch.nn.functional.binary_cross_entropy", "torch.spmm", "torch.dsmm",
    "torch.autograd.grad", "torch.autograd.functional.jacobian",
})  # fmt: skip
"""Functions that do not work in low precision or under one autocast."""
_SHARDED: Final = re.compile("fsdp|fully_shard")
"""Words of code whose policy may set the precision."""
_KEYWORDS: Final = ("create_graph", "is_sparse")
_OTHERS: Final = re.compile(r"\b(?:mps|xpu)\b")
_NVIDIA: Final = re.compile(r"cuda|accelerator|gpu")
_SETTINGS: Final = re.compile(r"\w+\.(?:backends\.|set_float32_matmul_precision)")


def may_be_cuda(script: Script) -> bool:
    """Return whether the script owns its loop and may run on an NVIDIA GPU."""
    return script.once(_may_be_cuda)


def _may_be_cuda(script: Script) -> bool:
    if script.program.target.device in ("cpu", "mps", "xpu") or not _owns_loop(script):
        return False
    if script.program.target.device == "cuda":
        return True
    if script.program.vocabulary.has(_OTHERS) and not script.program.vocabulary.has(_NVIDIA):
        return False
    steps = script.loops.steps
    if steps.all and all(map(steps.run_on_host, steps.all)):
        return False
    return script.program.devices.can_use_accelerator


def _owns_loop(script: Script) -> bool:
    """Return whether a script writes its loop itself, or one beside that of a framework."""
    framework = script.program.devices.framework
    return framework == "none" or (
        framework == "transformers"
        and any(
            not step.backward.args and script.loops.ownership.owner(step.backward) == "none"
            for step in script.loops.steps.all
        )
    )


def in_environment(script: Script) -> bool:
    """Return whether all training is reinforcement learning: small networks on the host."""
    return script.once(_in_environment)


def _in_environment(script: Script) -> bool:
    if not _plays(script):
        return False
    steps = script.loops.steps.all
    return not steps or all(_plays(script.around(step.backward)) for step in steps)


def _plays(script: Script) -> bool:
    """Return whether code makes, derives or steps an environment."""
    if script.loops.environments.are_stepped:
        return True
    bases = (base.value for owner in script.tree.all(cst.ClassDef) for base in owner.bases)
    names = (*script.calls.called, *(script.name(base) or "" for base in bases))
    return any(each.partition(".")[0] in _ENVIRONMENTS for each in names)


def named_convolutional(script: Script) -> bool:
    """Return whether the script builds a network whose name says that it is convolutional."""
    return any(is_convolutional(script, call) for call in script.tree.all(cst.Call))


def is_convolutional(script: Script, call: cst.Call) -> bool:
    """Return whether the name of what a call makes says that it is a convolutional network."""
    # What `from module import *` brings has no qualified name.
    bare = call.func.value if type(call.func) is cst.Name else ""
    name = script.name(call.func) or bare
    if _CLASSIFIERS.fullmatch(name):
        return True
    return not name.startswith("torch") and bool(_BY_NAME.fullmatch(name.rpartition(".")[2]))


def trains(script: Script) -> bool:
    """Return whether the file is a program that trains a network."""
    steps = [step for step in script.loops.steps.all if script.loops.steps.updates(step)]
    return bool(steps) and (
        bool(script.loops.guard.guards())
        or any(script.loops.guard.at_import(step.backward) for step in steps)
    )


def surroundings(script: Script, network: cst.BaseExpression | None = None) -> list[Script]:
    """Return what has to do with each step that updates parameters, or runs a network.

    That is the whole script if there is no step.
    """
    steps = [step for step in script.loops.steps.all if script.loops.steps.updates(step)]
    own = [step for step in steps if network is not None and runs(script, step, network)]
    return [script.around(step.backward) for step in own or steps] or [script]


def runs(script: Script, step: Step, network: cst.BaseExpression) -> bool:
    """Return whether a step runs a network."""
    run = (each for call in step.forwards for each in run_by(script, call))
    return any(script.modules.same(each, network) for each in run)


def run_by(script: Script, forward: cst.Call) -> list[cst.BaseExpression]:
    """Return the network that a forward pass of a step runs, or those that its function runs."""
    lineage = script.modules.lineage
    found = lineage.network(forward)
    return [found] if found is not None else [each for _, each in lineage.of(forward).calls]


def trained_in(script: Script, step: Step) -> list[cst.BaseExpression]:
    """Return the networks that a step trains, none if one of them is unknown."""
    networks: list[cst.BaseExpression] = []
    grad = script.values.gradients.grad
    trained = [each for each in step.forwards if grad(each) is not Grad.OFF]
    for call in trained or step.forwards:
        run = run_by(script, call)
        if not run:
            return []
        networks += run
    return networks


def is_open(script: Script, step: Step) -> bool:
    """Return whether a step runs a method that only classes out of view define."""
    run = (each for call in step.forwards for each in script.functions.callees(call))
    return any(map(script.functions.is_abstract, run))


def trains_in_float32(script: Script, step: Step) -> bool:
    """Return whether a step trains in float32 what autocast would train faster."""
    return _is_plain(script, step) and not keeps_to_float32(script.around(step.backward))


def keeps_to_float32(script: Script) -> bool:
    """Return whether the code around a step chooses a precision, or needs float32 or more."""
    precision = script.values.precision
    if precision.mentions_low_precision or precision.is_wide:
        return True
    if script.program.vocabulary.has_lowered(_SHARDED):
        return True
    if in_environment(script) or any(
        f"{each}.".startswith(_OWN_KERNELS) for each in script.functions.imported
    ):
        return True
    if any(
        "torch.autograd.Function" in script.functions.bases(owner)
        for owner in script.tree.all(cst.ClassDef)
    ):
        return True
    if any(name in _FULL or name.startswith("torch.sparse") for name in script.calls.called):
        return True
    logs = (each.node for each in script.calls.of("torch.log"))
    if any(log.args and _is_rest(log.args[0].value) for log in logs):
        return True
    return script.tree.mentions(*_KEYWORDS) and any(
        arg.keyword is not None
        and arg.keyword.value in _KEYWORDS
        and script.code(arg.value) != "False"
        for arg in script.tree.all(cst.Arg)
    )


def _is_rest(node: cst.BaseExpression) -> bool:
    """Return whether an expression is `1 - p`, which is 0 where bfloat16 rounds `p` to 1."""
    return (
        isinstance(node, cst.BinaryOperation)
        and isinstance(node.operator, cst.Subtract)
        and isinstance(node.left, (cst.Integer, cst.Float))
    )


def _is_plain(script: Script, step: Step) -> bool:
    """Return whether a step has one loss, and an optimizer over a network's parameters steps it."""
    home = script.scopes.function(step.backward)
    if home is not None and home.name.value.startswith("test_"):
        return False
    if not script.loops.steps.is_alone(step) or not script.loops.steps.updates(step):
        return False
    if script.loops.is_done(step.backward, Duty.PRECISION) or is_open(script, step):
        return False
    if script.loops.steps.run_on_host(step) or script.modules.graphs.are_trained_in(step):
        return False
    if script.modules.sizes.are_tiny(*trained_in(script, step)):
        return False
    made = [call for call in script.tree.all(cst.Call) if script.kind(call) is Kind.OPTIMIZER]
    return not made or not all(_moves_tensors(script, call) for call in made)


def _moves_tensors(script: Script, optimizer: cst.Call) -> bool:
    """Return whether an optimizer gets single tensors: `Adam([image])`."""
    held = script.calls.at(optimizer).argument("params", 0).node
    return isinstance(held, cst.List) and not any(
        "param" in script.values.code_of(each.value) for each in held.elements
    )


def moved_networks(script: Script) -> Iterator[Move]:
    """Yield the moves of networks to a device."""
    for site in script.calls.of_methods(*_MOVES):
        call = site.node
        move = script.program.moves.move(call)
        if move is not None and _is_network(script, move.moved, script.tree.parent(call)):
            yield move


def place(script: Script) -> cst.CSTNode | None:
    """Return the call that moves a trained network, else the iterable of the training loop.

    Where a module moves the network of a program, that is the call which makes it for the program.
    """
    guard, moves = script.loops.guard, _trained_moves(script)
    moved = guard.first(move.call for move in moves)
    if moved is not None:
        if not guard.guards() or guard.starts(moved):
            return moved
        made = (call for move in moves for call in _makers_of(script, move))
        steps = [step.backward for step in script.loops.steps.all]
        return guard.first(call for call in made if guard.starts(call, *steps)) or moved
    loop = script.loops.guard.first(loop.node for loop in script.loops.of(Role.TRAIN_BATCH))
    if loop is None:
        return None
    return loop.iter if isinstance(loop, cst.For) else loop.test


def may_hold_place(script: Script) -> bool:
    """Return whether the file itself has a call or a loop that `place` may return."""
    loops, tree = script.loops, script.tree
    nodes: list[cst.For | cst.While] = [*tree.own(cst.For), *tree.own(cst.While)]
    return (
        any(tree.is_own(guard) for guard in loops.guard.guards())
        or any(method_of(call) in _MOVES for call in tree.own(cst.Call))
        or any(loops.loop(node).role is Role.TRAIN_BATCH for node in nodes)
    )


def _trained_moves(script: Script) -> list[Move]:
    """Return the moves of networks that a step runs, else of those where the steps stand."""
    moves, steps = list(moved_networks(script)), script.loops.steps.all
    trained = [each for each in moves if any(runs(script, step, each.moved) for step in steps)]
    homes = {script.scopes.home(step.backward) for step in steps}
    return trained or [
        move for move in moves if not steps or script.scopes.home(move.call) in homes
    ]


def _makers_of(script: Script, move: Move) -> Iterator[cst.Call]:
    """Yield the calls that build a network which is moved, and those of the function that does."""
    yield from makers(script, move.moved)
    function = script.scopes.function(move.call)
    if function is not None and script.scopes.class_of(function) is None:
        yield from script.functions.callers(function)


def _is_network(script: Script, moved: cst.BaseExpression, holder: cst.CSTNode | None) -> bool:
    """Return whether a moved value is a network, or is assigned to a name for one."""
    if script.kind(moved) is Kind.MODULE:
        return True
    if not isinstance(holder, cst.Assign) or not isinstance(moved, cst.Call):
        return False
    target = holder.targets[0].target
    if isinstance(target, cst.Attribute):
        return any(
            script.kind(other) is Kind.MODULE
            for other in script.tree.all(cst.Attribute)
            if other.attr.value == target.attr.value and script.code(other) == script.code(target)
        )
    return isinstance(target, cst.Name) and any(
        script.kind(name) is Kind.MODULE
        for name in script.tree.spelled(target.value)
        if script.scopes.reads(name)
    )


def makers(script: Script, node: cst.BaseExpression) -> tuple[cst.Call, ...]:
    """Return the calls that build a network, where there is one, empty if some are unknown."""
    origin = script.values.origins.of(node)
    made = [each for each in origin.values if script.code(each) != "None"]
    calls = [_unmoved(each) for each in made if isinstance(each, cst.Call)]
    return tuple(calls) if origin.complete and len(calls) == len(made) else ()


def _unmoved(call: cst.Call) -> cst.Call:
    """Return the network of `Net().to(device)`."""
    while isinstance(inner := receiver_of(call, "to", "cuda", "train", "float"), cst.Call):
        call = inner
    return call


def setting(script: Script, line: str) -> Edits | None:
    """Insert a settings line after the imports of the module; `{torch}` in it is torch's name."""
    last: cst.CSTNode | None = None
    below: cst.CSTNode | None = None
    settled = False
    for statement in script.tree.module.body:
        below = below or statement
        if not isinstance(statement, cst.SimpleStatementLine):
            if isinstance(statement, (cst.FunctionDef, cst.ClassDef)) or last is not None:
                break
            continue
        if isinstance(statement.body[0], (cst.Import, cst.ImportFrom)):
            last, below, settled = statement, None, False
        elif _SETTINGS.match(script.code(statement)):
            last, below, settled = statement, None, True
    if last is None or below is None or not script.edits.stands_alone(last):
        return None
    written = script.edits.importing("torch", at=below)
    if written is None or written[1]:
        return None
    text = line.format(torch=written[0])
    return script.edits.after(last, text) if settled else script.edits.after(last, "", text)
