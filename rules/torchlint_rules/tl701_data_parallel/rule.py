"""TL701: a network that `nn.DataParallel` runs on all GPUs from one process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from torchlint.api import Finding, Fix, Grad, Kind, Note, Rule, Script
from torchlint_rules.shared.rebuilding import moved
from torchlint_rules.tl701_data_parallel.torchrun.wrap import ObstacleError, wraps

_TORCHRUN = frozenset({
    "torch.nn.parallel.DistributedDataParallel",
    "torch.distributed.init_process_group",
    "torch.distributed.fsdp.FullyShardedDataParallel",
})  # fmt: skip
_LAUNCHERS = {"lightning": "Lightning", "fabric": "Fabric", "accelerate": "Accelerate"}
_OPTIMIZER = re.compile(r"\w*(?:Adam[Ww]?|SGD|Lamb|RMS[Pp]rop|Optimizer|Optim)")
_BECAUSE = (
    "launch it by `torchrun --nproc-per-node N`; under torchrun each process has its own batch "
    "norm statistics and random stream, samples come in another order, and numbers of the "
    "training loop are those of rank 0's samples"
)


class DataParallel(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every network that is wrapped for training."""
        if script.program.target.device == "mps":
            return
        if script.program.devices.framework != "none":
            yield from self._beside_framework(script)
            return
        if script.source.is_notebook or any(True for _ in script.calls.of(*_TORCHRUN)):
            return
        groups: dict[int, list[Finding]] = {}
        for call in wraps(script) if _trains(script) else ():
            if not _infers_only(script, call) and not _is_on_one_device(script, call):
                home = groups.setdefault(id(script.scopes.home(call)), [])
                home.append(self._finding(script, call))
        for found in groups.values():
            yield from _joined(found)

    def _beside_framework(self, script: Script) -> Iterator[Finding]:
        """Flag the networks whose training a framework spreads over processes itself."""
        for call in wraps(script):
            owner = _LAUNCHERS.get(script.loops.owner(call) or "")
            if owner and not _infers_only(script, call) and not _is_on_one_device(script, call):
                message = (
                    f"each process copies {_called(script, call)} to all GPUs in every step, and "
                    f"{owner} starts one process per GPU itself: leave this wrap out"
                )
                yield Finding(self.code, script.span(call), message)

    def _finding(self, script: Script, call: cst.Call) -> Finding:
        network = _called(script, call)
        said = (
            f"one process drives all GPUs and copies {network} to them in every step; "
            "train with one process per GPU (DistributedDataParallel, torchrun)"
        )
        span = script.span(call)
        from torchlint_rules.tl701_data_parallel.torchrun.rewrite import under_torchrun

        try:
            edits = under_torchrun(script, call)
        except ObstacleError as obstacle:
            return Finding(self.code, span, f"{said}. Not rewritten: {obstacle.told(script)}")
        fix = Fix.unsafe("Run it under torchrun", edits, because=_BECAUSE)
        return Finding(self.code, span, said, fix)


def _is_on_one_device(script: Script, call: cst.Call) -> bool:
    """Return whether a wrap names a single device: `device_ids=[0]`."""
    given = script.calls.at(call).argument("device_ids", 1).node
    devices = script.values.value_of(given).node if given is not None else None
    if isinstance(devices, cst.Call) and script.name(devices.func) == "builtins.list":
        devices = devices.args[0].value if len(devices.args) == 1 else None
    if isinstance(devices, cst.Call) and script.name(devices.func) == "builtins.range":
        return [script.code(arg.value) for arg in devices.args] in (["1"], ["0", "1"])
    if not isinstance(devices, (cst.List, cst.Tuple)) or len(devices.elements) != 1:
        return False
    return not isinstance(devices.elements[0], cst.StarredElement)


def _joined(found: list[Finding]) -> list[Finding]:
    """Return the findings of a function, as one with notes if none has a fix."""
    if any(each.fix is not None for each in found):
        return found
    notes = tuple(Note(each.span, "wrapped here as well") for each in found[1:])
    return [replace(found[0], notes=(*found[0].notes, *notes))]


def _called(script: Script, call: cst.Call) -> str:
    """Return the user's name for the wrapped network."""
    source = call.args[0].value if call.args else call
    if isinstance(source, (cst.Name, cst.Attribute)):
        return f"`{script.code(source)}`"
    assign = script.tree.parent(moved(script, call))
    target = assign.targets[0].target if isinstance(assign, cst.Assign) else None
    return f"`{script.code(target)}`" if isinstance(target, cst.Name) else "the network"


def _trains(script: Script) -> bool:
    """Return whether the file shows that networks are trained."""
    return any(
        name.value.startswith("optimizer") or _OPTIMIZER.fullmatch(name.value)
        for name in script.tree.all(cst.Name)
    ) or any(
        script.loops.is_step(call) or script.kind(call) is Kind.OPTIMIZER
        for call in script.tree.all(cst.Call)
    )


def _infers_only(script: Script, call: cst.Call) -> bool:
    """Return whether a wrapped network runs without gradients only, or in evaluation mode."""
    whole = moved(script, call)
    attribute = script.tree.parent(whole)
    if isinstance(attribute, cst.Attribute) and attribute.attr.value == "eval":
        return True
    assign = script.tree.parent(whole)
    uses = script.modules.reads(call) if isinstance(assign, cst.Assign) else ()
    holders = [script.tree.parent(use) for use in uses if not script.tree.inside(use, call)]
    runs = [each for each in holders if isinstance(each, cst.Call)]
    without = bool(runs) and all(script.values.gradients.grad(run) is Grad.OFF for run in runs)
    learns = any(
        (isinstance(each, cst.Arg) and not (without and _is_followed(script, each)))
        or (isinstance(each, cst.Attribute) and each.attr.value in ("parameters", "train"))
        for each in holders
    )
    if any(isinstance(each, cst.Attribute) and each.attr.value == "eval" for each in holders):
        function = script.scopes.function(call)
        made = [call, *(script.functions.callers(function) if function is not None else ())]
        return not learns and not any(map(script.modules.holders, made))
    return without and not learns


def _is_followed(script: Script, arg: cst.Arg) -> bool:
    """Return whether an argument goes to a function in view, whose parameter is looked at, too."""
    call = script.tree.parent(arg)
    return isinstance(call, cst.Call) and script.functions.callee(call) is not None
