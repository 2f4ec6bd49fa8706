"""TL802: a profiler that records the whole training run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import CallSite, Finding, Fix, Note, Role, Rule, Script, State
from torchlint_rules.shared.leftoptions import LeftOption, left_options
from torchlint_rules.shared.removal import Leftover, removal_of

_TORCH: Final = frozenset({
    "torch.profiler.profile", "torch.profiler.profiler.profile", "torch.autograd.profiler.profile",
    "torch.autograd.profiler_legacy.profile",
})  # fmt: skip
_MARKERS: Final = frozenset({
    "torch.autograd.profiler.emit_nvtx", "torch.autograd.profiler.emit_itt",
})  # fmt: skip
_PYTHON: Final = frozenset({"cProfile.Profile", "profile.Profile"})
_RUNNERS: Final = ("cProfile.run", "cProfile.runctx")
_HISTORY: Final = "torch.cuda.memory._record_memory_history"
_SNAPSHOTS: Final = ("_dump_snapshot", "_snapshot", "memory_snapshot")
_BREAKDOWN: Final = "wall_clock_breakdown"
_DEAR: Final = ("with_stack", "record_shapes", "profile_memory")
_OPTIONS: Final = (
    LeftOption(
        "profiler",
        ("advanced", "pytorch"),
        ("lightning",),
        "records every call of the whole training",
        "its report at the end of the run is gone",
        "high",
    ),
    LeftOption(
        "skip_memory_metrics",
        (False,),
        ("transformers", "trl"),
        "measures memory through the whole training and evaluation",
        "the metrics no longer tell how much memory was used",
        "medium",
    ),
)


class Profiler(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every profiler that records training without a limit."""
        if _measures(script):
            return
        yield from left_options(script, self.code, *_OPTIONS)
        places = [
            place
            for site in script.calls.of(*_TORCH, *_MARKERS, *_PYTHON, *_RUNNERS, _HISTORY)
            if not script.loops.conditions.is_conditional(
                site.node, "profil", "bench", "trace", "debug"
            )
            and (place := _place(script, site)) is not None
        ]
        unread = [Leftover.of(script, place.gone) for place in places if place.gone is not None]
        together = [each for each in unread if each is not None]
        for place in places:
            fix = _fix(script, place, together)
            yield Finding(self.code, script.span(place.site.node), _message(script, place), fix)
        for arg, configuration in script.program.trainings.deepspeed():
            timed = script.values.entry(configuration, _BREAKDOWN)
            if timed.equals(True) and timed.node is not None:
                message = (
                    f"`{_BREAKDOWN}` makes DeepSpeed wait for the device around each phase of "
                    "every step: remove it"
                )
                note = Note(script.span(timed.node), f"`{_BREAKDOWN}` is set here")
                yield Finding(self.code, script.span(arg), message, None, (note,))


class _Place(NamedTuple):
    """One profiler, and the context manager or statement to remove if nothing reads it."""

    site: CallSite
    name: str
    gone: cst.WithItem | cst.SimpleStatementLine | None = None


def _place(script: Script, site: CallSite) -> _Place | None:
    """Return the finding for a call that records training, with a fix if it can be removed."""
    name = site.name or ""
    if name in _RUNNERS:
        return _Place(site, name) if _trains(script, *script.tree.modules) else None
    if name == _HISTORY:
        return _of_history(script, site)
    if _is_bounded(site):
        return None
    item = script.tree.parent(site.node)
    statement = script.tree.parent(item) if isinstance(item, cst.WithItem) else None
    if isinstance(item, cst.WithItem) and isinstance(statement, cst.With):
        if not _records_training(script, statement):
            return None
        return _Place(site, name, None if _is_read(script, site, item) else item)
    started = _is_started(script, site.node) and _trains(script, *script.tree.modules)
    return _Place(site, name) if started else None


def _is_bounded(site: CallSite) -> bool:
    """Return whether a profiler is off, is optional, or has a schedule."""
    if site.argument("schedule").state is not State.ABSENT:
        return True
    enabled = site.argument("enabled")
    return enabled.state is not State.ABSENT and not enabled.equals(True)


def _of_history(script: Script, site: CallSite) -> _Place | None:
    enabled = site.argument("enabled")
    if enabled.equals(None) or enabled.equals(False) or enabled.state is State.DECIDED:
        return None
    ends = [
        other
        for other in script.calls.of(_HISTORY)
        if other.argument("enabled").equals(None) or other.argument("enabled").equals(False)
    ]
    if ends or not _trains(script, *script.tree.modules):
        return None
    line = script.tree.parent(script.tree.parent(site.node))
    read = any(True for _ in script.calls.of_methods(*_SNAPSHOTS))
    alone = isinstance(line, cst.SimpleStatementLine) and script.edits.stands_alone(line)
    gone = line if alone and not read and isinstance(line, cst.SimpleStatementLine) else None
    return _Place(site, _HISTORY, gone)


def _measures(script: Script) -> bool:
    """Return whether the name of a file says that it is a benchmark."""
    spoken = script.names.words(script.source.path.rpartition("/")[2])
    return any(word.startswith(("bench", "profil")) or word in ("test", "tests") for word in spoken)


def _trains(script: Script, *regions: cst.CSTNode) -> bool:
    """Return whether some code runs a training loop without a fixed number of steps."""
    loops = [
        loop.node
        for loop in script.loops.of(Role.TRAIN_BATCH, Role.EPOCH)
        if loop.role is Role.EPOCH or loop.loader is not None or not _few(script, loop.node)
    ]
    return any(
        script.tree.inside(loop, body)
        for region in regions
        for body in script.functions.reached(region)
        for loop in loops
    )


def _few(script: Script, loop: cst.For | cst.While) -> bool:
    """Return whether a loop runs a small literal number of iterations."""
    if not isinstance(loop, cst.For) or not isinstance(loop.iter, cst.Call):
        return False
    if script.name(loop.iter.func) != "builtins.range" or not loop.iter.args:
        return False
    passes = script.values.value_of(loop.iter.args[-1].value).literal
    return type(passes) is int and passes <= 100


def _records_training(script: Script, statement: cst.With) -> bool:
    """Return whether a context manager is around a training loop, or in each iteration of one."""
    around = [loop for loop in script.loops.around(statement) if loop.role is Role.TRAIN_BATCH]
    if around:
        return not _few(script, around[0].node) or around[0].loader is not None
    regions = script.tree.modules if script.loops.each_step(statement) else (statement.body,)
    return _trains(script, *regions)


def _is_read(script: Script, site: CallSite, item: cst.WithItem) -> bool:
    """Return whether code reads the records of a context manager."""
    if site.argument("on_trace_ready").state is not State.ABSENT or site.has_splat:
        return True
    if item.asname is None:
        return False
    binding = script.scopes.stored(item.asname.name)
    if binding is None or not isinstance(item.asname.name, cst.Name):
        return True
    return any(True for _ in script.scopes.uses(binding))


def _is_started(script: Script, call: cst.Call) -> bool:
    """Return whether a named profiler is started by hand."""
    assign = script.tree.parent(call)
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return False
    held = script.code(assign.targets[0].target)
    return any(
        script.code(start.receiver) == held
        for start in script.calls.of_methods("start", "enable", "__enter__")
    )


def _message(script: Script, place: _Place) -> str:
    called = f"`{script.code(place.site.node.func)}`"
    if place.name == _HISTORY:
        return f"{called} keeps a record of every allocation of the whole training: remove it"
    if place.name in _MARKERS:
        return f"{called} marks every operation of the whole training: remove it"
    if place.name not in _TORCH:
        return f"{called} watches every Python call of the whole training: remove it"
    dear = any(place.site.argument(option).equals(True) for option in _DEAR)
    times = "up to 17 times" if dear else "5 to 10 times"
    return (
        f"{called} records every operation of the whole training and makes small ones {times} "
        "slower: remove it, or give it a schedule"
    )


def _fix(script: Script, place: _Place, together: list[Leftover]) -> Fix | None:
    """Remove a profiler that is never read, with imports that become unused."""
    own = next((each for each in together if each.gone is place.gone), None)
    edits = removal_of(script, own, together) if own is not None else None
    return Fix.exact("Remove the profiler", edits) if edits is not None else None
