"""TL803: debugging environment variables that the script sets in every run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Finding, Fix, Rule, Script, Value, index_of
from torchlint_rules.shared.removal import Leftover, removal_of

_COSTS: Final = {
    "CUDA_LAUNCH_BLOCKING": "makes the host wait for every kernel",
    "TORCH_SHOW_CPP_STACKTRACES": "adds C++ stacks to every error",
    "TORCH_DISTRIBUTED_DEBUG": "checks and logs every collective",
    "NCCL_DEBUG": "logs what NCCL does",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "allocates GPU memory again for every tensor",
    "PYTORCH_NO_HIP_MEMORY_CACHING": "allocates GPU memory again for every tensor",
    "TORCH_LOGS": "logs what the compiler does",
    "TORCHDYNAMO_DISABLE": "switches `torch.compile` off",
    "TORCH_COMPILE_DISABLE": "switches `torch.compile` off",
    "OMP_NUM_THREADS": "leaves all but one of the processor's cores idle",
}
_DEAR: Final = {
    "TORCH_DISTRIBUTED_DEBUG": frozenset({"detail"}),
    "NCCL_DEBUG": frozenset({"info", "trace"}),
    "OMP_NUM_THREADS": frozenset({"1"}),
}
"""The values that cost time, for variables with harmless values."""
_MANY_PROCESSES: Final = tuple(
    f"{package}.{name}"
    for package in ("multiprocessing", "torch.multiprocessing")
    for name in ("Process", "Pool", "spawn", "start_processes")
)
"""What starts the processes that share the cores, one thread each."""
_OFF: Final = frozenset({"", "0", "off", "false", "no", "n"})
_DEBUGGING: Final = ("CUDA_LAUNCH_BLOCKING", "TORCH_SHOW_CPP_STACKTRACES")
"""The variables that do not affect the numbers."""


class DebugEnvironment(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every line that sets a debugging variable in each run."""
        found = [
            each
            for each in (*_assigned(script), *_called(script))
            if _costs(script, each)
            and not script.loops.conditions.is_conditional(each.node, "debug", "trace")
        ]
        lines = [_leftover(script, each) for each in found]
        together = [line for line in lines if line is not None]
        for each, line in zip(found, lines, strict=True):
            edits = removal_of(script, line, together) if line is not None else None
            fix = Fix.exact(f"Leave {each.name} alone", edits) if edits is not None else None
            yield Finding(self.code, script.span(each.node), _message(each), fix)


class _Setting(NamedTuple):
    """One variable that a statement, or a part of it, sets."""

    node: cst.CSTNode
    name: str
    value: str
    whole: bool
    """Whether the statement does nothing else."""


def _assigned(script: Script) -> Iterator[_Setting]:
    """Yield what `os.environ["X"] = "1"` sets."""
    for line in script.tree.all(cst.Assign):
        target = line.targets[0].target
        index = index_of(target)
        if not isinstance(target, cst.Subscript) or index is None:
            continue
        if script.name(target.value) == "os.environ":
            name, value = script.values.value_of(index), script.values.value_of(line.value)
            yield from _setting(line, name, value, whole=len(line.targets) == 1)


def _called(script: Script) -> Iterator[_Setting]:
    """Yield what `setdefault`, `putenv` and `update` set."""
    for site in script.calls.of("os.environ.setdefault", "os.putenv"):
        name, value = site.argument("key"), site.argument("value")
        whole = isinstance(script.tree.parent(site.node), cst.Expr)
        yield from _setting(site.node, name, value, whole=whole)
    for site in script.calls.of("os.environ.update"):
        for arg in site.node.args:
            if arg.keyword is not None:
                value = script.values.value_of(arg.value)
                if arg.keyword.value in _COSTS and type(value.literal) is str:
                    yield _Setting(arg, arg.keyword.value, value.literal, whole=False)
            elif isinstance(arg.value, cst.Dict):
                for entry in arg.value.elements:
                    if isinstance(entry, cst.DictElement):
                        name = script.values.value_of(entry.key)
                        yield from _setting(
                            entry, name, script.values.value_of(entry.value), whole=False
                        )


def _setting(node: cst.CSTNode, name: Value, value: Value, *, whole: bool) -> Iterator[_Setting]:
    if type(name.literal) is str and name.literal in _COSTS and type(value.literal) is str:
        yield _Setting(node, name.literal, value.literal, whole)


def _costs(script: Script, setting: _Setting) -> bool:
    """Return whether a value slows the script down on the devices that it can use."""
    value = setting.value.strip().lower()
    if setting.name == "OMP_NUM_THREADS":
        return (
            value in _DEAR[setting.name]
            and not script.program.devices.can_use_accelerator
            and next(script.calls.of(*_MANY_PROCESSES), None) is None
        )
    if setting.name not in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE", "TORCH_LOGS"):
        if script.program.target.device == "cpu":
            return False
    if setting.name in _DEAR:
        return value in _DEAR[setting.name]
    if setting.name == "TORCH_LOGS":
        return any(part.strip()[:1] not in ("", "-") for part in value.split(","))
    return value not in _OFF


def _leftover(script: Script, setting: _Setting) -> Leftover | None:
    """Return the line to remove if a setting does not affect the numbers."""
    if setting.name not in _DEBUGGING or not setting.whole or _is_read(script, setting.name):
        return None
    line = script.tree.statement(setting.node)
    return Leftover.of(script, line) if isinstance(line, cst.SimpleStatementLine) else None


def _is_read(script: Script, name: str) -> bool:
    """Return whether the file mentions a variable more often than it sets it."""
    texts = [text for text in script.tree.all(cst.SimpleString) if text.evaluated_value == name]
    sets = [each for each in (*_assigned(script), *_called(script)) if each.name == name]
    return len(texts) > len(sets)


def _message(setting: _Setting) -> str:
    where = "" if setting.name == "OMP_NUM_THREADS" else ", or set it in the shell to debug"
    return f"`{setting.name}={setting.value}` {_COSTS[setting.name]} in every run: remove it{where}"
