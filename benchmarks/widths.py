"""Format files for other widths, and check that findings and fixes stay the same.

    python benchmarks/widths.py fixtures/scripts --widths 40 60 200

Each file of the trees is checked and fixed, unsafe fixes included, both unchanged and formatted by
`ruff format` for each width. Each rule must find as much, the fixed texts must be the same program,
and no fix may be refused.

TL002 is left out, since it judges comments by their lines. A fix that depends on the width of a
line (TL204 splits `x, y = x.cuda(), y.cuda()` where it would be too long) counts as a difference.

Works on copies and writes nothing else; needs `ruff`. Prints every file in which more than the
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
    """The findings in a text, and the program that its fixes make."""

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
        (*checked.errors, *checked.warnings, *fixed.errors, *fixed.warnings),
    )


def program(text: str) -> str:
    """Return a text as CPython unparses it, without docstrings, whose blanks formatters change."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        first = node.body[0] if isinstance(node, _BLOCKS) and node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            first.value.value = ""
    return ast.unparse(tree)


def formatted(text: str, width: int) -> str:
    """Format a text for a width; raises `CalledProcessError` where it is not Python."""
    command = ["ruff", "format", "--isolated", f"--line-length={width}", "-"]
    made = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
    return made.stdout.decode()


def differences(text: str, name: str, width: int) -> Iterator[str]:
    """Return the changes of another width, apart from the layout."""
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
    """Check one file at all widths, and report whether it has findings."""
    try:
        text = Source.from_bytes(path.read_bytes(), path.name).text
        if not outcome(text, path.name).found:
            return path, False, []
        return path, True, [
            f"width {width}: {change}"
            for width in widths
            for change in differences(text, path.name, width)
        ]  # fmt: skip
    except (SourceError, SyntaxError, UnicodeError, subprocess.CalledProcessError):
        return path, False, []


def main() -> None:
    """Parse the options, check every file and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", type=Path, nargs="+", help="folders with Python files, or files")
    parser.add_argument("--widths", type=int, nargs="+", default=[60])
    options = parser.parse_args()
    examined = differing = 0
    with ProcessPoolExecutor() as pool:
        work = partial(examine, widths=options.widths)
        for path, counts, found in pool.map(work, python_files(options.trees), chunksize=20):
            examined += counts
            differing += bool(found)
            for each in found:
                print(f"{path}: {each}", flush=True)
    print(f"{examined} files with findings, {differing} that another layout changes")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
