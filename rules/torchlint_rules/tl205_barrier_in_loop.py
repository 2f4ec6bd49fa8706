"""TL205: every step waits for the device, empties the allocator or collects garbage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Edits, Finding, Fix, Heat, Record, Rule, Safety, Script


class _Barrier(Record):
    """What a call does to every step, and what may be missed without it."""

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
    """
    ## What it does
    Flags `torch.cuda.synchronize()`, `torch.cuda.empty_cache()`, `gc.collect()` and their like in
    every step of a training or evaluation loop.

    ## Why it is slow
    The host waits until the device is idle, and the device then waits for the host. An emptied
    cache is filled again at once, by slow calls of the driver. A full garbage collection can
    take longer than the step of a small network.

    ## When not to
    Beside a clock `synchronize()` is right: without it one times how work is queued. The rule is
    silent there, for copies to the host that do not block, for several streams or threads, behind
    `if step % n == 0:`, after running out of memory, and once an epoch.

    ## Fix safety
    Unsafe: the numbers stay what they are, but a script that only just fits into memory may not.
    """

    code = "TL205"
    name = "barrier-in-loop"
    summary = "every step waits for the device or for the garbage collector"
    impact = "medium"
    safety = Safety.UNSAFE
    articles = ("S2",)
    needs = (
        "synchronize",
        "empty_cache",
        "gc.collect",
        "ipc_collect",
        "reset_peak_memory_stats",
        "reset_max_memory_allocated",
    )

    invalid = {
        "each of them": """
              import gc
              import torch
              model = torch.nn.Linear(4, 4).cuda()
              for x, y in loader:
                  loss = model(x.cuda()).mean()
                  loss.backward()
                  optimizer.step()
            -     torch.cuda.synchronize()
            -     torch.cuda.empty_cache()
            -     gc.collect()
            -     torch.cuda.ipc_collect()
            -     torch.cuda.reset_peak_memory_stats()
              gc.collect()
            """,
        "a test that only asks for the device goes as well": """
              import torch
              model = torch.nn.Linear(4, 4).cuda()
              def train(loader, optimizer, args):
                  for x, y in loader:
                      loss = model(x.cuda()).mean()
                      loss.backward()
                      optimizer.step()
            -         if args.device == "cuda":
            -             torch.cuda.synchronize()
            -         if torch.cuda.is_available():
            -             torch.cuda.empty_cache()
            """,
        "the import goes with the last use": """
            - import gc
              import torch
            - from torch import cuda
              model = torch.nn.Linear(4, 4).cuda()
              for x, y in loader:
                  loss = model(x.cuda()).mean()
                  loss.backward()
                  optimizer.step()
            -     cuda.empty_cache()  # room for the next
            -     gc.collect()
            +     # room for the next
            """,
        "garbage is collected on the CPU just as slowly": """
            - import gc
              import torch
              model = torch.nn.Linear(4, 4)
              for x, y in loader:
                  loss = model(x).mean()
                  loss.backward()
                  optimizer.step()
            -     gc.collect()
            """,
        "in an evaluation, and in a function that it calls": """
              import torch
              model = torch.nn.Linear(4, 4).cuda()
              def answer(x):
                  out = model(x)
            -     torch.cuda.synchronize()
                  return out
              @torch.no_grad()
              def evaluate(loader):
                  for x, y in loader:
                      answer(x.cuda())
            -         torch.cuda.empty_cache()
            """,
        "a block that it leaves empty": """
              import torch
              model = torch.nn.Linear(4, 4).cuda()
              for x, y in loader:
                  loss = model(x.cuda()).mean()
                  loss.backward()
                  optimizer.step()
                  if crowded():
            -         torch.cuda.empty_cache()
            +         pass
            """,
        "whichever accelerator there is": """
              import torch
              model = torch.nn.Linear(4, 4).cuda()
              for x, y in loader:
                  loss = model(x.cuda()).mean()
                  loss.backward()
                  optimizer.step()
            -     torch.accelerator.synchronize()
            """,
        "a line that it shares with others": """
              import torch
              for x, y in loader:
                  loss = model(x.cuda()).mean()
            !     loss.backward(); torch.cuda.synchronize()
            """,
    }
    valid = {
        "beside a clock": """
            import time
            import torch
            for x, y in loader:
                torch.cuda.synchronize()
                start = time.time()
                loss = model(x.cuda()).mean()
                loss.backward()
                torch.cuda.synchronize()
                print(time.time() - start)
            """,
        "the loop times its steps a few lines on": """
            import time
            import torch
            end = time.perf_counter()
            for x, y in loader:
                loss = model(x.cuda()).mean()
                loss.backward()
                torch.cuda.synchronize()
                meter.update(loss.detach())
                step_time.update(time.perf_counter() - end)
                end = time.perf_counter()
            """,
        "events of the device": """
            import torch
            start = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            for x, y in loader:
                start.record()
                loss = model(x.cuda()).mean()
                loss.backward()
                end.record()
                torch.cuda.synchronize()
                times.append(start.elapsed_time(end))
            """,
        "a copy to the host that does not block": """
            import torch
            for x, y in loader:
                out = model(x.cuda())
                out.mean().backward()
                kept = out.detach().to("cpu", non_blocking=True)
                torch.cuda.synchronize()
                results.append(kept)
            """,
        "several streams": """
            import torch
            side = torch.cuda.Stream()
            for x, y in loader:
                with torch.cuda.stream(side):
                    out = model(x.cuda())
                torch.cuda.synchronize()
                out.mean().backward()
            """,
        "a CUDA graph is captured": """
            import torch
            graph = torch.cuda.CUDAGraph()
            for x, y in loader:
                torch.cuda.synchronize()
                with torch.cuda.graph(graph):
                    out = model(x.cuda())
                out.mean().backward()
            """,
        "once an epoch, between training and evaluation": """
            import gc
            import torch
            for epoch in range(10):
                for x, y in loader:
                    loss = model(x.cuda()).mean()
                    loss.backward()
                    optimizer.step()
                torch.cuda.empty_cache()
                gc.collect()
                evaluate(model)
            """,
        "one step is one epoch": """
            import torch
            for epoch in range(10):
                loss = model(x.cuda()).mean()
                loss.backward()
                optimizer.step()
                torch.cuda.empty_cache()
            """,
        "now and then": """
            import gc
            import torch
            for i, (x, y) in enumerate(loader):
                loss = model(x.cuda()).mean()
                loss.backward()
                optimizer.step()
                if i % 100 == 0:
                    gc.collect()
                    torch.cuda.empty_cache()
            """,
        "after running out of memory": """
            import torch
            for x, y in loader:
                try:
                    loss = model(x.cuda()).mean()
                    loss.backward()
                    optimizer.step()
                except torch.cuda.OutOfMemoryError:
                    torch.cuda.empty_cache()
            """,
        "when memory is short": """
            import torch
            for x, y in loader:
                loss = model(x.cuda()).mean()
                loss.backward()
                optimizer.step()
                if torch.cuda.memory_reserved() > limit:
                    torch.cuda.empty_cache()
            """,
        "in code that is there to time": """
            import torch
            def benchmark_step(model, loader):
                for x, y in loader:
                    loss = model(x.cuda()).mean()
                    loss.backward()
                    torch.cuda.synchronize()
            """,
        "the peak of each step is looked at": """
            import torch
            for x, y in loader:
                torch.cuda.reset_peak_memory_stats()
                loss = model(x.cuda()).mean()
                loss.backward()
                peaks.append(torch.cuda.max_memory_allocated())
            """,
        "another library's": """
            import torch
            from mine import gc
            for x, y in loader:
                loss = model(x.cuda()).mean()
                loss.backward()
                gc.collect()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every barrier that stands in each step."""
        hot = [
            site
            for site in script.calls(*_BARRIERS)
            if script.heat(site.node) is Heat.HOT and not _is_meant(script, site)
        ]
        for site in hot:
            barrier = _BARRIERS[str(site.name)]
            message = f"`{script.code(site.node)}` in every step {barrier.cost}; take it out"
            span = script.span(site.node)
            yield Finding(self.code, span, message, _fix(script, site, hot))


def _is_meant(script: Script, site: CallSite) -> bool:
    """Whether something around a barrier needs it, or makes it rare."""
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
    """Whether a call copies without blocking, and not to a device."""
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
    """Give the line of a call, or the `if` that holds nothing else and only asks for a device."""
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
    """Whether a call is a statement with a line of its own."""
    line = script.statement(site.node)
    return isinstance(script.parent(site.node), cst.Expr) and (
        isinstance(line, cst.SimpleStatementLine) and script.rewrite.stands_alone(line)
    )
