"""Shared parts of the benchmarks: commands that take turns, their costs, and tables."""

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

BETWEEN_LOOKS = 0.02
"""Seconds between two samples of the memory of processes."""


@dataclass(frozen=True)
class Cost:
    """The cost of one run of a command.

    Seconds of wall time, and of CPU time for the process with its workers; `inner` is a time
    that the command printed. `peak` is the memory of its largest process, in MiB.
    """

    wall: float
    cpu: float
    peak: float = 0.0
    inner: float = 0.0


@dataclass(frozen=True)
class Command:
    """A command line, its folder, and its allowed exit codes."""

    line: Sequence[str | Path]
    folder: Path
    codes: frozenset[int] = frozenset({0, 1})
    reports_itself: bool = False


def run(command: Command) -> Cost:
    """Run one command to its end, with its output in a file."""
    line = [str(word) for word in command.line]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(line, cwd=command.folder, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode not in command.codes:
            message = err.read().decode(errors="replace")
            sys.exit(f"{' '.join(line)}: exit {process.returncode}\n{message}")
        inner = float(out.read()) if command.reports_itself else 0.0
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, inner)


@dataclass
class Memory:
    """Peak memory of a command's processes in MiB, with shared pages counted once.

    A shared page is divided among its processes where the system supports it (Linux), else it
    counts for each.
    """

    total: float = 0.0
    largest: float = 0.0
    processes: int = 0

    def note(self, sizes: Sequence[float]) -> None:
        """Record one sample: the size of each process."""
        self.total = max(self.total, sum(sizes))
        self.largest = max(self.largest, *sizes, 0.0)
        self.processes = max(self.processes, len(sizes))


def memory(command: Command) -> Memory:
    """Run a command again, and sample the memory of its processes until it ends."""
    seen = Memory()
    done = threading.Event()
    line = [str(word) for word in command.line]
    with tempfile.TemporaryFile() as sink:
        process = psutil.Popen(line, cwd=command.folder, stdout=sink, stderr=sink)
        watcher = threading.Thread(target=_watch, args=(process.pid, seen, done))
        watcher.start()
        process.wait()
        done.set()
        watcher.join()
    return seen


def _watch(pid: int, seen: Memory, done: threading.Event) -> None:
    while not done.wait(BETWEEN_LOOKS):
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            family = [process, *process.children(recursive=True)]
            seen.note([_size(each) for each in family])


def _size(process: psutil.Process) -> float:
    used = process.memory_full_info() if psutil.LINUX else process.memory_info()
    return float(getattr(used, "pss", used.rss)) / (1 << 20)


@dataclass
class Side:
    """One side of a comparison, with the costs of its runs."""

    name: str
    command: Command
    before: Callable[[], object] | None = None
    costs: list[Cost] = field(default_factory=list)

    def go(self) -> Cost:
        """Run once, after the preparation."""
        if self.before is not None:
            self.before()
        return run(self.command)

    def median(self, what: str) -> float:
        """Return the median of one kind of cost."""
        return float(statistics.median(getattr(cost, what) for cost in self.costs))


def in_turns(sides: Sequence[Side], rounds: int, long: float = 30.0) -> None:
    """Run all sides in turns, each round in the opposite direction.

    The first run of each is not counted, unless it takes longer than `long` seconds: then it is
    the only one.
    """
    measured = []
    for side in sides:
        first = side.go()
        if first.wall > long:
            side.costs.append(first)
        else:
            measured.append(side)
    for number in range(rounds):
        for side in measured[:: -1 if number % 2 else 1]:
            side.costs.append(side.go())


def ratios(one: Side, other: Side, what: str = "wall") -> list[float]:
    """Return the ratios of two sides, by round."""
    if len(one.costs) == len(other.costs):
        return [
            getattr(a, what) / getattr(b, what) for a, b in zip(one.costs, other.costs, strict=True)
        ]
    return [one.median(what) / other.median(what)]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Return a median with its range."""
    low, high = min(values), max(values)
    middle = f"{statistics.median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({low:.{digits}f} to {high:.{digits}f})"


def show_sides(title: str, sides: Iterable[Side]) -> None:
    """Print the costs of each side."""
    print(f"\n{title}\n")
    rows = [
        (
            side.name,
            spread([cost.wall for cost in side.costs], 3),
            spread([cost.cpu for cost in side.costs], 3),
            f"{side.median('peak'):.0f}",
            str(len(side.costs)),
        )
        for side in sides
    ]
    show_table(("command", "wall, s", "CPU, s", "largest process, MiB", "runs"), rows)


def show_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table as Markdown."""
    table = [heads, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    for number, row in enumerate(table):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(f"| {' | '.join(cells)} |")
        if number == 0:
            print(f"|{'|'.join('-' * (width + 2) for width in widths)}|")


def python_files(tree: Path) -> list[Path]:
    """Return the Python files below a folder, except in hidden folders."""
    return sorted(
        path
        for path in tree.rglob("*.py")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(tree).parts)
    )


def installed(name: str) -> Path | None:
    """Return a command beside the running interpreter, else on the path."""
    neighbor = Path(sys.executable).with_name(name)
    found = str(neighbor) if neighbor.exists() else shutil.which(name)
    return Path(found).absolute() if found else None
