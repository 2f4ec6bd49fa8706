"""Measure torchlint against torchfix, against LibCST's parser and against an import of click.

    git clone https://github.com/pytorch/examples
    git -C examples checkout 77f55b912142e11fcfdf5b530231fb9c52f181e8
    python -m venv peer && peer/bin/pip install torchfix==0.7.0
    python benchmarks/speed.py examples --torchfix peer/bin/torchfix

Every comparison runs both sides in turns (A B, B A, ...) in fresh processes and prints the median
and the range of the ratios of the pairs. CPU time is that of the process and its workers, from
`wait4`, so this needs a POSIX system.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

PARSE = """
import sys, time
import libcst
imported = time.process_time()
for path in open(sys.argv[1], encoding="utf-8").read().splitlines():
    with open(path, "rb") as file:
        source = file.read()
    try:
        libcst.parse_module(source)
    except (libcst.ParserSyntaxError, UnicodeDecodeError, LookupError):
        pass
print(time.process_time() - imported)
"""


@dataclass(frozen=True)
class Cost:
    """Seconds that one process took; `inner` is what it printed of itself."""

    wall: float
    cpu: float
    inner: float = 0.0


def run(command: Sequence[str], cwd: Path, reports_itself: bool = False) -> Cost:
    """Run one command to its end; exit codes above 1 are errors."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=cwd, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode not in (0, 1):
            message = err.read().decode(errors="replace")
            sys.exit(f"{' '.join(command)}: exit {process.returncode}\n{message}")
        inner = float(out.read()) if reports_itself else 0.0
    return Cost(wall, usage.ru_utime + usage.ru_stime, inner)


def pairs(
    first: Callable[[], Cost], second: Callable[[], Cost], rounds: int
) -> list[tuple[Cost, Cost]]:
    """Run both sides in turns, after one unmeasured run of each."""
    first()
    second()
    measured = []
    for number in range(rounds):
        if number % 2:
            late = second()
            measured.append((first(), late))
        else:
            early = first()
            measured.append((early, second()))
    return measured


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Write a median with its range."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def python_files(tree: Path) -> list[Path]:
    """List the Python files below a folder, hidden folders left out."""
    return sorted(
        path
        for path in tree.rglob("*.py")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(tree).parts)
    )


def against_torchfix(check: Sequence[str], torchfix: str, tree: Path, rounds: int) -> None:
    """Print the time of a cold check against torchfix with all its rules."""
    measured = pairs(
        lambda: run(check, tree),
        lambda: run([torchfix, "--select=ALL", "."], tree),
        rounds,
    )
    print("cold check against torchfix, wall time")
    print(f"  torchlint check --no-cache  {spread([ours.wall for ours, _ in measured], 3)} s")
    print(f"  torchfix --select=ALL       {spread([peer.wall for _, peer in measured], 3)} s")
    print(f"  times faster                {spread([p.wall / o.wall for o, p in measured], 1)}")
    print(f"  times less CPU time         {spread([p.cpu / o.cpu for o, p in measured], 1)}")


def against_parser(check: Sequence[str], tree: Path, rounds: int) -> None:
    """Print the CPU time of a cold check against LibCST's parser alone."""
    files = [path for path in python_files(tree) if b"torch" in path.read_bytes()]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as listing:
        listing.write("\n".join(str(path) for path in files))
        listing.flush()
        measured = pairs(
            lambda: run(check, tree),
            lambda: run([sys.executable, "-c", PARSE, listing.name], tree, reports_itself=True),
            rounds,
        )
    print(f"cold check against libcst.parse_module on {len(files)} files that hold `torch`, CPU")
    print(f"  torchlint check --no-cache  {spread([ours.cpu for ours, _ in measured], 3)} s")
    print(f"  parsing alone               {spread([bare.inner for _, bare in measured], 3)} s")
    print(f"  with interpreter and import {spread([bare.cpu for _, bare in measured], 3)} s")
    print(f"  times parsing alone         {spread([o.cpu / b.inner for o, b in measured])}")
    print(f"  times that with the import  {spread([o.cpu / b.cpu for o, b in measured])}")


def against_click(torchlint: str, tree: Path, rounds: int) -> None:
    """Print the wall time of `torchlint --version` against an import of click."""
    measured = pairs(
        lambda: run([torchlint, "--version"], tree),
        lambda: run([sys.executable, "-c", "import click"], tree),
        rounds,
    )
    print("start-up, wall time")
    print(f"  torchlint --version         {spread([ours.wall for ours, _ in measured], 3)} s")
    print(f"  python -c 'import click'    {spread([click.wall for _, click in measured], 3)} s")
    print(f"  times                       {spread([o.wall / c.wall for o, c in measured])}")


def installed(name: str) -> str | None:
    """Find a command beside the running interpreter, else on the path."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def main() -> None:
    """Read the options and print the comparisons."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", type=Path, help="a checked-out repository")
    parser.add_argument("--torchfix", help="the torchfix executable; left out: no such comparison")
    parser.add_argument("--torchlint", default=installed("torchlint"), help="its executable")
    parser.add_argument("--select", default="ALL", help="the rules of torchlint to run")
    parser.add_argument("--rounds", type=int, default=5, help="pairs per comparison")
    options = parser.parse_args()
    tree: Path = options.tree.resolve()
    if options.torchlint is None:
        parser.error("torchlint is not installed here: pass --torchlint")
    if not tree.is_dir():
        parser.error(f"{tree} is not a folder")
    torchlint = str(Path(options.torchlint).absolute())
    check = [torchlint, "check", "--isolated", "--no-cache", f"--select={options.select}", "."]
    print(f"{tree.name}: {len(python_files(tree))} Python files, {options.rounds} pairs each")
    if options.torchfix:
        peer = str(Path(options.torchfix).absolute())
        against_torchfix(check, peer, tree, options.rounds)
    against_parser(check, tree, options.rounds)
    against_click(torchlint, tree, options.rounds * 3)


if __name__ == "__main__":
    main()
