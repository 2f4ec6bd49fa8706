"""The commands of the guide's pages; `python -m tests.guide_pages` writes what they print.

On a page, a fence with `title="train.py"` makes that file, `<!-- copy SOURCE NAME -->` copies one
of the repository, and every `$ command` of a `console` fence is run, in order, in one folder. What
stands under it is its output; under `<!-- measured -->` times and what follows from them may be
others, and the numbers that the script computes, what it waits for and what feeds it are not.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PAGES", "ROOT", "Step", "page_as_run", "without_measurements"]

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = (
    ROOT / "docs" / "index.md",
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
)
_FENCE: Final = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE: Final = re.compile(r'title="(?P<name>[^"]+)"')
_COPY: Final = re.compile(r"<!-- copy (?P<source>\S+) (?P<name>\S+) -->")
_MEASURED: Final = "<!-- measured -->\n"
_STEADY: Final = re.compile(
    r"^(?:\$ .*|  numbers .*|  syncs per step .*|    .* waits .*|.* feeds the training steps: .*)$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Step:
    """One command of a page and what stands under it."""

    command: str
    said: str


def page_as_run(text: str) -> str:
    """Return a page with what its commands print now."""
    with tempfile.TemporaryDirectory() as folder:
        return "".join(_pieces(text, Path(folder)))


def without_measurements(text: str) -> str:
    """Return a page with nothing but what is no matter of time left of measured output."""
    return re.sub(
        rf"(?<={re.escape(_MEASURED)})```console\n.*?^```$",
        lambda found: "\n".join(_STEADY.findall(found.group())),
        text,
        flags=re.MULTILINE | re.DOTALL,
    )


def _pieces(text: str, folder: Path) -> Iterator[str]:
    """Yield the parts of a page, its commands run in `folder`."""
    at, code = 0, 0
    for found in _FENCE.finditer(text):
        between = text[at : found.start()]
        yield between
        for copied in _COPY.finditer(between):
            shutil.copy(ROOT / copied["source"], folder / copied["name"])
        title = _TITLE.search(found["info"])
        if title is not None:
            target = folder / title["name"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(found["body"], encoding="utf-8")
        if found["info"].strip() == "console":
            yield "```console\n"
            for step in _steps(found["body"]):
                printed, code = _printed(step.command, folder, code)
                yield f"$ {step.command}\n{printed}"
            yield "```"
        else:
            yield found.group()
        at = found.end()
    yield text[at:]


def _steps(body: str) -> Iterator[Step]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, said = part.partition("\n")
        yield Step(command, said)


def _printed(command: str, folder: Path, before: int) -> tuple[str, int]:
    """Run a command in a shell for which the one before left with a code; give what it printed."""
    environment = {
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "HOME": str(folder),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "NO_COLOR": "1",
        "COLUMNS": "100",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["bash", "-c", f"(exit {before}); {command}"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout.replace(str(folder), "."), done.returncode


def main() -> None:
    """Run every page's commands and write what they print."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(page_as_run(text), encoding="utf-8")


if __name__ == "__main__":
    main()
