from __future__ import annotations

import json
from typing import Any

import nbformat
import pytest
from cli_shell import Shell
from notebook_samples import TRAINING, code, notebook
from syrupy.assertion import SnapshotAssertion

CHECK = ("check", "--isolated", "--no-cache")
FIX = ("fix", "--isolated", "--no-cache")
FEW = ("--select", "TL101,TL201,TL801")


def _sources(text: str) -> list[Any]:
    return [cell["source"] for cell in json.loads(text)["cells"]]


def _without_sources(text: str) -> str:
    whole = json.loads(text)
    for cell in whole["cells"]:
        del cell["source"]
    return json.dumps(whole)


@pytest.mark.parametrize("form", ["full", "concise", "grouped"])
def test_findings_are_told_by_cell(quick: Shell, snapshot: SnapshotAssertion, form: str) -> None:
    done = quick.run(*CHECK, *FEW, "--output-format", form, "a.ipynb")
    assert done.returncode == 1
    assert done.stdout == snapshot


def test_json_has_the_cell_and_places_in_it(quick: Shell) -> None:
    done = quick.run(*CHECK, "--output-format", "json", "--select", "TL101,TL801", "a.ipynb")
    loader, anomaly = json.loads(done.stdout)
    assert (anomaly["cell"], anomaly["location"]) == (7, {"row": 2, "column": 1})
    assert (loader["cell"], loader["location"]) == (5, {"row": 2, "column": 16})
    cells = {edit["content"]: edit["cell"] for edit in loader["fix"]["edits"]}
    assert cells.pop("import os\n") == 3
    assert set(cells.values()) == {5}


def test_formats_without_cells_point_to_the_file(quick: Shell) -> None:
    def run(form: str) -> str:
        return quick.run(*CHECK, "--select", "TL801", "--output-format", form, "a.ipynb").stdout

    assert "file=a.ipynb,line=1,col=1,endLine=1,endColumn=1::a.ipynb:cell 7:2:1:" in run("github")
    (result,) = json.loads(run("sarif"))["runs"][0]["results"]
    (location,) = result["locations"]
    assert location["physicalLocation"]["region"] == {"startLine": 1}
    assert location["logicalLocations"] == [
        {"name": "cell 7", "fullyQualifiedName": "a.ipynb:cell 7:2:1"}
    ]
    assert result["message"]["text"].startswith("cell 7, line 2: ")
    assert "fixes" not in result


def test_the_diff_is_told_by_cell(quick: Shell, snapshot: SnapshotAssertion) -> None:
    done = quick.run(*FIX, *FEW, "--unsafe-fixes", "a.ipynb")
    assert done.returncode == 1
    assert done.stdout == snapshot
    assert quick.read("a.ipynb") == TRAINING


def test_fixes_change_lines_of_cells_and_nothing_else(
    quick: Shell, snapshot: SnapshotAssertion
) -> None:
    assert quick.run(*FIX, *FEW, "--unsafe-fixes", "--apply", "a.ipynb").returncode == 0
    after = quick.read("a.ipynb")
    assert _without_sources(after) == _without_sources(TRAINING)
    before_lines, lines = TRAINING.splitlines(), after.splitlines()
    assert [line for line in lines if line not in before_lines] == snapshot
    assert _sources(after)[1:4:2] == _sources(TRAINING)[1:4:2]
    nbformat.validate(nbformat.reads(after, as_version=4))  # type: ignore[no-untyped-call]
    quick.run(*FIX, *FEW, "--unsafe-fixes", "--apply", "a.ipynb")
    assert quick.read("a.ipynb") == after


def test_standard_input(quick: Shell) -> None:
    name = ("--stdin-filename", "b.ipynb", "-")
    done = quick.run(*CHECK, "--output-format", "concise", *name, text=TRAINING)
    assert "b.ipynb:cell 7:2:1: TL801" in done.stdout
    done = quick.run(*FIX, "--select", "TL801", "--apply", *name, text=TRAINING)
    assert done.stdout == TRAINING.replace(
        '    "torch.autograd.set_detect_anomaly(True)\\n",\n', ""
    )


def test_comments_silence_findings_of_their_cell(quick: Shell) -> None:
    line = "torch.autograd.set_detect_anomaly(True)"
    text = notebook(
        code("import torch"), code(f"{line}  # noqa: TL801"), code(line), code("x  # noqa: TL801")
    )
    quick.write("a.ipynb", text)
    done = quick.run(*CHECK, "--output-format", "concise", "--show-low", "a.ipynb")
    assert [each.split(" [")[0] for each in done.stdout.splitlines()[:2]] == [
        "a.ipynb:cell 3:1:1: TL801",
        "a.ipynb:cell 4:1:4: TL002",
    ]
    quick.write("a.ipynb", text.replace("import torch", "# torchlint: ignore-file\\nimport torch"))
    assert quick.run(*CHECK, "--ignore", "TL002", "a.ipynb").returncode == 0


def test_findings_are_silenced_where_they_stand(quick: Shell) -> None:
    quick.run(*CHECK, "--add-ignore", "a.ipynb")
    after = quick.read("a.ipynb")
    assert '"torch.autograd.set_detect_anomaly(True)  # torchlint: ignore[TL801]\\n",\n' in after
    assert _without_sources(after) == _without_sources(TRAINING)
    assert quick.run(*CHECK, "a.ipynb").returncode == 0


def test_a_cell_that_does_not_parse_is_named(quick: Shell) -> None:
    quick.write("b.ipynb", notebook(code("import torch"), code("for x in y:"), code("z")))
    quick.write("c.ipynb", notebook(code("import torch"), code("lr = # TODO\n")))
    quick.write("d.ipynb", "{")
    form = ("--output-format", "concise", "--show-low")
    done = quick.run(*CHECK, "--select", "TL0,TL801", *form)
    lines = [line.split(" [")[0] for line in done.stdout.splitlines()]
    assert lines[0].startswith("a.ipynb:cell 7:2:1: TL801")
    assert lines[1].startswith("b.ipynb:cell 2:")
    assert lines[2].startswith("c.ipynb:cell 2:1:")
    assert lines[3].startswith("d.ipynb:1:2: TL001")
    assert done.returncode == 1
    assert quick.run(*FIX, "--apply", "d.ipynb").returncode == 0
    assert quick.read("d.ipynb") == "{"


def test_the_cells_around_one_that_does_not_parse_are_checked(quick: Shell) -> None:
    line = "torch.autograd.set_detect_anomaly(True)\ntorch"
    broken = code("lr = = 0.1"), code("for x in y:")
    quick.write("b.ipynb", notebook(code("import torch"), *broken, code(line)))
    select = ("--select", "TL0,TL801")
    done = quick.run(*CHECK, *select, "--output-format", "concise", "--show-low", "b.ipynb")
    lines = [line.partition(" [")[0] for line in done.stdout.splitlines()[:2]]
    assert lines == ["b.ipynb:cell 2:1:6: TL001", "b.ipynb:cell 4:1:1: TL801"]
    assert "(likewise for 1 more)" in done.stdout
    assert quick.run(*FIX, *select, "--apply", "b.ipynb").returncode == 0
    after = _sources(quick.read("b.ipynb"))
    assert [after[1], after[3]] == [["lr = = 0.1"], ["torch"]]
    silent = code("# torchlint: ignore-file[TL001]\nimport torch")
    quick.write("b.ipynb", notebook(silent, *broken))
    assert "TL001" not in quick.run(*CHECK, *select, "--show-low", "b.ipynb").stdout


def test_code_that_awaits_is_fixed(quick: Shell) -> None:
    text = notebook(
        code("import torch\nawait asyncio.sleep(1)\ntorch.autograd.set_detect_anomaly(True)\ntorch")
    )
    quick.write("a.ipynb", text)
    assert quick.run(*FIX, "--apply", "a.ipynb").returncode == 0
    assert _sources(quick.read("a.ipynb")) == [
        ["import torch\n", "await asyncio.sleep(1)\n", "torch"]
    ]


def test_a_fix_that_fits_no_cell_is_not_offered(quick: Shell) -> None:
    quick.write(
        "a.ipynb",
        notebook(
            code("import torch\nx = torch.ones(3)  \n!ls\n"),
            code("%time torch.autograd.set_detect_anomaly(True)"),
        ),
    )
    (found,) = json.loads(quick.run(*CHECK, "--output-format", "json", "a.ipynb").stdout)
    assert (found["code"], found["cell"], found["location"]["column"]) == ("TL801", 2, 7)
    assert quick.run(*FIX, "--apply", "a.ipynb").returncode == 0


def test_a_notebook_is_no_script_for_torchrun(quick: Shell) -> None:
    quick.write(
        "a.ipynb",
        notebook(
            code(
                "import torch\nfrom torch import nn\nfrom mine import loader\n"
                "net = nn.DataParallel(nn.Linear(3, 3).cuda())\n"
                "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
                "for x, y in loader:\n"
                "    loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())\n"
                "    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()"
            )
        ),
    )
    done = quick.run(*CHECK, "--select", "TL701", "--output-format", "json", "a.ipynb")
    assert json.loads(done.stdout) == []


def test_an_audit_names_cells(quick: Shell) -> None:
    done = quick.run("audit", "a.ipynb")
    assert done.returncode == 0
    assert "\n    7:2  no debugging tools left on: " in done.stdout
    rows = json.loads(quick.run("audit", "--output-format", "json", "a.ipynb").stdout)["rows"]
    (row,) = [row for row in rows if "TL801" in row["rules"]]
    assert (row["cell"], row["line"]) == (7, 2)


@pytest.mark.parametrize("command", ["verify", "tune"])
def test_what_runs_scripts_refuses_notebooks(quick: Shell, command: str) -> None:
    done = quick.run(command, "a.ipynb")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: {command} runs scripts, and a.ipynb is a notebook: "
        "`jupyter nbconvert --to script a.ipynb` makes a script of it\n"
    )


def test_statistics_and_files(quick: Shell) -> None:
    quick.write(".ipynb_checkpoints/a-checkpoint.ipynb", TRAINING)
    assert quick.run(*CHECK, "--show-files").stdout == "a.ipynb\n"
    assert "TL801" in quick.run(*CHECK, "--statistics").stdout
