"""TL802: a profiler that records all of the training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Finding, Fix, Record, Role, Rule, Safety, Script, State
from torchlint_rules._leftover import Leftover, taken_out

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
_DEAR: Final = ("with_stack", "record_shapes", "profile_memory")
_DEPTH: Final = 3


class Profiler(Rule):
    """
    ## What it does
    Flags profilers that record a whole training run: `torch.profiler.profile` without a schedule,
    `torch.autograd.profiler.profile`, `emit_nvtx`, `emit_itt`, `cProfile`, and the history of
    CUDA's memory.

    ## Why it is slow
    A profiler writes down every operation. Steps of small operations took 4.7 to 9.8 times as
    long, and 13.6 to 17 times with stacks, shapes and memory; and what is written down stays in
    memory until the run ends.

    ## When not to
    Keep it while you measure, best with `schedule=torch.profiler.schedule(...)`, which records a
    few steps only, or behind a flag. Profilers with a schedule, behind a condition, in tests and
    in benchmarks are left alone, and so is `record_function`, which costs next to nothing.

    ## Fix safety
    Exact where nothing reads what was recorded: the profiler goes, its body stays. Where it is
    read, exported or printed, it is reported only.
    """

    code = "TL802"
    name = "profiler"
    summary = "a profiler records the whole training"
    impact = "high"
    safety = Safety.EXACT
    articles = ("S1", "S2", "S3.13")
    needs = ("profiler", "cProfile", "_record_memory_history")

    invalid = {
        "around the epochs": """
              import torch
              model = torch.nn.Linear(4, 4)
            - with torch.profiler.profile(record_shapes=True, with_stack=True):
            -     for epoch in range(3):
            -         for x in loader:
            -             model(x).backward()  # the dear part
            -             optimizer.step()
            + for epoch in range(3):
            +     for x in loader:
            +         model(x).backward()  # the dear part
            +         optimizer.step()
            """,
        "around a call that trains, with a name that nobody uses": """
              import torch
            - from torch.autograd import profiler
              def train(model, loader, optimizer):
                  for x in loader:
                      model(x).backward()
                      optimizer.step()
            - with profiler.profile(use_cuda=True) as prof:
            -     train(model, loader, optimizer)
            + train(model, loader, optimizer)
            """,
        "in each step, beside another context": """
              import torch
              for x in loader:
            -     with torch.autograd.profiler.emit_nvtx(), torch.autocast("cuda"):
            +     with torch.autocast("cuda"):
                      loss = model(x)
                  loss.backward()
                  optimizer.step()
            """,
        "the import goes along": """
              import torch
            - from torch.profiler import profile, ProfilerActivity
              for x in loader:
            -     with profile(activities=[ProfilerActivity.CPU]):
            -         model(x).backward()
            -         optimizer.step()
            +     model(x).backward()
            +     optimizer.step()
            """,
        "two of one import": """
              import torch
            - from torch.profiler import profile
              model = torch.nn.Linear(4, 4)
            - with profile():
            -     for x in loader:
            -         model(x).backward()
            -         optimizer.step()
            - with profile():
            -     for x in more:
            -         model(x).backward()
            -         optimizer.step()
            + for x in loader:
            +     model(x).backward()
            +     optimizer.step()
            + for x in more:
            +     model(x).backward()
            +     optimizer.step()
            """,
        "memory's history, never looked at": """
              import torch
              def main():
                  model = torch.nn.Linear(4, 4)
            -     torch.cuda.memory._record_memory_history(max_entries=100000)
                  for x in loader:
                      model(x).backward()
                      optimizer.step()
            """,
        "memory's history, looked at in the end: reported, left alone": """
              import torch
            ! torch.cuda.memory._record_memory_history()
              for x in loader:
                  model(x).backward()
                  optimizer.step()
              torch.cuda.memory._dump_snapshot("snapshot.pickle")
            """,
        "a table is printed in the end: reported, left alone": """
              import torch
            ! with torch.autograd.profiler.profile() as prof:
                  for x in loader:
                      model(x).backward()
                      optimizer.step()
              print(prof.key_averages().table())
            """,
        "every trace is written: reported, left alone": """
              import torch
            ! with torch.profiler.profile(on_trace_ready=torch.profiler.tensorboard_trace_handler("log")):
                  for x in loader:
                      model(x).backward()
                      optimizer.step()
            """,
        "started by hand: reported, left alone": """
              import torch
            ! prof = torch.profiler.profile()
              prof.start()
              for x in loader:
                  model(x).backward()
                  optimizer.step()
              prof.stop()
            """,
        "Python's own: reported, left alone": """
              import cProfile
              import torch
              def main():
                  for x in loader:
                      model(x).backward()
                      optimizer.step()
            ! cProfile.run("main()")
            ! watch = cProfile.Profile()
              watch.enable()
              main()
            ! with cProfile.Profile() as seen:
                  main()
              seen.print_stats()
            """,
    }
    valid = {
        "a schedule records a few steps": """
            import torch
            with torch.profiler.profile(
                schedule=torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1),
                on_trace_ready=handler,
            ) as prof:
                for x in loader:
                    model(x).backward()
                    optimizer.step()
                    prof.step()
            """,
        "switched off, or by an argument": """
            import torch
            from torch.autograd import profiler
            with profiler.profile(enabled=False), profiler.emit_nvtx(args.profile):
                for x in loader:
                    model(x).backward()
                    optimizer.step()
            with torch.autograd.profiler.profile(args.enable_profiling, use_gpu) as prof:
                for x in loader:
                    model(x).backward()
                    optimizer.step()
            torch.cuda.memory._record_memory_history(enabled=None)
            """,
        "behind a condition, or in a helper of one's own": """
            import contextlib
            import torch
            if args.profile:
                with torch.profiler.profile():
                    for x in loader:
                        model(x).backward()
                        optimizer.step()
            with torch.profiler.profile() if args.profile else contextlib.nullcontext():
                for x in loader:
                    model(x).backward()
                    optimizer.step()
            def profile_training():
                with torch.profiler.profile() as prof:
                    for x in loader:
                        model(x).backward()
                        optimizer.step()
                return prof
            """,
        "a few steps that are counted out": """
            import torch
            with torch.profiler.profile() as prof:
                for _ in range(10):
                    model(x).backward()
                    optimizer.step()
            print(prof.key_averages())
            for x in loader:
                model(x).backward()
                optimizer.step()
            """,
        "nothing is trained in it": """
            import torch
            with torch.autograd.profiler.profile() as prof:
                model(x)
            for x in loader:
                model(x).backward()
                optimizer.step()
            """,
        "now and then": """
            import torch
            for step, x in enumerate(loader):
                if step == 10:
                    with torch.profiler.profile() as prof:
                        model(x).backward()
                    print(prof)
                model(x).backward()
                optimizer.step()
            """,
        "a name for a part costs next to nothing": """
            import torch
            for x in loader:
                with torch.profiler.record_function("forward"):
                    loss = model(x)
                loss.backward()
                optimizer.step()
            """,
        "a test": """
            import torch
            def test_profile():
                with torch.profiler.profile():
                    for x in loader:
                        model(x).backward()
                        optimizer.step()
            """,
        "the memory of a bounded part": """
            import torch
            torch.cuda.memory._record_memory_history()
            warm_up()
            torch.cuda.memory._record_memory_history(enabled=None)
            for x in loader:
                model(x).backward()
                optimizer.step()
            """,
        "one's own profile": """
            import torch
            from tools import profiler
            with profiler.profile():
                for x in loader:
                    model(x).backward()
                    optimizer.step()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every profiler that records training without an end in sight."""
        if _measures(script):
            return
        places = [
            place
            for site in script.calls(*_TORCH, *_MARKERS, *_PYTHON, *_RUNNERS, _HISTORY)
            if not script.switched(site.node, "profil", "bench", "trace", "debug")
            and (place := _place(script, site)) is not None
        ]
        unread = [Leftover.of(script, place.gone) for place in places if place.gone is not None]
        together = [each for each in unread if each is not None]
        for place in places:
            fix = _fix(script, place, together)
            yield Finding(self.code, script.span(place.site.node), _message(script, place), fix)


class _Place(Record):
    """One profiler, and the context or statement that goes where nothing reads it."""

    site: CallSite
    name: str
    gone: cst.WithItem | cst.SimpleStatementLine | None = None


def _place(script: Script, site: CallSite) -> _Place | None:
    """Judge a call: does it begin to record training, and can it go?"""
    name = site.name or ""
    if name in _RUNNERS:
        return _Place(site, name) if _trains(script, script.tree.module) else None
    if name == _HISTORY:
        return _of_history(script, site)
    if _is_bounded(site):
        return None
    item = script.parent(site.node)
    statement = script.parent(item) if isinstance(item, cst.WithItem) else None
    if isinstance(item, cst.WithItem) and isinstance(statement, cst.With):
        if not _records_training(script, statement):
            return None
        return _Place(site, name, None if _is_read(script, site, item) else item)
    started = _is_started(script, site.node) and _trains(script, script.tree.module)
    return _Place(site, name) if started else None


def _is_bounded(site: CallSite) -> bool:
    """Whether a profiler is off, is switched by somebody, or knows when to record."""
    if site.argument("schedule").state is not State.ABSENT:
        return True
    enabled = site.argument("enabled", 0)
    return enabled.state is not State.ABSENT and not enabled.equals(True)


def _of_history(script: Script, site: CallSite) -> _Place | None:
    enabled = site.argument("enabled", 0)
    if enabled.equals(None) or enabled.equals(False) or enabled.state is State.DECIDED:
        return None
    ends = [
        other
        for other in script.calls(_HISTORY)
        if other.argument("enabled", 0).equals(None) or other.argument("enabled", 0).equals(False)
    ]
    if ends or not _trains(script, script.tree.module):
        return None
    line = script.parent(script.parent(site.node) or site.node)
    read = any(True for _ in script.method_calls(*_SNAPSHOTS))
    alone = isinstance(line, cst.SimpleStatementLine) and script.rewrite.stands_alone(line)
    gone = line if alone and not read and isinstance(line, cst.SimpleStatementLine) else None
    return _Place(site, _HISTORY, gone)


def _measures(script: Script) -> bool:
    """Whether a file is there to measure, by its name."""
    spoken = " ".join(script.words(script.source.path.rpartition("/")[2]))
    return any(word in spoken for word in ("bench", "profil", "test"))


def _trains(script: Script, region: cst.CSTNode) -> bool:
    """Whether code runs a training loop of which nobody counted out the steps."""
    loops = [
        loop.node
        for loop in script.loops(Role.TRAIN_BATCH, Role.EPOCH)
        if loop.role is Role.EPOCH or loop.loader is not None or not _few(script, loop.node)
    ]
    return any(
        script.tree.inside(loop, body)
        for body in script.functions.reached(region, _DEPTH)
        for loop in loops
    )


def _few(script: Script, loop: cst.For | cst.While) -> bool:
    """Whether a loop counts through a small number of passes that is written down."""
    if not isinstance(loop, cst.For) or not isinstance(loop.iter, cst.Call):
        return False
    if script.name(loop.iter.func) != "builtins.range" or not loop.iter.args:
        return False
    passes = script.value_of(loop.iter.args[-1].value).literal
    return type(passes) is int and passes <= 100


def _records_training(script: Script, statement: cst.With) -> bool:
    """Whether a context holds a training loop, or stands in each pass of one."""
    around = [loop for loop in script.loops_around(statement) if loop.role is Role.TRAIN_BATCH]
    if around:
        return not _few(script, around[0].node) or around[0].loader is not None
    return _trains(script, statement.body)


def _is_read(script: Script, site: CallSite, item: cst.WithItem) -> bool:
    """Whether something looks at what a context recorded."""
    if site.argument("on_trace_ready").state is not State.ABSENT or site.has_splat:
        return True
    if item.asname is None:
        return False
    binding = script.scopes.stored(item.asname.name)
    if binding is None or not isinstance(item.asname.name, cst.Name):
        return True
    return any(True for _ in script.scopes.uses(binding, script.tree.module))


def _is_started(script: Script, call: cst.Call) -> bool:
    """Whether a profiler in a name is started by hand."""
    assign = script.parent(call)
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return False
    held = script.code(assign.targets[0].target)
    return any(
        isinstance(start.func, cst.Attribute) and script.code(start.func.value) == held
        for start in script.method_calls("start", "enable", "__enter__")
    )


def _message(script: Script, place: _Place) -> str:
    called = f"`{script.code(place.site.node.func)}`"
    if place.name == _HISTORY:
        return f"{called} keeps a record of every allocation of the whole training: take it out"
    if place.name in _MARKERS:
        return f"{called} marks every operation of the whole training: take it out"
    if place.name not in _TORCH:
        return f"{called} watches every Python call of the whole training: take it out"
    dear = any(place.site.argument(option).equals(True) for option in _DEAR)
    times = "up to 17 times" if dear else "5 to 10 times"
    return (
        f"{called} records every operation of the whole training and makes small ones {times} "
        "slower: take it out, or give it a schedule"
    )


def _fix(script: Script, place: _Place, together: list[Leftover]) -> Fix | None:
    """Take out a profiler that nobody reads, with the imports that nothing else needs."""
    own = next((each for each in together if each.gone is place.gone), None)
    edits = taken_out(script, own, together) if own is not None else None
    return Fix.exact("Take the profiler out", edits) if edits is not None else None
