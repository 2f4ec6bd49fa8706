"""Compare the speed of torchlint with other linters and with bare parsers, and check its goals.

    python benchmarks/materials.py /tmp/speed
    python benchmarks/speed.py /tmp/speed
    python benchmarks/speed.py /tmp/speed --only B --without pylint torchfix fixit

All sides of a comparison run in turns in fresh processes, each round in the opposite direction,
after one uncounted run; a side that takes over 30 s runs once. Medians are printed with their
ranges. CPU time is that of a process and all its children, and memory that of the largest of them,
both from `wait4`, so this needs a POSIX system. For B, the memory is sampled every 20 ms in a
separate run, with shared pages divided among the processes. On B, pylint, TorchFix and Fixit take a
quarter of an hour each, and pylint needs 3.5 GiB.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from timing import (
    Command,
    Side,
    in_turns,
    installed,
    memory,
    python_files,
    ratios,
    run,
    show_sides,
    show_table,
    spread,
)

PARSE = """
import sys, time, warnings
from {module} import {function} as parse
warnings.simplefilter("ignore")
imported = time.process_time()
for path in open(sys.argv[1], encoding="utf-8").read().splitlines():
    with open(path, "rb") as file:
        source = file.read()
    try:
        parse(source)
    except Exception:
        pass
print(time.process_time() - imported)
"""
WALK = """
import os, sys
folders = [sys.argv[1]]
while folders:
    with os.scandir(folders.pop()) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                entry.stat()
"""
SCRIPT_LINES = 300


@dataclass(frozen=True)
class Goal:
    """One goal: a limit for the ratio of two costs, and the measured ratio."""

    what: str
    limit: float
    values: Sequence[float]
    at_least: bool = False
    unit: str = " times"

    def row(self) -> tuple[str, str, str, str]:
        """Return the row of the table."""
        worst = sorted(self.values)[len(self.values) // 2]
        met = worst >= self.limit if self.at_least else worst <= self.limit
        goal = f"{'at least' if self.at_least else 'at most'} {self.limit:g}{self.unit}"
        return self.what, goal, spread(self.values), "yes" if met else "NO"


@dataclass
class Bench:
    """The folders, and the results so far."""

    folder: Path
    torchlint: Path
    cache: Path
    rounds: int
    without: frozenset[str]
    goals: list[Goal] = field(default_factory=list)

    def check(self, tree: Path, *more: str | Path) -> Command:
        """Return the command line of a check with all rules."""
        line: list[str | Path] = [self.torchlint, "check", "--isolated", "--select=ALL", *more]
        return Command(line, tree if tree.is_dir() else tree.parent)

    def cold(self, tree: Path, target: str = ".") -> Side:
        """Return the side without any cache."""
        return Side("torchlint check --no-cache", self.check(tree, "--no-cache", target))

    def warm(self, tree: Path, target: str = ".") -> Side:
        """Return the side with a cache, which the uncounted first run fills."""
        folder = self.cache / f"{tree.name}-{target}"
        return Side("torchlint check, warm", self.check(tree, f"--cache-dir={folder}", target))

    def python(self, code: str, *arguments: str | Path, reports_itself: bool = False) -> Command:
        """Return the command line of a few lines of Python."""
        line = [sys.executable, "-c", code, *arguments]
        return Command(line, self.folder, reports_itself=reports_itself)

    def ruff(self, tree: Path, *more: str) -> Side:
        """Return Ruff with all its rules and without a cache."""
        return self._ruff(tree, "--no-cache", *more)

    def warm_ruff(self, tree: Path) -> Side:
        """Return Ruff with all rules, after an uncounted run that fills its cache."""
        side = self._ruff(tree, f"--cache-dir={self.cache / f'{tree.name}-ruff'}")
        return replace(side, name="ruff check --select=ALL, warm")

    def _ruff(self, tree: Path, *more: str) -> Side:
        tool = self.folder / "linters" / "bin" / "ruff"
        line: list[str | Path] = [tool, "check", "--select=ALL", "--isolated", *more, "."]
        return Side(" ".join(("ruff check --select=ALL", *more)), Command(line, tree))


def imports(bench: Bench, names: str) -> Side:
    """Return the side that imports something and ends."""
    return Side(f'python -c "import {names}"', bench.python(f"import {names}"))


def parser(bench: Bench, tree: Path, module: str, function: str) -> Side:
    """Return the side that only parses every file of a tree, in one process."""
    listing = bench.cache / f"{tree.name}.txt"
    listing.write_text("\n".join(map(str, python_files(tree))), encoding="utf-8")
    code = PARSE.format(module=module, function=function)
    command = bench.python(code, listing, reports_itself=True)
    return Side(f"{module}.{function}", command)


def linters(bench: Bench, tree: Path) -> list[Side]:
    """Return the other linters."""
    tools = bench.folder / "linters" / "bin"
    some = frozenset(range(32))
    pylint: list[str | Path] = [tools / "pylint", "--rcfile=/dev/null", "--recursive=y", "."]
    torchfix: list[str | Path] = [
        bench.folder / "torchfix" / "bin" / "torchfix",
        "--select=ALL",
        ".",
    ]
    sides = {
        "torchfix": Side("torchfix --select=ALL", Command(torchfix, tree, some)),
        "fixit": Side("fixit lint", Command([tools / "fixit", "lint", "."], tree, some)),
        "flake8": Side("flake8", Command([tools / "flake8", "--isolated", "."], tree, some)),
        "pylint": Side("pylint", Command(pylint, tree, some)),
    }
    return [side for name, side in sides.items() if name not in bench.without]


def examples(bench: Bench) -> None:
    """Compare with everything on A."""
    tree = bench.folder / "A"
    cold, warm, start = bench.cold(tree), bench.warm(tree), imports(bench, "click, sqlite3")
    whole = parser(bench, tree, "libcst", "parse_module")
    others = linters(bench, tree)
    ruff = [bench.ruff(tree), bench.warm_ruff(tree)]
    sides = [cold, warm, start, whole, parser(bench, tree, "ast", "parse"), *ruff, *others]
    in_turns(sides, bench.rounds)
    show_sides(f"A: pytorch/examples, {len(python_files(tree))} files", sides)
    for peer in others:
        if peer.name.startswith("torchfix"):
            bench.goals += [
                Goal("A cold: torchfix takes", 14, ratios(peer, cold), at_least=True),
                Goal("A warm: torchfix takes", 100, ratios(peer, warm), at_least=True),
            ]
    alone = [ours.cpu / parse.inner for ours, parse in zip(cold.costs, whole.costs, strict=True)]
    bench.goals += [
        Goal("A cold: CPU time of parse_module without its import", 1.6, alone),
        Goal("A cold: CPU time of parse_module with its import", 1.6, ratios(cold, whole, "cpu")),
        Goal("A warm: import of click and sqlite3", 3, ratios(warm, start)),
    ]


def packages(bench: Bench) -> None:
    """Compare on B with whatever reads each file once, and with a walk over the files."""
    tree = bench.folder / "B"
    cold, warm = bench.cold(tree), bench.warm(tree)
    walk = Side("walk with a stat of every file", bench.python(WALK, tree))
    ruff, terse = bench.ruff(tree), bench.ruff(tree, "--quiet", "--output-format=concise")
    warm_ruff = bench.warm_ruff(tree)
    parsers = [
        parser(bench, tree, *name) for name in (("libcst", "parse_module"), ("ast", "parse"))
    ]
    once = [cold, ruff, terse, *parsers, *linters(bench, tree)]
    in_turns(once, 1, long=0)
    run(warm.command)
    in_turns([warm, warm_ruff, walk], bench.rounds * 3)
    sides = [*once, warm, warm_ruff, walk]
    show_sides(f"B: packages of packages.txt, {len(python_files(tree))} files", sides)
    bench.goals += [
        Goal("B cold: ruff check --select=ALL", 5, ratios(cold, ruff)),
        Goal("B cold: the same, CPU time", 5, ratios(cold, ruff, "cpu")),
        Goal("B cold: Ruff with one line a finding", 5, ratios(cold, terse)),
        Goal("B warm: walk", 2, ratios(warm, walk)),
        Goal("B warm: the same, CPU time", 2, ratios(warm, walk, "cpu")),
    ]
    held = memory(cold.command)
    print(f"\n{held.processes} processes held {held.total:.0f} MiB together at most")
    bench.goals.append(Goal("B cold: memory of a process", 150, [held.largest], unit=" MiB"))


def one_script(bench: Bench) -> None:
    """Compare one script with the imports that it needs."""
    script = min(
        (path for path in python_files(bench.folder / "A") if b"torch" in path.read_bytes()),
        key=lambda path: (abs(path.read_bytes().count(b"\n") - SCRIPT_LINES), path),
    )
    nothing = bench.cache / "nothing.py"
    nothing.write_text("print('nothing to look at')\n" * SCRIPT_LINES, encoding="utf-8")
    cold, warm = bench.cold(script, script.name), bench.warm(script, script.name)
    empty = bench.cold(nothing, nothing.name)
    empty.name = "torchlint check --no-cache, no torch in it"
    libcst, click = imports(bench, "libcst"), imports(bench, "click")
    sides = [cold, warm, empty, libcst, click]
    in_turns(sides, bench.rounds * 3)
    lines = script.read_bytes().count(b"\n")
    show_sides(f"One script of {lines} lines ({script.relative_to(bench.folder)})", sides)
    bench.goals += [
        Goal("script, cold: import of libcst", 2, ratios(cold, libcst)),
        Goal("script, cached: import of click", 2, ratios(warm, click)),
        Goal("script, nothing to look at: import of click", 2, ratios(empty, click)),
    ]


PARTS: dict[str, Callable[[Bench], None]] = {
    "A": examples,
    "B": packages,
    "script": one_script,
}


def main() -> None:
    """Parse the options, run the comparisons and print which goals were met."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("folder", type=Path, help="what materials.py made")
    arguments.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    arguments.add_argument("--without", nargs="+", default=[], help="linters to leave out")
    arguments.add_argument("--torchlint", type=Path, default=installed("torchlint"))
    arguments.add_argument("--rounds", type=int, default=5, help="counted runs of each side")
    options = arguments.parse_args()
    if options.torchlint is None:
        arguments.error("torchlint is not installed here: pass --torchlint")
    for name in ("A", "B", "linters", "torchfix"):
        if not (options.folder / name).is_dir():
            arguments.error(f"{options.folder / name} is no folder: run materials.py")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} processors, Python {sys.version.split()[0]}, load before {load}")
    with tempfile.TemporaryDirectory() as cache:
        bench = Bench(
            options.folder.resolve(),
            options.torchlint.absolute(),
            Path(cache),
            options.rounds,
            frozenset(options.without),
        )
        for part in options.only:
            PARTS[part](bench)
    print()
    show_table(("goal", "limit", "measured", "met"), [goal.row() for goal in bench.goals])


if __name__ == "__main__":
    main()
