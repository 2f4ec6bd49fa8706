"""Lay files out for other widths, and demand the same findings and fixes.

    python benchmarks/widths.py fixtures/scripts --widths 40 60 200

Each file of the trees is checked and fixed, unsafe fixes included, as it is and as `ruff format`
lays it out for each width. The findings must be as many of each rule, the fixed texts the same
program, and no fix may be refused.

TL002 is left out: it judges comments by their lines. A fix that turns on how wide a line becomes
(TL204 parts `x, y = x.cuda(), y.cuda()` where it would be too wide) is told as another program.

Works on copies and writes nothing else; needs `ruff`. Prints every file of which more than the
layout changes, with the difference; exits with 1 if there is any.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orders import python_files

from torchlint.config import Settings
from torchlint.engine import check_source, fix_source
from torchlint.registry import load_registry
from torchlint.source import Source, SourceError

_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


@dataclass(frozen=True)
class Outcome:
    """What is found in a text, and what program its fixes make."""

    found: Counter[str]
    program: str
    errors: tuple[str, ...]


def outcome(text: str, name: str) -> Outcome:
    """Check and fix a text."""
    rules = load_registry().select(Settings(select=("ALL",), ignore=("TL002",)))
    settings, source = Settings(unsafe_fixes=True), Source(name, text)
    checked = check_source(source, rules, settings)
    fixed = fix_source(source, rules, settings)
    return Outcome(
        Counter(each.code for each in checked.findings),
        program(fixed.after.text),
        (*checked.errors, *fixed.errors),
    )


def program(text: str) -> str:
    """Write a text as CPython does, without docstrings, in which a formatter changes blanks."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        first = node.body[0] if isinstance(node, _BLOCKS) and node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            first.value.value = ""
    return ast.unparse(tree)


def formatted(text: str, width: int) -> str:
    """Lay a text out for a width; raises `CalledProcessError` for one that is no Python."""
    command = ["ruff", "format", "--isolated", f"--line-length={width}", "-"]
    made = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
    return made.stdout.decode()


def differences(text: str, name: str, width: int) -> Iterator[str]:
    """Say what another width changes besides the layout."""
    before, after = outcome(text, name), outcome(formatted(text, width), name)
    yield from after.errors
    lost, new = before.found - after.found, after.found - before.found
    if lost or new:
        yield f"lost {dict(lost)}, new {dict(new)}"
    if before.program != after.program:
        lines = difflib.unified_diff(
            before.program.splitlines(), after.program.splitlines(), lineterm="", n=1
        )
        yield "\n".join(f"    {line}" for line in list(lines)[2:])


def examine(path: Path, widths: Sequence[int]) -> tuple[Path, bool, list[str]]:
    """Examine a file in which something is found; say whether it is one."""
    try:
        text = Source.from_bytes(path.read_bytes(), path.name).text
        if not outcome(text, path.name).found:
            return path, False, []
        return path, True, [
            f"width {width}: {said}"
            for width in widths
            for said in differences(text, path.name, width)
        ]  # fmt: skip
    except (SourceError, SyntaxError, UnicodeError, subprocess.CalledProcessError):
        return path, False, []


def main() -> None:
    """Read the options, go through the trees and print what was seen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", type=Path, nargs="+", help="folders with Python files, or files")
    parser.add_argument("--widths", type=int, nargs="+", default=[60])
    options = parser.parse_args()
    examined = told = 0
    with ProcessPoolExecutor() as pool:
        work = partial(examine, widths=options.widths)
        for path, counts, said in pool.map(work, python_files(options.trees), chunksize=20):
            examined += counts
            told += bool(said)
            for each in said:
                print(f"{path}: {each}", flush=True)
    print(f"{examined} files with findings, {told} that another layout changes")
    sys.exit(1 if told else 0)


if __name__ == "__main__":
    main()
