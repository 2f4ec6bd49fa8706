"""Starts runs one after the other, in a folder that is removed at the end."""

from __future__ import annotations

import ast
import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final

from torchlint.harness.plan import ORIGINAL, Mode, Plan, Task, Variant
from torchlint.harness.runs import leftovers, process, torchrun, tree
from torchlint.harness.runs.crowd import crowded_now
from torchlint.harness.runs.forkserver import ForkServer, ServerGoneError
from torchlint.harness.stage import Notify, Schedule
from torchlint.harness.trace import Failure, Trace

_COMPARED: Final = ("numbers", "nudged")
"""Modes that compare final parameters with those of the first run."""
_SYNC_WARMUP: Final = 3
_SYNC_STEPS: Final = 10
_ALIGNED_STEPS: Final = 30
"""Steps of runs on recorded batches, which are stored on disk."""
_PATIENCE: Final = 6.0
"""Seconds after which the first run stops where the budget is `_USUAL`; more allows more."""
_USUAL: Final = 105.0
_REFUSED: Final = "does not have a deterministic implementation"
"""Words of torch's error for an operator that has no deterministic kernel."""
_IMPORTED: Final = ("torch", "torch._dynamo")
"""What a script imports that trains: every optimizer imports the compiler with its first step."""
Change = tuple[str, tuple[int, ...]]
"""A file and lines of its fixed text; the change was run where one of the lines was."""


class Runner:
    """Starts the runs of one plan."""

    def __init__(self, plan: Plan, notify: Notify | None, original: Variant = ORIGINAL) -> None:
        self.plan = plan
        self.original = original
        self.script = plan.script.resolve()
        self.root = tree.project_root(self.script)
        self.schedule = Schedule(notify, plan.budget)
        self.leader: int | None = None
        self.whole = False
        """Whether runs go from start to end."""
        self.compared = 0
        """The number of steps to compare, where there are fewer than requested."""
        self.crowded = crowded_now()
        """Whether other programs leave no processor free for the runs."""
        self._lenient = False
        """Whether an operator was seen that has no deterministic kernel."""
        self._diverted: dict[str, str] = {}
        leftovers.sweep()
        self._folder = tempfile.TemporaryDirectory(
            prefix=leftovers.PREFIX, ignore_cleanup_errors=True
        )
        self._claim = leftovers.claim(self.folder)
        self._reference = Path(self._folder.name, "parameters.pt")
        self._recording = Path(self._folder.name, "recording")
        self._recording.mkdir()
        self._runs = 0
        self._server: ForkServer | None = None
        self._single: list[Mapping[str, str]] = []
        """Texts with which the script is a single process, despite a launcher."""

    @property
    def folder(self) -> Path:
        """The folder in which the runs write."""
        return Path(self._folder.name)

    @property
    def diverted(self) -> tuple[str, ...]:
        """Diverted files; of names that differ only in numbers, the first."""
        return tuple(self._diverted.values())

    def close(self) -> None:
        """End remaining processes, and remove all files of the runs."""
        self.start_alone()
        leftovers.remove_made(self.folder)
        self._claim.close()
        self._folder.cleanup()

    def serve(self) -> None:
        """Fork runs from a process that has imported torch, where that is equivalent.

        It is not for a script that sets environment variables before it imports torch, which its
        first run shows.
        """
        if sys.platform != "linux" or self.plan.launcher:
            return
        variables = process.environment(self.plan.device, self.folder, crowded=self.crowded)
        # The compiler makes this folder when it is imported.
        variables["TORCHINDUCTOR_CACHE_DIR"] = str(self.folder / "compiler")
        self._server = ForkServer(_IMPORTED, variables, self.plan.verbose)
        if not self._server.ready:
            self.start_alone()

    def start_alone(self) -> None:
        """Start every run in a fresh process from now on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def run(
        self,
        variant: Variant,
        mode: Mode,
        window: tuple[int, int] | None = None,
        shift: int = 0,
        limit: float = math.inf,
    ) -> Trace:
        """Run the script once with the texts of `variant`, in `mode`, for at most `limit` s."""
        self._runs += 1
        watched = mode == "numbers" and not shift
        wanted = changes(self.original, variant) if watched else []
        folder = self.folder / f"run-{self._runs}"
        warmup, steps = self._steps(mode, window)
        task = Task(
            script=str(self.script),
            args=self.plan.args,
            root=str(self.root),
            folder=str(folder),
            mode=mode,
            steps=steps,
            warmup=warmup,
            seed=self.plan.seed,
            seconds=self._patience,
            texts=variant.texts,
            absent=variant.absent,
            leader=self.leader,
            reference="" if shift or mode not in _COMPARED else str(self._reference),
            recording=str(self._recording),
            profile=str(folder / "profile.json.gz"),
            module=self.plan.module,
            shift=shift,
            lenient=self._lenient,
            watched=_lines(wanted),
            verbose=self.plan.verbose,
        )
        with self.schedule.run(mode, variant.name):
            trace = self.start(task, min(limit, self.schedule.limit))
        if not self._lenient and trace.failure is not None and _REFUSED in trace.failure.message:
            self._lenient = True
            return self.run(variant, mode, window, shift, limit)
        for path in trace.diverted:
            self._diverted.setdefault(re.sub(r"\d+", "0", path), path)
        if trace.compiled:
            return trace
        wanted = [change for change in wanted if os.path.realpath(change[0]) in trace.modules]
        ran = {path: set(lines) for path, lines in trace.ran.items()}
        return replace(trace, idle=not_run(wanted, ran), changed=len(wanted))

    def lengthen(self, warmup: int, steps: int) -> None:
        """Take so many steps from now on, and compare with what the next run ends with."""
        self.plan = replace(self.plan, warmup=warmup, steps=steps)
        self.compared = warmup + steps if self.plan.limited else 0
        self._reference = Path(self._folder.name, f"parameters-{warmup + steps}.pt")

    @property
    def _patience(self) -> float:
        """The seconds after which a run for numbers stops, 0 where it need not."""
        if self.compared or not self.plan.limited:
            return 0.0
        return _PATIENCE * max(1.0, self.plan.budget / _USUAL)

    def _steps(self, mode: Mode, window: tuple[int, int] | None) -> tuple[int, int]:
        """Return the warm-up and the steps of a run."""
        if self.whole:
            return 0, 0
        if mode in ("syncs", "profile"):
            warmup = min(_SYNC_WARMUP, self.compared // 4 or _SYNC_WARMUP)
            return warmup, min(_SYNC_STEPS, self.compared // 2 or _SYNC_STEPS)
        warmup, steps = window or (self.plan.warmup, self.plan.steps)
        if self.compared and not window:
            warmup, steps = 0, min(warmup + steps, self.compared)
        if mode in ("record", "replay", "nudged-replay"):
            return 0, min(warmup + steps, _ALIGNED_STEPS)
        return warmup, steps

    def start(self, task: Task, limit: float = math.inf) -> Trace:
        """Run the script once for the task, under the launcher if its ranks form a group.

        The run ends after `limit` seconds where the plan's own limit is longer.
        """
        task = replace(task, crowded=self.crowded)
        trace = self._start(task, min(self.plan.timeout, limit))
        if trace.failure is None or trace.failure.kind != "timeout" or limit >= self.plan.timeout:
            return trace
        why = f"it had not finished its steps after {limit:.0f} s, far longer than earlier runs"
        return replace(trace, failure=Failure("timeout", why))

    def _start(self, task: Task, timeout: float) -> Trace:
        plan = self.plan
        if plan.launcher is not None and task.texts not in self._single:
            trace = torchrun.run(task, plan.launcher, device=plan.device, timeout=timeout)
            if trace.joined or trace.failure is not None:
                return trace
            self._single.append(task.texts)
            task = replace(task, folder=f"{task.folder}-single")
        try:
            trace = process.run(
                task, device=plan.device, timeout=timeout, verbose=plan.verbose, server=self._server
            )
        except ServerGoneError:
            pass
        else:
            if self._server is None or not trace.environment:
                return trace
        self.start_alone()
        return self._start(replace(task, folder=f"{task.folder}-alone"), timeout)


def _lines(wanted: list[Change]) -> dict[str, tuple[int, ...]]:
    """Return the lines to watch, by file."""
    watched: dict[str, tuple[int, ...]] = {}
    for path, lines in wanted:
        watched[path] = watched.get(path, ()) + lines
    return watched


def changes(before: Variant, after: Variant) -> list[Change]:
    """Return the changes of fixed texts that run more than once, or may not run at all.

    Imports, comments and docstrings are left out.
    """
    return [
        (path, lines)
        for path in dict.fromkeys((*before.texts, *before.absent, *after.texts))
        if (text := after.text(path)) is not None
        for lines in _changed(before.text(path) or "", text)
    ]


def not_run(wanted: list[Change], ran: Mapping[str, set[int]]) -> tuple[tuple[str, int], ...]:
    """Return the places of changes of which no line was run."""
    return tuple(
        (path, lines[0]) for path, lines in wanted if ran.get(path, set()).isdisjoint(lines)
    )


def _changed(before: str, after: str) -> Iterator[tuple[int, ...]]:
    try:
        parts = list(_parts(ast.parse(after)))
    except SyntaxError:
        return
    matcher = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    for kind, _, _, first, last in matcher.get_opcodes():
        if kind == "equal":
            continue
        # Where lines were only removed, the next one shows that the place was reached.
        places = range(first + 1, max(last, first + 1) + 1)
        lines = {line for own, shown in parts if set(own) & set(places) for line in shown}
        if lines:
            yield tuple(sorted(lines))


def _parts(tree: ast.Module) -> Iterator[tuple[range, range]]:
    """Yield the lines of each statement without its block, with the lines that show that it ran.

    A function shows it when it is called, not when it is defined.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        end = node.end_lineno or node.lineno
        body = getattr(node, "body", None)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            start = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            yield range(start, node.body[0].lineno), range(node.body[0].lineno, end + 1)
        elif not body:
            yield range(node.lineno, end + 1), range(node.lineno, end + 1)
        elif not isinstance(node, ast.ClassDef):
            head = range(node.lineno, max(body[0].lineno, node.lineno + 1))
            yield head, head
