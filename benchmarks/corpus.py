"""Check and fix every Python file of the given trees, and test what torchlint promises.

    python benchmarks/corpus.py examples nanoGPT pytorch-cifar

Works on copies, through the command line only. Every changed file must parse with LibCST, compile,
keep every comment, differ only in lines that a fix named, and stay the same in a second run. Prints
a table of findings and fixes by rule, and every broken promise with its file; exits with 1 if there
is any.
"""

import argparse
import difflib
import io
import json
import shutil
import subprocess
import sys
import tempfile
import tokenize
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libcst

SAFETIES = ("exact", "close", "unsafe", "display", "none")
COMMON = ("--isolated", "--no-cache", "--select=ALL", "--ignore=TL002")


@dataclass
class Tally:
    """The counts over all trees so far."""

    files: int = 0
    changed: int = 0
    rules: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    broken: list[str] = field(default_factory=list)


def invoke(torchlint: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run torchlint in a folder."""
    return subprocess.run(
        [torchlint, *arguments], cwd=folder, capture_output=True, text=True, encoding="utf-8"
    )


def failed(done: subprocess.CompletedProcess[str]) -> bool:
    """Return whether a run failed."""
    return done.returncode not in (0, 1) or "Traceback (most recent call last)" in done.stderr


def culprits(torchlint: str, folder: Path, files: Sequence[Path], command: str) -> Iterator[str]:
    """Return the files on which a command fails, found by bisection."""
    names = [str(path.relative_to(folder)) for path in files]
    done = invoke(torchlint, folder, command, *COMMON, "--", *names)
    if not failed(done):
        return
    if len(files) == 1:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        yield f"{names[0]}: {command} failed ({done.returncode}): {last[0]}"
        return
    middle = len(files) // 2
    yield from culprits(torchlint, folder, files[:middle], command)
    yield from culprits(torchlint, folder, files[middle:], command)


def copy_python(tree: Path, target: Path) -> list[Path]:
    """Copy the Python files of a tree and return the copies."""
    copies = []
    for path in sorted(tree.rglob("*.py")):
        below = path.relative_to(tree)
        if path.is_file() and not any(part.startswith(".") for part in below.parts):
            copy = target / below
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            copies.append(copy)
    return copies


def text_of(content: bytes) -> str:
    """Decode a Python file like Python does."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    return content.decode(encoding)


def comments(text: str) -> Counter[str]:
    """Count the comments of a Python text."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


def named_rows(findings: Sequence[dict[str, Any]]) -> set[int]:
    """Return the rows that the edits of these findings touch."""
    rows: set[int] = set()
    for finding in findings:
        for edit in (finding["fix"] or {}).get("edits", ()):
            rows.update(range(edit["location"]["row"], edit["end_location"]["row"] + 1))
    return rows


def strayed_rows(before: str, after: str, named: set[int]) -> list[int]:
    """Return the changed rows of the original that no edit named."""
    old, new = before.splitlines(), after.splitlines()
    strayed = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        if kind == "insert" and not {start, start + 1} & named:
            strayed.append(start + 1)
        elif kind in ("replace", "delete"):
            kept = set(new[new_start:new_end])
            strayed += [
                row
                for row in range(start + 1, end + 1)
                if row not in named and old[row - 1] not in kept
            ]
    return strayed


def doubts(before: bytes, after: bytes, named: set[int], name: str) -> Iterator[str]:
    """Return what is wrong with a changed file."""
    old = text_of(before)
    try:
        new = text_of(after)
        libcst.parse_module(after)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(after, name, "exec", dont_inherit=True)
    except (libcst.ParserSyntaxError, SyntaxError, ValueError) as error:
        yield f"does not parse or compile any more: {str(error).splitlines()[0]}"
        return
    lost = comments(old) - comments(new)
    if lost:
        yield f"comments lost: {sorted(lost)}"
    strayed = strayed_rows(old, new, named)
    if strayed:
        yield f"rows changed that no fix named: {strayed}"


def findings_of(torchlint: str, folder: Path) -> list[dict[str, Any]]:
    """Check a folder and read the findings from the JSON."""
    done = invoke(torchlint, folder, "check", *COMMON, "--output-format=json", ".")
    found: list[dict[str, Any]] = json.loads(done.stdout) if not failed(done) else []
    return found


def examine(torchlint: str, tree: Path, folder: Path, safety: str, tally: Tally) -> None:
    """Fix a copy of a tree and check the promises for every changed file."""
    files = copy_python(tree, folder)
    if not files:
        return
    where = f"{tree.name} ({safety})"
    for command in ("check", "fix"):
        broken = list(culprits(torchlint, folder, files, command))
        tally.broken += [f"{where}: {line}" for line in broken]
        if broken:
            return
    found = findings_of(torchlint, folder)
    by_file: dict[Path, list[dict[str, Any]]] = defaultdict(list)
    for finding in found:
        by_file[Path(finding["filename"]).resolve()].append(finding)
        if safety == "unsafe":
            fix = finding["fix"]
            tally.rules[finding["code"]][fix["safety"] if fix else "none"] += 1
    originals = {path: path.read_bytes() for path in files}
    apply = ["fix", *COMMON, "--apply", "."]
    if safety == "unsafe":
        apply.insert(1, "--unsafe-fixes")
        tally.files += len(files)
    done = invoke(torchlint, folder, *apply)
    fixed = {path: path.read_bytes() for path in files}
    if failed(done) or "internal error" in done.stderr.lower():
        tally.broken.append(f"{where}: fix --apply ({done.returncode}): {done.stderr.strip()}")
    invoke(torchlint, folder, *apply)
    for path in files:
        name = str(path.relative_to(folder))
        if path.read_bytes() != fixed[path]:
            tally.broken.append(f"{where}: {name}: a second run changes it again")
        if fixed[path] != originals[path]:
            tally.changed += safety == "unsafe"
            named = named_rows(by_file[path.resolve()])
            for doubt in doubts(originals[path], fixed[path], named, name):
                tally.broken.append(f"{where}: {name}: {doubt}")


def print_table(tally: Tally) -> None:
    """Print findings and fixes by rule."""
    print(f"{'rule':8}{'findings':>9}" + "".join(f"{safety:>9}" for safety in SAFETIES))
    for code, counts in sorted(tally.rules.items()):
        row = "".join(f"{counts[safety]:9}" for safety in SAFETIES)
        print(f"{code:8}{sum(counts.values()):9}{row}")
    print(f"{tally.files} files, {tally.changed} changed, {len(tally.broken)} promises broken")


def main() -> None:
    """Parse the options, check every tree and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    neighbor = Path(sys.executable).with_name("torchlint")
    found = str(neighbor) if neighbor.exists() else shutil.which("torchlint")
    parser.add_argument("trees", type=Path, nargs="+", help="folders with Python files")
    parser.add_argument("--torchlint", default=found, help="its executable")
    options = parser.parse_args()
    if options.torchlint is None:
        parser.error("torchlint is not installed here: pass --torchlint")
    torchlint = str(Path(options.torchlint).absolute())
    tally = Tally()
    for tree in options.trees:
        for safety in ("safe", "unsafe"):
            with tempfile.TemporaryDirectory() as folder:
                examine(torchlint, tree.resolve(), Path(folder).resolve(), safety, tally)
    print_table(tally)
    print("\n".join(tally.broken), end="\n" if tally.broken else "")
    sys.exit(1 if tally.broken else 0)


if __name__ == "__main__":
    main()
