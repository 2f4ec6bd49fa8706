"""The magics of notebooks, in a stand-in for the shell of IPython."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

import torchlint

IMPORTS = "import torch\nmodel = torch.nn.Linear(8, 1).cuda()"
SLOW = "x = 1\ntorch.autograd.set_detect_anomaly(True)"


class Shell:
    """What the magics use of IPython's shell: history, registration, running a cell."""

    def __init__(self) -> None:
        self.history_manager = SimpleNamespace(input_hist_raw=[""])
        self.magics: dict[str, Callable[..., None]] = {}
        self.ran: list[str] = []
        torchlint.load_ipython_extension(self)

    def register_magic_function(self, magic: Callable[..., None], kind: str, name: str) -> None:
        assert kind == "line_cell"
        self.magics[name] = magic

    def run_cell(self, cell: str) -> None:
        self.ran.append(cell)

    def cell(self, text: str) -> None:
        """Run a cell of the notebook as IPython does."""
        self.history_manager.input_hist_raw.append(text)
        first, _, rest = text.partition("\n")
        if first.startswith("%%torchlint"):
            self.magics["torchlint"](first.removeprefix("%%torchlint"), f"{rest}\n")
        elif first.startswith("%torchlint"):
            self.magics["torchlint"](first.removeprefix("%torchlint"))


@pytest.fixture
def shell() -> Shell:
    shell = Shell()
    shell.cell(IMPORTS)
    return shell


def test_a_cell_is_checked_with_those_before_it_and_run(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.cell(f"%%torchlint\n{SLOW}")
    said = capsys.readouterr().out
    assert said.startswith("line 3: TL801 [anomaly-detection] high: ")
    assert said.count("\n") == 1
    assert shell.ran == [f"{SLOW}\n"]


def test_all_cells_so_far_are_checked(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.cell(f"%%torchlint\n{SLOW}")
    capsys.readouterr()
    shell.cell("%torchlint")
    assert capsys.readouterr().out.startswith("cell 2, line 3: TL801 ")
    shell.cell("%torchlint --ignore TL801")
    assert capsys.readouterr().out == "torchlint: nothing found\n"


def test_fix_prints_the_new_cell_and_runs_nothing(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.cell(f"%%torchlint fix --select perf\n{SLOW}")
    assert capsys.readouterr().out == "x = 1\n"
    assert shell.ran == []
    shell.cell("%torchlint")
    assert capsys.readouterr().out == "torchlint: nothing found\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--select TL999", "the nearest codes are TL901"),
        ("fxi", "invalid choice: 'fxi'"),
        ("'", "No closing quotation"),
    ],
)
def test_a_wrong_word_is_one_line_and_the_cell_still_runs(
    shell: Shell, capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    shell.cell(f"%%torchlint {words}\nx = 1")
    printed = capsys.readouterr().out
    assert printed.startswith("torchlint: ")
    assert said in printed
    assert shell.ran == ["x = 1\n"]
