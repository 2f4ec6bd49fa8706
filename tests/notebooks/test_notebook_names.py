"""What fixes write into a notebook is bound above it: cells run from top to bottom afterwards."""

from __future__ import annotations

import ast
import builtins
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from notebook_samples import code, notebook

from torchlint.config import Settings
from torchlint.engine import FixResult, fix_bytes
from torchlint.registry import Registry, load_registry
from torchlint.testing import examples_of

REGISTRY: Registry = load_registry()
CODES = [head.code for head in REGISTRY.select(Settings(select=("ALL",))) if head.code > "TL002"]
FIXTURES = sorted((Path(__file__).parents[2] / "fixtures" / "rules").iterdir())
RUN = """
import json, sys
names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1]))["cells"]:
    exec("".join(cell["source"]), names)
"""
IMPORTS = (ast.Import, ast.ImportFrom)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _names(node: ast.AST, kind: type[ast.expr_context]) -> set[str]:
    """Return the names that a statement reads or stores where it stands."""
    if isinstance(node, FUNCTIONS):
        outside = [
            *node.args.defaults,
            *node.args.kw_defaults,
            *getattr(node, "decorator_list", []),
        ]
        own = {node.name} if kind is ast.Store and not isinstance(node, ast.Lambda) else set()
        return own.union(*(_names(each, kind) for each in outside if each is not None))
    found: set[str] = set()
    if isinstance(node, ast.Name) and isinstance(node.ctx, kind):
        found.add(node.id)
    elif isinstance(node, IMPORTS) and kind is ast.Store:
        found.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ClassDef | ast.ExceptHandler) and kind is ast.Store and node.name:
        found.add(node.name)
    return found.union(*(_names(each, kind) for each in ast.iter_child_nodes(node)))


def _free(cells: list[str]) -> set[str]:
    """Return the names that top-level code reads before a statement above has bound them."""
    bound, free = set(dir(builtins)) | {"__name__", "__file__"}, set[str]()
    for statement in (each for cell in cells for each in ast.parse(cell).body):
        inside = _names(statement, ast.Store)
        free |= _names(statement, ast.Load) - bound - inside
        bound |= inside
    return free if "*" not in bound else set()


def _cells(text: str, late: bool) -> Iterator[str]:
    """Cut a script into a cell for each statement; `late` puts imports above their first use."""
    body = [each for each in ast.parse(text).body if not _is_future(each)]
    imports = [each for each in body if isinstance(each, IMPORTS)] if late else []
    for statement in body:
        if statement in imports:
            continue
        words = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
        for line in [each for each in imports if not words.isdisjoint(_names(each, ast.Store))]:
            imports.remove(line)
            yield _text(text, line)
        yield _text(text, statement)
    yield from (_text(text, line) for line in imports)


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _text(text: str, statement: ast.stmt) -> str:
    """Return the lines of a statement."""
    first = min([statement.lineno, *(n.lineno for n in getattr(statement, "decorator_list", []))])
    return "\n".join(text.splitlines()[first - 1 : statement.end_lineno])


def _fixed(cells: list[str], codes: tuple[str, ...]) -> FixResult:
    settings = Settings(select=codes, unsafe_fixes=True)
    data = notebook(*map(code, cells)).encode()
    return fix_bytes(data, "a.ipynb", REGISTRY.select(settings), settings)


def _sources(result: FixResult) -> list[str]:
    whole = json.loads(result.after.to_bytes())
    return ["".join(cell["source"]) for cell in whole["cells"]]


def _assert_bound(text: str, codes: tuple[str, ...], late: bool) -> FixResult:
    cells = list(_cells(text, late))
    result = _fixed(cells, codes)
    assert not result.errors, cells
    assert _free(_sources(result)) <= _free(cells), "\n# ---\n".join(_sources(result))
    return result


@pytest.mark.parametrize("rule", CODES)
def test_examples_whose_imports_come_late(rule: str) -> None:
    for example in examples_of(REGISTRY.find(rule).load()):
        if not example.valid:
            _assert_bound(example.before, (rule, *example.beside), late=True)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("folder", FIXTURES, ids=lambda folder: folder.name)
def test_fixtures_in_cells(folder: Path, late: bool) -> None:
    _assert_bound((folder / "slow.py").read_text(encoding="utf-8"), ("ALL",), late)


@pytest.mark.parametrize("name", ["tl204", "tl903"])
def test_cells_run_one_after_the_other(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="runs cells with torch")
    (folder,) = (each for each in FIXTURES if each.name.startswith(name))
    result = _assert_bound((folder / "slow.py").read_text(encoding="utf-8"), ("ALL",), late=True)
    assert result.applied
    (tmp_path / "before.ipynb").write_bytes(result.before.to_bytes())
    (tmp_path / "after.ipynb").write_bytes(result.after.to_bytes())
    for notebook_ in ("before.ipynb", "after.ipynb"):
        done = subprocess.run(
            [sys.executable, "-c", RUN, notebook_],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "final loss:" in done.stdout


LOADER = "loader = DataLoader(list(range(9)), batch_size=8)"
TORCH_LOADER = LOADER.replace("DataLoader", "torch.utils.data.DataLoader")
BATCHES = "for x, y in loader:\n    net(x.cuda())"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # An earlier cell imports something: the import goes there.
        (
            ["from torch.utils.data import DataLoader", LOADER, f"import torch\n{BATCHES}"],
            {0: "import torch\nfrom torch.utils.data import DataLoader"},
        ),
        # None does: it goes to the top of the cell, behind commands.
        (
            [
                "%run setup.ipynb",
                f"%%time\n%matplotlib inline\n{TORCH_LOADER}",
                f"import torch\n{BATCHES}",
            ],
            {1: "%%time\n%matplotlib inline\nimport torch\nloader = torch."},
        ),
        # The import stands above: in another cell, or in the same.
        (["import torch", "from torch.utils.data import DataLoader", LOADER, BATCHES], {}),
        (["from torch.utils.data import DataLoader", f"import torch\n{LOADER}", BATCHES], {}),
        # It stands in the same cell, below.
        (
            ["from torch.utils.data import DataLoader", f"{LOADER}\nimport torch", BATCHES],
            {0: "import torch\nfrom torch.utils.data import DataLoader"},
        ),
    ],
)
def test_where_an_import_goes(before: list[str], after: dict[int, str]) -> None:
    result = _fixed(before, ("TL102",))
    assert not result.errors
    sources = _sources(result)
    assert any("pin_memory=torch.cuda.is_available()" in each for each in sources)
    for number, text in enumerate(before):
        if number in after:
            assert sources[number].startswith(after[number])
        elif not after and "DataLoader(" not in text:
            assert sources[number] == text


@pytest.mark.parametrize(
    "cell", ["%timeit Variable(x)", "%%timeit\nVariable(x)", "y = eval('Variable(x)')", "!ls"]
)
def test_an_import_of_which_a_cell_has_the_word_stays(cell: str) -> None:
    first = "import torch\nfrom torch.autograd import (\n    Function,\n    Variable,\n)\nFunction"
    result = _fixed([first, "x = Variable(torch.ones(1))", cell], ("TL408",))
    assert not result.errors
    assert _sources(result)[1] == "x = torch.ones(1)"
    assert ("Variable" in _sources(result)[0]) is (cell != "!ls")
