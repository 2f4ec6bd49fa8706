"""A notebook runs from top to bottom after its fixes as it did before them, cell by cell."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cut_scripts import CODES, REGISTRY, cells_of, fixed, free, sources
from processes import stopped

from torchlint.engine import FixResult
from torchlint.finding import Safety
from torchlint.testing import examples_of

pytest.importorskip("torch", reason="runs cells with torch")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="notebooks run in forks")

RUNNER = Path(__file__).parents[1] / "cellruns.py"
LONG = {"character_gpt", "image_classifier", "seq2seq_attention", "unet_amp"}
"""The scripts that train for seconds, which are not run cell by cell."""
SCRIPTS = [
    path
    for path in sorted((Path(__file__).parents[2] / "fixtures/scripts").glob("*/before.py"))
    if path.parent.name not in LONG
]
CANNOT = {
    "a package that is not installed": r"ModuleNotFoundError",
    "a GPU": r"AssertionError: Torch not compiled with CUDA|RuntimeError: .*(?:CUDA|NVIDIA)|"
    r"AttributeError: module 'torch._C' has no attribute '_cuda_",
    "a file with data": r"FileNotFoundError",
    "other processes": r"ValueError: Default process group",
    "the source in a file, which TorchScript reads": r"OSError: Can't get source",
    "networks that are stubs": r"AttributeError: 'NoneType'|RuntimeError: element 0 of tensors",
    "names that only a function of it reads": r"NameError",
    "more time": r"TooLongError",
}
"""What an example that does not run by itself requires, and how it shows."""


class Pair(NamedTuple):
    """A notebook before and after its fixes."""

    title: str
    cells: list[str]
    result: FixResult

    @property
    def is_exact(self) -> bool:
        """Return whether every fix promises the same output."""
        safeties = (each.fix.safety for each in self.result.applied if each.fix is not None)
        return all(safety is Safety.EXACT for safety in safeties)


def _examples(rule: str) -> list[Pair]:
    """Return the examples of a rule with a fix that bind every name that they read."""
    scripts = [
        (example, cells)
        for example in examples_of(REGISTRY.find(rule).load())
        if not example.valid and not free(cells := list(cells_of(example.before, late=False)))
    ]
    pairs = [Pair(e.sentence, cells, fixed(cells, (rule, *e.beside))) for e, cells in scripts]
    return [pair for pair in pairs if pair.result.applied]


class Runner:
    """The process that runs cells."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(RUNNER)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def run(self, notebooks: list[list[str]], modules: Path) -> list[Any]:
        """Run notebooks that import the modules of a folder, and return how each ended."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        requests.write(json.dumps([str(modules), notebooks]) + "\n")
        requests.flush()
        return list(json.loads(answers.readline()))

    def close(self) -> None:
        with stopped(self._process):
            self._process.communicate()


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with closing(Runner()) as started:
        yield started


def _script(path: Path) -> list[Pair]:
    """Return a script with its fixes, a cell for each statement."""
    cells = list(cells_of(path.read_text(encoding="utf-8"), late=False))
    pair = Pair(path.name, cells, fixed(cells, ("ALL",)))
    return [pair] if pair.result.applied else []


def _outcomes(runner: Runner, pairs: list[Pair], modules: Path) -> list[tuple[Pair, Any, Any]]:
    """Run notebooks before and after their fixes."""
    notebooks = [cells for pair in pairs for cells in (pair.cells, sources(pair.result))]
    ran = runner.run(notebooks, modules)
    return list(zip(pairs, ran[::2], ran[1::2], strict=True))


def _differences(pair: Pair, before: Any, after: Any) -> list[str]:
    """Return in what a notebook runs otherwise than before its fixes."""
    found = []
    if [before["error"].split(":")[0], len(before["missing"])] != [
        after["error"].split(":")[0],
        len(after["missing"]),
    ]:
        found.append(f"cell {len(after['missing'])}: {after['error']}, not {before['error']}")
    for number, (ours, theirs) in enumerate(zip(before["missing"], after["missing"], strict=False)):
        if not set(theirs) <= set(ours):
            found.append(f"cell {number}: nothing binds {set(theirs) - set(ours)}")
    if pair.is_exact and _figures(before["printed"]) != _figures(after["printed"]):
        found.append(f"prints {after['printed']!r}, not {before['printed']!r}")
    return found


def _figures(printed: str) -> str:
    """Return what was printed, without times and addresses."""
    return re.sub(r"[\d.]+ ?(?:ms|s|MB|steps/s)\b|0x[0-9a-f]+", "", printed)


@pytest.mark.parametrize("rule", CODES)
def test_the_cells_of_examples_run_as_before(runner: Runner, rule: str, tmp_path: Path) -> None:
    for pair, before, after in _outcomes(runner, _examples(rule), tmp_path):
        problems = _differences(pair, before, after)
        assert not problems, (pair.title, *problems, *sources(pair.result))
        if error := before["error"]:
            assert any(re.match(shown, error) for shown in CANNOT.values()), (pair.title, error)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.parent.name)
def test_the_cells_of_scripts_run_as_before(runner: Runner, path: Path) -> None:
    for pair, before, after in _outcomes(runner, _script(path), path.parent):
        problems = _differences(pair, before, after)
        assert not problems, (*problems, *sources(pair.result))
        assert len(before["missing"]) == len(pair.cells), before["error"]
