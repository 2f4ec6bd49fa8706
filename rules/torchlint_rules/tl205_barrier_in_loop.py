"""TL205: every step syncs with the device, empties the allocator or collects garbage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import CallSite, Edits, Finding, Fix, Frequency, Rule, Script


class _Barrier(NamedTuple):
    """The cost of a call in every step, and the risk of removing it."""

    cost: str
    because: str


_WAITS: Final = _Barrier(
    "waits until the device has done all that is queued, and leaves it idle until more comes",
    "code that times the steps by the clock then times how they are queued",
)
_EMPTIES: Final = _Barrier(
    "waits for the device, gives memory back and asks for the same memory again",
    "a script that is short of memory may run out of it",
)
_COLLECTS: Final = _Barrier(
    "goes through every object of the program; tensors are freed without it",
    "a script with reference cycles may need more memory",
)
_RESETS: Final = _Barrier(
    "resets a statistic that the step does not use",
    "peaks that the script reports are then those of the whole run",
)
_BARRIERS: Final = {
    "gc.collect": _COLLECTS,
    **{
        f"torch.{device}.{call}": barrier
        for device in ("cuda", "xpu", "mps", "accelerator", "accelerator.memory")
        for call, barrier in (
            ("synchronize", _WAITS),
            ("empty_cache", _EMPTIES),
            ("ipc_collect", _EMPTIES),
            ("reset_peak_memory_stats", _RESETS),
            ("reset_max_memory_allocated", _RESETS),
        )
    },
}
_CLOCKS: Final = frozenset({"time.time", "time.perf_counter", "time.monotonic", "timeit.timeit"})
_STREAMS: Final = (
    "torch.cuda.Stream",
    "torch.cuda.stream",
    "torch.cuda.graph",
    "torch.cuda.CUDAGraph",
    "torch.cuda.Event",
    "threading.Thread",
)


class BarrierInLoop(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every barrier in each step."""
        hot = [
            site
            for site in script.calls(*_BARRIERS)
            if script.frequency(site.node) is Frequency.EVERY_PASS and not _is_meant(script, site)
        ]
        for site in hot:
            barrier = _BARRIERS[str(site.name)]
            message = f"`{script.code(site.node)}` in every step {barrier.cost}; take it out"
            span = script.span(site.node)
            yield Finding(self.code, span, message, _fix(script, site, hot))


def _is_meant(script: Script, site: CallSite) -> bool:
    """Return whether code around a barrier needs it, or makes it rare."""
    loop = script.batch_loop(site.node)
    if loop is not None and script.is_round(loop):
        return True
    if any("mem" in script.code(test) for test in script.tests_around(site.node)):
        return True
    home = loop.node if loop is not None else script.function(site.node)
    barrier = _BARRIERS[str(site.name)]
    if home is None or barrier in (_EMPTIES, _COLLECTS):
        return home is None
    calls = list(script.within(home, cst.Call))
    if barrier is _RESETS:
        return any("max_memory" in script.code(call.func) for call in calls)
    return (
        any(script.name(call.func) in _CLOCKS for call in calls)
        or any(True for _ in script.calls(*_STREAMS))
        or any(_copies_to_host(script, call) for call in calls)
    )


def _copies_to_host(script: Script, call: cst.Call) -> bool:
    """Return whether a call is a non-blocking copy to the host."""
    if not any(
        arg.keyword is not None and arg.keyword.value == "non_blocking" for arg in call.args
    ):
        return False
    return script.moves.move(call) is None


def _fix(script: Script, site: CallSite, hot: list[CallSite]) -> Fix | None:
    if not _can_go(script, site):
        return None
    gone = _gone(script, site)
    edits: Edits = script.rewrite.drop(gone)
    imports = script.rewrite.without_imports(gone)
    alike = [other for other in hot if other.name == site.name and _can_go(script, other)]
    if not imports and len(alike) > 1:
        together = [_gone(script, other) for other in alike]
        imports = script.rewrite.without_imports(*together)
        if imports:
            edits = tuple(edit for each in together for edit in script.rewrite.drop(each))
    because = _BARRIERS[str(site.name)].because
    return Fix.unsafe(f"Take out {script.code(site.node)}", edits, imports or (), because=because)


def _gone(script: Script, site: CallSite) -> cst.BaseStatement:
    """Return the line of a call, or the `if` around it that only checks for a device."""
    line = script.statement(site.node)
    block = script.parent(line)
    test = script.parent(block) if block is not None else None
    alone = isinstance(block, cst.IndentedBlock) and len(block.body) == 1
    if not alone or not isinstance(test, cst.If) or test.orelse is not None:
        return line
    asks = (script.name(call.func) or "" for call in script.within(test.test, cst.Call))
    if isinstance(script.parent(test), cst.If) or "#" in script.code(test):
        return line
    return test if all(name.endswith(".is_available") for name in asks) else line


def _can_go(script: Script, site: CallSite) -> bool:
    """Return whether a call is a statement on its own line."""
    line = script.statement(site.node)
    return isinstance(script.parent(site.node), cst.Expr) and (
        isinstance(line, cst.SimpleStatementLine) and script.rewrite.stands_alone(line)
    )
