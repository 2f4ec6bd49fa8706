"""TL308: networks that train without torch.compile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Move, Rule, Script
from torchlint_rules.shared.cuda import (
    in_environment,
    makers,
    may_be_cuda,
    may_hold_place,
    moved_networks,
    place,
    surroundings,
    trains,
)

_COMPILED: Final = re.compile(
    r"^(?!re\.compile$).*\b_?compiled?$|compile_model|torchcompile|_dynamo|tensorrt|jit\.(?:script|trace)$|"
    r"torch\.jit|ScriptModule|openxla|torch_xla",
    re.MULTILINE,
)
_UNFIT: Final = re.compile(
    r"create_graph|autograd\.grad$|gradgrad|torch_geometric|torch_sparse|torch_scatter|\bdgl\b|sparse|"
    r"\b(?:LSTM|GRU|RNN)(?:Cell)?$|\bDataParallel$|\bdata_parallel$|FullyShardedDataParallel|FSDP|fully_shard|"
    r"cpp_extension|quantiz|\.fx$|torch\.fx|set_detect_anomaly",
    re.MULTILINE,
)
_VARYING: Final = re.compile(
    r"collat|multi_?scale|detection|rcnn|\byolo|bbox|pad_sequence|pack_padded|bucket|tokenizer|"
    r"torchaudio|librosa|spectrogram|progressive|random_?size|random_?resolution|variable_length|"
    r"seq2seq|init_?hidden|\brnn|lstm|\bgru|translat|sentence|pad_idx|padding_idx|"
    r"edge_index|\badj\b|\bgcn|graph_?conv|unittest|pytest"
)
_LOSS: Final = frozenset("loss losses criterion crit metric metrics".split())
_ELSEWHERE: Final = frozenset(
    "test eval evaluate evaluation validate predict infer inference sample generate demo export "
    "ema teacher target frozen".split()
)
_LAYER: Final = re.compile(
    r"torch\.nn\.(?:Linear|Bilinear|Lazy\w+|Conv\w+|Embedding\w*|Transformer\w*|\w*Norm\w*|"
    r"MultiheadAttention)"
)
_OPEN: Final = re.compile(r"(?:torch|builtins|math|numpy|collections|functools|typing)(?:\.|$)")
_LINEAR: Final = "torch.nn.Linear"
_WORTH: Final = 3
_WORTH_LINEAR: Final = 8
_BECAUSE: Final = (
    "compiled code rounds differently and draws other dropout masks, compiling takes seconds to "
    "minutes, and it needs a C++ compiler and Triton"
)


class EagerModel(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every network of a training program that could be compiled and is not."""
        if not may_hold_place(script) or not may_be_cuda(script):
            return
        if in_environment(script) or not trains(script):
            return
        moves = list(moved_networks(script))
        known: set[str] = set()
        for move in moves:
            name = _named(script, move)
            if (
                (name and name in known)
                or not _is_trained(script, move, name)
                or _is_small(script, move)
                or any(map(_is_unfit, surroundings(script, move.moved)))
            ):
                continue
            known.add(name)
            edits = _compiled(script, move, name)
            fix = None
            if edits is not None:
                fix = Fix.unsafe("Compile the network", edits, because=_BECAUSE)
            yield Finding(self.code, script.span(move.call), _message(script, name, move), fix)
        name = _run(script) if not moves else ""
        unfit = not name or any(map(_is_unfit, surroundings(script)))
        node = None if unfit else place(script)
        if node is not None:
            yield Finding(self.code, script.span(node), _message(script, name))


def _is_unfit(script: Script) -> bool:
    """Return whether code is compiled, cannot be, or would be compiled again and again."""
    said = script.program.vocabulary
    return said.has(_COMPILED) or said.has(_UNFIT) or said.has_lowered(_VARYING)


def _message(script: Script, name: str, move: Move | None = None) -> str:
    """Return the message for a network that is not compiled, with the advice."""
    named = f"`{name}`" if name else "the network"
    if not name and move is not None and isinstance(move.moved, cst.Call):
        named = f"`{script.code(move.moved.func)}`"
    layers = move is not None and script.modules.compiled.compiles_nothing(move.moved)
    if script.program.target.has((2, 2)) and not layers:
        how = f"`{name or 'model'}.compile()`"
    else:
        how = (
            f"`torch.compile({name or 'model'})`, whose checkpoints prefix keys with `_orig_mod.`,"
        )
    return (
        f"{named} runs operation by operation: {how} fuses kernels, which pays off when training "
        "takes longer than a few minutes"
    )


def _run(script: Script) -> str:
    """Return the name of the network that the first training step runs."""
    for step in script.loops.steps.all:
        for call in step.forwards:
            network = script.loops.module_call(call)
            if isinstance(network, (cst.Name, cst.Attribute)):
                return script.code(network)
    return ""


def _named(script: Script, move: Move) -> str:
    """Return the name of a network after it is moved."""
    holder = script.tree.parent(move.call)
    if isinstance(holder, cst.Assign) and len(holder.targets) == 1:
        target: cst.BaseExpression = holder.targets[0].target
    else:
        target = move.moved
    return script.code(target) if isinstance(target, (cst.Name, cst.Attribute)) else ""


def _is_trained(script: Script, move: Move, name: str) -> bool:
    """Return whether a moved value is a trained network, not a loss or a frozen one."""
    function = script.scopes.function(move.call)
    words = set(script.names.words(name))
    if function is not None:
        words |= set(script.names.words(function.name.value)) & _ELSEWHERE
        if "." not in name and not _trains_or_gives(script, function, name):
            return False
    made = {(script.name(call.func) or "") for call in makers(script, move.moved)}
    is_loss = any(each.endswith("Loss") or each == "copy.deepcopy" for each in made)
    return not is_loss and words.isdisjoint(_LOSS | _ELSEWHERE)


def _trains_or_gives(script: Script, function: cst.FunctionDef, name: str) -> bool:
    """Return whether a function or its callees run backward, or return a named network."""
    steps = [step.backward for step in script.loops.steps.all]
    bodies = script.functions.reached(function)
    return any(script.tree.inside(step, body) for step in steps for body in bodies) or any(
        inner.value == name
        for returned in script.functions.returns(function)
        for inner in script.tree.within(returned, cst.Name)
    )


def _is_small(script: Script, move: Move) -> bool:
    """Return whether a network is visible and has few layers."""
    made = makers(script, move.moved)
    if not made:
        return False
    layers: list[str] = []
    for call in made:
        for region in script.modules.sizes.regions(call):
            if any(
                True for kind in (cst.For, cst.CompFor) for _ in script.tree.within(region, kind)
            ):
                return False
            names = {
                id(each): script.name(each.func) for each in script.tree.within(region, cst.Call)
            }
            if any(name is not None and not _OPEN.match(name) for name in names.values()):
                return False
            layers += [name for name in names.values() if name and _LAYER.fullmatch(name)]
    return len(layers) < (_WORTH_LINEAR if set(layers) == {_LINEAR} else _WORTH)


def _compiled(script: Script, move: Move, name: str) -> Edits | None:
    """Compile a network after the line that moves it."""
    line, holder = script.tree.statement(move.call), script.tree.parent(move.call)
    written = script.edits.importing("torch", at=line)
    if not name or not script.program.target.has((2, 2)) or written is None or written[1]:
        return None
    if not isinstance(holder, (cst.Assign, cst.Expr)) or not script.edits.stands_alone(line):
        return None
    if any(True for _ in script.loops.around(move.call)):
        return None
    disabled = _disabled(script, move, written[0])
    code = f"{name}.compile({disabled})"
    if script.modules.compiled.compiles_nothing(move.moved):
        given = ", ".join(filter(None, (name, disabled)))
        code = f"{name} = {written[0]}.compile({given})"
    return script.edits.after(line, code)


def _disabled(script: Script, move: Move, torch: str) -> str:
    """Return the argument that turns compiling off if the device is not an NVIDIA GPU."""
    if move.device is None or move.method == "cuda":
        return ""
    origin = script.values.origins.of(move.device)
    if origin.complete and origin.values and all(_is_cuda(script, each) for each in origin.values):
        return ""
    if isinstance(move.device, (cst.Name, cst.Attribute)) and script.program.moves.has_type(
        move.device
    ):
        return f'disable={script.code(move.device)}.type != "cuda"'
    return f"disable=not {torch}.cuda.is_available()"


def _is_cuda(script: Script, device: cst.BaseExpression) -> bool:
    """Return whether an expression certainly is an NVIDIA GPU."""
    if isinstance(device, cst.Call) and script.name(device.func) == "torch.device" and device.args:
        return _is_cuda(script, device.args[0].value)
    return isinstance(device, cst.SimpleString) and str(device.evaluated_value).startswith("cuda")
