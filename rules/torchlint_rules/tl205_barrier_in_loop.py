"""TL205: every step syncs with the device, empties the allocator or collects garbage."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import CallSite, Edits, Finding, Fix, Frequency, Rule, Script
from torchlint_rules.shared.leftoptions import LeftOption, left_options


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
_OPTION: Final = LeftOption(
    "torch_empty_cache_steps",
    tuple(range(1, 11)),
    ("transformers", "trl"),
    "gives the cached memory back every few steps, and asks for the same memory again",
    _EMPTIES.because,
    "medium",
)
_IT: Final = ("it", "them")
_CLOCKS: Final = frozenset({"time.time", "time.perf_counter", "time.monotonic", "timeit.timeit"})
_BODIES: Final = (cst.SimpleStatementLine, cst.IndentedBlock, cst.SimpleStatementSuite)
_BESIDE: Final = (
    "torch.distributed.batch_isend_irecv",
    "torch.cuda.Stream",
    "torch.cuda.stream",
    "torch.cuda.graph",
    "torch.cuda.CUDAGraph",
    "torch.cuda.Event",
    "threading.Thread",
)
"""What runs beside the queue of the device, whose order then rests on a barrier."""


class BarrierInLoop(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every barrier in each step."""
        yield from left_options(script, self.code, _OPTION)
        hot = [
            site
            for site in script.calls.of(*_BARRIERS)
            if script.loops.frequency(site.node) is Frequency.EVERY_PASS
            and not _is_meant(script, site)
        ]
        for sites in _beside(script, hot):
            first, *others = (
                (script.code(site.node), _BARRIERS[str(site.name)].cost) for site in sites
            )
            message = f"`{first[0]}` in every step {first[1]}"
            message += "".join(f"; and `{code}` {cost}" for code, cost in others)
            span, shared = script.span(sites[0].node), _shared(script, sites[0])
            cure = f"remove {_IT[len(sites) > 1]}"
            if shared is not None:
                cure = f"do not call `{shared.name.value}` in the step"
            yield Finding(self.code, span, f"{message}; {cure}", _fix(script, sites, hot))


def _shared(script: Script, site: CallSite) -> cst.FunctionDef | None:
    """Return the function of a barrier if it has no other work, and also runs outside of steps."""
    home = script.scopes.function(site.node)
    if home is None or script.loops.batch_loop(site.node) is not None:
        return None
    done = {script.name(call.func) or "" for call in script.functions.own(home.body, cst.Call)}
    if not all(name in _BARRIERS or name.endswith("available") for name in done):
        return None
    rates = {script.loops.frequency(call) for call in script.functions.callers(home)}
    only = rates <= {Frequency.EVERY_PASS} and not script.functions.called_unseen(home)
    return None if only else home


def _beside(script: Script, hot: list[CallSite]) -> list[list[CallSite]]:
    """Return barriers in groups that stand line by line in one block, without repeats."""
    groups: list[list[CallSite]] = []
    for site in sorted(hot, key=lambda each: script.span(each.node).start):
        last = groups[-1] if groups else []
        new = site.name not in {each.name for each in last}
        if last and new and _follows(script, last[-1], site):
            last.append(site)
        else:
            groups.append([site])
    return groups


def _follows(script: Script, one: CallSite, other: CallSite) -> bool:
    """Return whether a barrier is the statement after another, checks of devices aside."""
    places = (_place(script, one), _place(script, other))
    return places in pairwise(script.tree.beside(places[0]))


def _place(script: Script, site: CallSite) -> cst.CSTNode:
    """Return the statement of a barrier, or the `if` around it that only checks for a device."""
    check = _check(script, site)
    return script.tree.smallest_statement(site.node) if check is None else check


def _is_meant(script: Script, site: CallSite) -> bool:
    """Return whether code around a barrier needs it, or makes it rare."""
    loop = script.loops.batch_loop(site.node)
    if script.loops.is_in_round(site.node):
        return True
    if any("mem" in script.code(test) for test in script.tree.tests_around(site.node)):
        return True
    home = loop.node if loop is not None else script.scopes.function(site.node)
    barrier = _BARRIERS[str(site.name)]
    if home is None:
        return True
    if barrier in (_EMPTIES, _COLLECTS):
        return script.loops.generation.is_beside(script.span(site.node))
    calls = list(script.tree.within(home, cst.Call))
    if loop is not None:
        after = (two[1] for two in pairwise(script.tree.beside(loop.node)) if two[0] is loop.node)
        calls += [call for line in after for call in script.tree.within(line, cst.Call)]
    if barrier is _RESETS:
        return any("max_memory" in script.code(call.func) for call in calls)
    return (
        any(
            script.name(call.func) in _CLOCKS and script.loops.frequency(call) is not Frequency.RARE
            for call in calls
        )
        or any(
            script.name(call.func) in _BESIDE
            for body in script.functions.run_with(site.node)
            for call in script.functions.own(body, cst.Call)
        )
        or any(_copies_to_host(script, call) for call in calls)
    )


def _copies_to_host(script: Script, call: cst.Call) -> bool:
    """Return whether a call is a non-blocking copy to the host."""
    return script.calls.at(call).given("non_blocking") is not None and (
        script.program.moves.move(call) is None
    )


def _fix(script: Script, sites: list[CallSite], hot: list[CallSite]) -> Fix | None:
    if not all(_can_go(script, site) for site in sites):
        return None
    gone = [_gone(script, site) for site in sites]
    edits: Edits = script.edits.drop_all(gone) if len(gone) > 1 else script.edits.drop(gone[0])
    imports = script.edits.without_imports(*gone)
    names = {site.name for site in sites}
    alike = [other for other in hot if other.name in names and _can_go(script, other)]
    if not imports and len(alike) > len(sites):
        together = [_gone(script, other) for other in alike]
        imports = script.edits.without_imports(*together)
        if imports:
            edits = script.edits.drop_all(together)
    because = ", and ".join(dict.fromkeys(_BARRIERS[str(site.name)].because for site in sites))
    title = f"Remove {' and '.join(script.code(site.node) for site in sites)}"
    return Fix.unsafe(title, edits, imports or (), because=because)


def _gone(script: Script, site: CallSite) -> cst.BaseStatement:
    """Return the line of a call, or the `if` around it that only checks for a device."""
    check = _check(script, site)
    if check is None or isinstance(script.tree.parent(check), cst.If):
        return script.tree.statement(site.node)
    return script.tree.statement(site.node) if "#" in script.code(check.test) else check


def _check(script: Script, site: CallSite) -> cst.If | None:
    """Return the `if` around a call that only checks for a device."""
    block = script.tree.parent(script.tree.smallest_statement(site.node))
    while isinstance(block, _BODIES) and len(block.body) == 1:
        block = script.tree.parent(block)
    if not isinstance(block, cst.If) or block.orelse is not None:
        return None
    asks = (script.name(call.func) or "" for call in script.tree.within(block.test, cst.Call))
    return block if all(name.endswith(".is_available") for name in asks) else None


def _can_go(script: Script, site: CallSite) -> bool:
    """Return whether a call is a statement on its own line, which only steps run."""
    line = script.tree.statement(site.node)
    is_apart = isinstance(script.tree.parent(site.node), cst.Expr) and not _shared(script, site)
    return is_apart and (
        isinstance(line, cst.SimpleStatementLine) and script.edits.stands_alone(line)
    )
