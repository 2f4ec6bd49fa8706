"""What fixes write into a notebook is bound above it: cells run from top to bottom afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from cut_scripts import CODES, FIXTURES, REGISTRY, cells_of, fixed, free, sources

from torchlint.engine import FixResult
from torchlint.testing import examples_of


def _assert_bound(text: str, codes: tuple[str, ...], late: bool) -> FixResult:
    cells = list(cells_of(text, late))
    result = fixed(cells, codes)
    assert not result.errors, cells
    assert free(sources(result)) <= free(cells), "\n# ---\n".join(sources(result))
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
    result = fixed(before, ("TL102",))
    assert not result.errors
    found = sources(result)
    assert any("pin_memory=torch.cuda.is_available()" in each for each in found)
    for number, text in enumerate(before):
        if number in after:
            assert found[number].startswith(after[number])
        elif not after and "DataLoader(" not in text:
            assert found[number] == text


@pytest.mark.parametrize(
    "cell", ["%timeit Variable(x)", "%%timeit\nVariable(x)", "y = eval('Variable(x)')", "!ls"]
)
def test_an_import_of_which_a_cell_has_the_word_stays(cell: str) -> None:
    first = "import torch\nfrom torch.autograd import (\n    Function,\n    Variable,\n)\nFunction"
    result = fixed([first, "x = Variable(torch.ones(1))", cell], ("TL408",))
    assert not result.errors
    assert sources(result)[1] == "x = torch.ones(1)"
    assert ("Variable" in sources(result)[0]) is (cell != "!ls")
