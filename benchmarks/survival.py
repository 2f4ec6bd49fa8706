"""Fix copies of repositories, and check that every program that ran before still runs.

    python benchmarks/survival.py FOLDER ...
    python benchmarks/survival.py --trainings DEFINITIONS FOLDER ...

Works through the command line only: `fix --apply`, and in a second round also `--unsafe-fixes`.
Before and after, each module is imported, and each notebook's imports, definitions and assignments
are run, in separate processes with stand-ins for missing packages; the names that functions and the
other cells read are looked up as well. Trainings are defined in files:

    folder = "made-up"                 # the name of the folder
    script = "train.py"
    arguments = ["--epochs", "1"]
    prelude = "..."                    # Python that runs before the script, such as synthetic data
    [[substitutions]]                  # made before and after, on the present text
    file = "train.py"
    pattern = 'epochs = [0-9]+'
    replacement = "epochs = 1"
    [files]                            # added files
    "data/train.txt" = "..."

For fixes that promise the same results, the losses, the parameters after every step and the output
are compared. Prints a table and whatever broke; exits with 1 if anything did.
"""

import argparse
import ast
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpus import failed, invoke

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Json = dict[str, Any]
TRYOUT = Path(__file__).with_name("tryout.py")
COMMON = ("--isolated", "--no-cache")
MODES = {
    "safe": ((), ("exact", "close")),
    "unsafe": (("--unsafe-fixes",), ("exact", "close", "unsafe", "display")),
}
CLOSE = 1e-3
"""The relative distance up to which losses count as equal."""
SMALLEST = 1e-5
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
VARYING = re.compile(
    r"(?i)(?:time|elapsed|took|eta|data|batch|second|speed)[a-z]*\W{0,4}[\d.:]+(?: ?\([\d.]+\))?"
    r"|[\d.:]+ ?(?:ms|s|h|min|secs?|seconds?|minutes?|it/s|s/it)\b"
    r"|\d+: ?\d\d(?:[:.] ?\d+)*|\d{4}-\d\d-\d\d"
    r"|0x[0-9a-f]+"
)
"""Matches times and addresses in a line of output."""


@dataclass
class Row:
    """The results for a folder in one mode."""

    name: str
    mode: str
    files: int = 0
    changed: int = 0
    fixes: Counter[str] = field(default_factory=Counter)
    counts: dict[str, list[int]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def count(self, kind: str, before: Json, after: Json) -> None:
        """Count how many programs ran, before and after."""
        pair = self.counts.setdefault(kind, [0, 0, 0])
        pair[0] += 1
        pair[1] += before["state"] == "ok"
        pair[2] += after["state"] == "ok"

    def show(self) -> str:
        """Return the row of the table."""
        kinds = ("module", "notebook", "training")
        cells = ("{1}/{2} of {0}".format(*self.counts.get(kind, (0, 0, 0))) for kind in kinds)
        fixes = " ".join(
            f"{code}:{number}" for code, number in sorted(self.fixes.items()) if number
        )
        start = f"{self.name[:44]:45}{self.mode:7}{self.changed:4} of {self.files:<5}"
        verdict = f"{len(self.broken)} broken" if self.broken else "whole"
        return start + "".join(f"{cell:>16}" for cell in cells) + f"  {verdict:10} {fixes}"


class Bench:
    """Runs programs, in a process with torch that forks one for each."""

    def __init__(self, room: Path, python: str, limit: float, kept: Path | None = None) -> None:
        self.room = room
        self.limit = limit
        self.kept = kept
        self.number = 0
        settings = {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [python, str(TRYOUT)],
            env=os.environ
            | settings
            | {"PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": "", "TORCHDYNAMO_DISABLE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def keep(self, name: str, jobs: Sequence[Json], outcomes: Sequence[Json]) -> None:
        """Store how programs of the original ended."""
        if self.kept:
            with self.kept.open("a", encoding="utf-8") as file:
                for job, outcome in zip(jobs, outcomes, strict=True):
                    file.write(json.dumps({"name": name, **job, **outcome}) + "\n")

    def run(self, root: Path, jobs: Sequence[Json]) -> list[Json]:
        """Run some jobs in a folder."""
        return [self.run_one({"root": str(root), "limit": self.limit, **job}) for job in jobs]

    def run_one(self, job: Json) -> Json:
        """Run one job."""
        self.number += 1
        scratch = self.room / "scratch" / str(self.number)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({**job, "scratch": str(scratch)}) + "\n")
        self.process.stdin.flush()
        outcome: Json = json.loads(self.process.stdout.readline())
        shutil.rmtree(scratch)
        return outcome


def programs(root: Path) -> list[Json]:
    """Return the modules and notebooks of a folder as jobs."""
    kinds = {".py": "module", ".ipynb": "notebook"}
    found = (path for path in sorted(root.rglob("*")) if path.suffix in kinds and path.is_file())
    below = (path.relative_to(root) for path in found)
    return [
        {"kind": kinds[path.suffix], "path": str(path)}
        for path in below
        if not any(part.startswith(".") for part in path.parts)
    ]


def copy(tree: Path, target: Path) -> Path:
    """Copy a folder, without its history."""
    shutil.copytree(tree, target, ignore=shutil.ignore_patterns(".git"), symlinks=True)
    return target


def fixable(torchlint: str, root: Path, select: Sequence[str]) -> Counter[tuple[str, str]]:
    """Count the fixes for a folder, by rule and safety."""
    options = (*COMMON, *select, "--output-format=json")
    done = invoke(torchlint, root, "check", *options, ".")
    if failed(done):
        raise SystemExit(f"check ended with {done.returncode}: {done.stderr.strip()}")
    findings = json.loads(done.stdout)
    return Counter((each["code"], each["fix"]["safety"]) for each in findings if each["fix"])


def compile_error(path: Path) -> str | None:
    """Return why a file does not compile."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(path.read_bytes(), path.name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def packages(paths: Iterable[Path]) -> set[str]:
    """Return the packages that modules import."""
    found: set[str] = set()
    for path in paths:
        if path.suffix == ".py" and not compile_error(path):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.add(node.module.partition(".")[0])
    return found


def kind_of(error: str) -> str:
    """Return the type of an error, with the text of a missing name."""
    missing = re.search(r"\b(?:Name|UnboundLocal|Attribute|Import|ModuleNotFound)Error\b", error)
    kind = re.match(r"(?:cell \d+: )?\w+", error)
    return kind[0] if kind and not missing else error


def new(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the errors that were added."""
    spare = Counter(map(kind_of, before))
    added = []
    for error in after:
        spare[kind_of(error)] -= 1
        if spare[kind_of(error)] < 0:
            added.append(error)
    return added


def worse(before: Json, after: Json) -> Iterator[str]:
    """Yield what a program did before and no longer does; a file that did not parse did nothing."""
    if any(error.startswith(("SyntaxError", "IndentationError")) for error in before["errors"]):
        return
    if before["state"] == "ok" and after["state"] == "endless":
        yield "ended before, does not end now"
    for error in new(before["errors"], after["errors"]):
        was = f" (before: {before['errors'][0]})" if before["errors"] else ""
        yield f"{error}{was}"
    unbound: Counter[str] = Counter(after["unbound"])
    unbound.subtract(before["unbound"])
    for name in sorted(unbound.elements()):
        yield f"nothing binds {name}"


def alike(one: float, other: float) -> bool:
    """Return whether two numbers are equal but for rounding."""
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=SMALLEST)


def apart(before: Json, after: Json, printed: bool) -> Iterator[str]:
    """Return where two runs of a training differ."""
    for name in ("losses", "sums"):
        ours, theirs = before.get(name, []), after.get(name, [])
        if len(ours) != len(theirs):
            yield f"{len(theirs)} {name}, before {len(ours)}"
        for at, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            if not alike(one, other):
                yield f"{name} differ from step {at} on: {one} before, {other} now"
                break
    if printed:
        yield from printed_apart(before["printed"], after["printed"])


def printed_apart(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Return the first line of output that differs, except for times and addresses."""
    ours, theirs = ([VARYING.sub("", line) for line in lines] for lines in (before, after))
    if len(ours) != len(theirs):
        yield f"prints {len(theirs)} lines, before {len(ours)}"
    for one, other in zip(ours, theirs, strict=False):
        numbers = (NUMBER.findall(one), NUMBER.findall(other))
        same = len(numbers[0]) == len(numbers[1])
        if NUMBER.sub("#", one) != NUMBER.sub("#", other) or not (
            same and all(alike(float(a), float(b)) for a, b in zip(*numbers, strict=True))
        ):
            yield f"prints {other.strip()!r}, before {one.strip()!r}"
            return


def touched(before: Sequence[Json], jobs: Sequence[Json], changed: set[str]) -> list[int]:
    """Return the programs that were changed, or import a changed one."""
    return [
        at
        for at, job in enumerate(jobs)
        if job["path"] in changed or not changed.isdisjoint(before[at]["loaded"])
    ]


def look_at_programs(
    bench: Bench, row: Row, one: Path, two: Path, jobs: Sequence[Json], before: Sequence[Json]
) -> None:
    """Run the programs of the fixed folder that the fixes can affect."""
    changed = {
        job["path"]
        for job in jobs
        if (one / job["path"]).read_bytes() != (two / job["path"]).read_bytes()
    }
    row.files, row.changed = len(jobs), len(changed)
    for path in sorted(changed):
        broken = (
            path.endswith(".py") and not compile_error(one / path) and compile_error(two / path)
        )
        if broken:
            row.broken.append(f"{path}: does not compile: {broken}")
    parsed = (path for path in changed if not compile_error(one / path))
    needed = packages(two / path for path in parsed) - sys.stdlib_module_names
    if needed:
        needed -= packages(one / job["path"] for job in jobs)
    row.broken += [f"needs {name}, which it did not before" for name in sorted(needed)]
    again = touched(before, jobs, changed)
    after = dict(zip(again, bench.run(two, [jobs[at] for at in again]), strict=True))
    doubted = [at for at in again if list(worse(before[at], after[at]))]
    chosen = [jobs[at] for at in doubted]
    first = dict(zip(doubted, bench.run(one, chosen), strict=True))
    second = dict(zip(doubted, bench.run(two, chosen), strict=True))
    for at, job in enumerate(jobs):
        ran = first.get(at, before[at])
        now = second.get(at, after.get(at, before[at]))
        row.count(job["kind"], ran, now)
        row.broken += [f"{job['path']}: {line}" for line in worse(ran, now)]


def prepare(root: Path, definition: Json) -> list[str]:
    """Apply a training's definition, and return the substitutions that matched nothing."""
    idle = []
    for substitution in definition.get("substitutions", ()):
        path = root / substitution["file"]
        text, number = re.subn(
            substitution["pattern"],
            substitution["replacement"].replace("\\", "\\\\"),
            path.read_text(encoding="utf-8"),
        )
        path.write_text(text, encoding="utf-8")
        if not number:
            idle.append(f"{substitution['file']}: nothing matches {substitution['pattern']}")
    for name, text in definition.get("files", {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return idle


def train(bench: Bench, tree: Path, definitions: Sequence[Json]) -> list[tuple[Json, list[str]]]:
    """Run trainings, each in its own copy of a folder."""
    with tempfile.TemporaryDirectory(dir=bench.room) as room:
        jobs, idle = [], []
        for at, definition in enumerate(definitions):
            root = copy(tree, Path(room) / str(at) / "tree")
            idle.append(prepare(root, definition))
            script = definition["script"]
            jobs.append(
                {
                    "kind": "training",
                    "root": str(root),
                    "path": script,
                    "folder": definition.get("folder_of_run", str(Path(script).parent)),
                    "arguments": definition.get("arguments", []),
                    "prelude": definition.get("prelude", ""),
                    "limit": definition.get("seconds", 60),
                }
            )
        return list(zip(bench.run(Path(room), jobs), idle, strict=True))


def look_at_trainings(
    bench: Bench, row: Row, two: Path, names: Sequence[str], before: Sequence[tuple[Json, Json]]
) -> None:
    """Run the trainings of a fixed folder and compare them with those of the original."""
    after = train(bench, two, [definition for definition, _ in before])
    for name, (definition, ran), (now, idle) in zip(names, before, after, strict=True):
        row.count("training", ran, now)
        lines = [*idle, *worse(ran, now)]
        different = list(apart(ran, now, definition.get("printed", True)))
        if row.mode == "safe":
            lines += different
        elif different:
            row.notes.append(f"{name}: {different[0]}")
        row.broken += [f"{name}: {line}" for line in lines]


def survey(
    tree: Path, torchlint: str, bench: Bench, definitions: dict[str, Json], select: list[str]
) -> list[Row]:
    """Fix copies of one folder in every mode, and check what became of its programs."""
    with tempfile.TemporaryDirectory(dir=bench.room) as room:
        one = copy(tree, Path(room) / "before")
        jobs = programs(one)
        before = bench.run(one, jobs)
        bench.keep(tree.name, jobs, before)
        own = {name: each for name, each in definitions.items() if each["folder"] == tree.name}
        trained = train(bench, tree, list(own.values()))
        bench.keep(tree.name, list(own.values()), [outcome for outcome, _ in trained])
        idle: list[str] = []
        ran: dict[str, tuple[Json, Json]] = {}
        for name, (outcome, unmatched) in zip(own, trained, strict=True):
            idle += [f"{name}: {line}" for line in unmatched]
            if outcome["state"] == "ok" and outcome["losses"]:
                ran[name] = (own[name], outcome)
            else:
                errors = "; ".join(outcome["errors"])
                idle.append(f"{name}: does not train before: {outcome['state']}: {errors}")
        rows = []
        offered = fixable(torchlint, one, select)
        for mode in MODES:
            row = Row(tree.name, mode, notes=list(idle))
            two = copy(tree, Path(room) / mode)
            options, safeties = MODES[mode]
            for (code, safety), number in offered.items():
                row.fixes[code] += number * (safety in safeties)
            done = invoke(torchlint, two, "fix", *COMMON, *select, *options, "--apply", ".")
            if failed(done):
                row.broken.append(f"fix ended with {done.returncode}: {done.stderr.strip()}")
            look_at_programs(bench, row, one, two, jobs, before)
            look_at_trainings(bench, row, two, list(ran), list(ran.values()))
            rows.append(row)
            print(row.show(), flush=True)
            for line in (*row.notes, *row.broken):
                sign = "!" if line in row.broken else "·"
                print(f"    {sign} {line}", flush=True)
        return rows


def main() -> None:
    """Parse the options, check every folder and print what broke."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    neighbor = Path(sys.executable).with_name("torchlint")
    found = str(neighbor) if neighbor.exists() else shutil.which("torchlint")
    parser.add_argument("trees", type=Path, nargs="+", help="folders with Python files")
    parser.add_argument("--torchlint", default=found, help="its executable")
    parser.add_argument("--python", default=sys.executable, help="the Python that runs programs")
    parser.add_argument("--trainings", type=Path, help="a folder with definitions of trainings")
    parser.add_argument("--select", help="rules, by default those that are on")
    parser.add_argument("--seconds", type=float, default=20, help="computing of one program")
    parser.add_argument("--kept", type=Path, help="file that gets how the originals ended")
    options = parser.parse_args()
    if options.torchlint is None:
        parser.error("torchlint is not installed here: pass --torchlint")
    torchlint = str(Path(options.torchlint).absolute())
    files = sorted(options.trainings.glob("*.toml")) if options.trainings else []
    definitions = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in files}
    select = [f"--select={options.select}"] if options.select else []
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder).resolve()
        with Bench(room, options.python, options.seconds, options.kept) as bench:
            for tree in options.trees:
                rows += survey(tree.resolve(), torchlint, bench, definitions, select)
    for mode in MODES:
        total = Row(f"{len(options.trees)} folders", mode)
        for row in rows:
            if row.mode == mode:
                total.files += row.files
                total.changed += row.changed
                total.fixes += row.fixes
                total.broken += row.broken
                for kind, counts in row.counts.items():
                    sums = total.counts.get(kind, [0, 0, 0])
                    total.counts[kind] = [a + b for a, b in zip(sums, counts, strict=True)]
        print(total.show())
    sys.exit(any(row.broken for row in rows))


if __name__ == "__main__":
    main()
