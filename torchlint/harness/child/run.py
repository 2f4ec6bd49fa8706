"""The process that runs the user's script with the fixed texts, and writes its trace."""

from __future__ import annotations

import json
import linecache
import multiprocessing
import os
import random
import re
import sys
import sysconfig
import time
import traceback
import warnings
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from torchlint.harness.child.overlay import Overlay, after_import, hide
from torchlint.harness.child.rank import as_rank, exit_code
from torchlint.harness.child.shadow import Shadow, divert_writers
from torchlint.harness.child.workers import Exercise, SpawnSetup, pass_to_spawned
from torchlint.harness.plan import TEMPORARY, Task
from torchlint.harness.trace import Failure, Trace

with suppress(ModuleNotFoundError):
    import resource  # not on Windows, where `verify --help` still works

if TYPE_CHECKING:
    from torchlint.harness.child.probes import Probe

_OURS: Final = str(Path(__file__).parents[2]) + os.sep

_LONGEST: Final = 150
"""Characters of an error message that are kept, from its start and from its end."""

_GIBIBYTE: Final = 1 << 30
_SHARED: Final = _GIBIBYTE
"""Bytes of a device that a run itself may have beside what torch counts."""

_STDIN: Final = re.compile(r"(?<![\w.])(?:sys\.)?stdin\b(?!\s*=)")
"""The standard input of the script itself, not that of a program that it starts."""
_TRAINER: Final = re.compile(r"python|torchrun|accelerate|deepspeed")
"""Words of a command line that starts a training process."""


class Run:
    """One run of the script, from its first line to its trace."""

    def __init__(self, task: Task) -> None:
        self.task = task
        roots = (Path(task.root), Path.cwd())
        self.shadow = Shadow(task.shadow, roots)
        self.overlay = Overlay(task.texts, task.absent)
        self.exercise = Exercise(task.watched, task.ran)
        self.setup = SpawnSetup(self.overlay, task.shadow, roots, self.exercise)
        self.probe: Probe | None = None
        self.process = os.getpid()
        self.processes = False
        self.warnings: dict[str, None] = {}
        self.failed = False
        self.variables = dict(os.environ)
        self.environment = False
        self.forked = False
        """Whether this process had imported torch before the script did."""
        self.started = 0.0

    def prepare(self) -> None:
        """Make this process look like the interpreter that the user would run the script with."""
        self.forked = hide("torch")
        sys.argv = [self.task.script, *self.task.args]
        if not getattr(sys.flags, "safe_path", False):
            folder = os.getcwd() if self.task.module else os.path.dirname(self.task.script)
            sys.path.insert(0, folder)
        self.overlay.install()
        pass_to_spawned(self.setup, self._own_process)
        seed = self.task.seed + self.task.shift
        random.seed(seed)
        after_import("numpy.random", lambda: sys.modules["numpy.random"].seed(seed))
        after_import("torch", self._attach)
        self._watch_warnings()
        sys.addaudithook(self._audit)
        self.shadow.install()
        divert_writers(self.shadow)
        self.exercise.watch()

    def start(self) -> None:
        """Run the script until it ends, fails, or enough was seen."""
        self.started = time.perf_counter()
        try:
            self.overlay.run(self.task.script, "__main__", self.task.module)
        except SystemExit as end:
            self.write("ended", _exit_failure(end))
        except BaseException as error:
            self.write("failed", self._with_others(_describe(error, self.task)))
        else:
            self.write("ended")

    def write(
        self, ending: Literal["full", "ended", "failed"], failure: Failure | None = None
    ) -> None:
        """Write the trace, once and atomically."""
        seconds = time.perf_counter() - self.started
        if os.getpid() != self.process or self.task.trace.exists():
            return
        self.failed = failure is not None
        trace = Trace(
            ending,
            failure,
            host_memory=_peak_memory(),
            modules=self._modules(),
            warnings=tuple(self.warnings),
            diverted=self.shadow.written(),
            processes=self.processes,
            environment=self.environment,
            ran=self.exercise.ran(),
        )
        if self.probe is not None:
            trace = replace(trace, **self.probe.common(), **self.probe.close())
        if not self.task.steps:
            trace = replace(trace, durations=(seconds,), waited=None, work=_own_work())
        draft = self.task.trace.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(trace)), encoding="utf-8")
        draft.rename(self.task.trace)

    def _with_others(self, failure: Failure) -> Failure:
        """Return a failure with the memory of the device that other programs have, if it counts."""
        if failure.kind != "memory" or self.probe is None:
            return failure
        others, whole = self.probe.device.held_by_others() or (0, 0)
        if others < _SHARED:
            return failure
        said = f"other programs have {others / _GIBIBYTE:.1f} of its {whole / _GIBIBYTE:.1f} GiB"
        return replace(failure, message=f"{failure.message}; {said}", shared=True)

    def _attach(self) -> None:
        """Measure from here on, unless torch was imported too early for the script."""
        self.environment = dict(os.environ) != self.variables
        if self.environment and self.forked:
            self.write("ended")
            os._exit(0)
        from torchlint.harness.child.attachment import attach

        self.probe = attach(self.task, self.shadow, lambda: self.write("full"))

    def _modules(self) -> tuple[str, ...]:
        """Return the project files that were imported, the script first."""
        script = os.path.realpath(self.task.script)
        root = self.task.root + os.sep
        installed = tuple(sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib"))
        files = {
            os.path.realpath(file)
            for module in list(sys.modules.values())
            if (file := getattr(module, "__file__", None))
            and file.startswith(root)
            and not file.startswith((*installed, _OURS))
            and file.endswith(".py")
        }
        return (script, *sorted(files - {script}))

    def _watch_warnings(self) -> None:
        show = warnings.showwarning

        def noted(
            message: Any, category: type[Warning], filename: str, lineno: int, *rest: Any
        ) -> None:
            text = re.sub(r"\s+", " ", str(message)).strip()
            self.warnings[f"{category.__name__}: {text}"] = None
            show(message, category, filename, lineno, *rest)

        setattr(warnings, "showwarning", noted)  # noqa: B010 - a function is replaced

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "tempfile.mkdtemp" and os.path.basename(args[0]).startswith(TEMPORARY):
            with self.task.made.open("a", encoding="utf-8") as made:
                made.write(f"{args[0]}\n")
        if event in ("subprocess.Popen", "os.system") and _TRAINER.search(str(args[:2])):
            self._own_process()

    def _own_process(self) -> None:
        self.processes = True
        self.task.other_processes.touch()


def _exit_failure(end: SystemExit) -> Failure | None:
    """Return the failure that an exit code stands for, None for success."""
    if end.code is None or end.code == 0:
        return None
    if isinstance(end.code, str):
        return Failure("exit", f"it exited: {end.code}")
    return Failure("exit", f"it exited with code {end.code}")


def _describe(error: BaseException, task: Task) -> Failure:
    """Describe in one line why the script failed, and where in the user's own code."""
    text = re.sub(r"\s+", " ", str(error)).strip()
    shown = text
    if len(text) > 2 * _LONGEST:
        # The error of a loader's worker comes last.
        shown = f"{text[:_LONGEST]} … {text[-_LONGEST:]}"
    message = f"{type(error).__name__}: {shown}" if text else type(error).__name__
    if isinstance(error, ModuleNotFoundError):
        message += f" ({_where_to_find(error.name, task)})"
    file, line = _place(error, task)
    reads = _STDIN.search(linecache.getline(file, line))
    return Failure("input" if reads else _kind(error, text), message, file, line)


def _where_to_find(module: str | None, task: Task) -> str:
    """Return what to do about a module that was not found, which may be one of the project."""
    folder, root = Path(task.script).resolve().parent, os.path.realpath(task.root)
    known = {os.path.realpath(path) for path in sys.path}
    above = [each for each in (folder, *folder.parents) if each.is_relative_to(root)]
    for path in (path for each in above for path in (each, each / "src")):
        if module and str(path) not in known:
            if (path / f"{module}.py").is_file() or any((path / module).glob("*.py")):
                return f"install this project, or start with `PYTHONPATH={os.path.relpath(path)}`"
    return f"searched with {sys.executable}, which also runs torchlint"


def _kind(error: BaseException, text: str) -> Literal["crash", "input", "memory"]:
    if isinstance(error, EOFError) and "EOF when reading a line" in text:
        return "input"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "memory"
    return "memory" if "can't allocate memory" in text else "crash"


def _place(error: BaseException, task: Task) -> tuple[str, int]:
    """Return the innermost place in the project, else in the script."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 0
    root = os.path.realpath(task.root) + os.sep
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        path = os.path.realpath(frame.filename)
        if path.startswith(root) and os.path.isfile(path) and "site-packages" not in path:
            return frame.filename, frame.lineno or 0
    return task.script, 0


def _own_work() -> tuple[float, ...]:
    """Return the processor time of this process, nothing where it had others to help."""
    times = os.times()
    helped = times.children_user + times.children_system or multiprocessing.active_children()
    return () if helped else (times.user + times.system,)


def _peak_memory() -> int:
    """Return the peak memory of this process, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def end_with_parent() -> None:
    """Make the system end this process when its parent ends."""
    if sys.platform == "linux":
        import ctypes
        import signal

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def main(task_file: str) -> None:
    """Run the script of the task, and exit without the script's own exit handlers."""
    end_with_parent()
    task = Task.from_json(json.loads(Path(task_file).read_text(encoding="utf-8")))
    run = Run(as_rank(task) if task.launched else task)
    try:
        run.prepare()
        run.start()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code(run.task, run.failed) if task.launched else 0)
