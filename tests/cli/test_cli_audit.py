"""The command `audit`."""

from __future__ import annotations

import json

from cli_shell import Shell

ANOMALY = "import torch\n\ntorch.autograd.set_detect_anomaly(True)\n"


def test_a_table_for_each_script(quick: Shell) -> None:
    quick.write("a.py", ANOMALY)
    quick.write("b.py", "import torch\n")
    done = quick.run("audit", "a.py", "b.py")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line for line in lines if line in ("a.py", "b.py")] == ["a.py", "b.py"]
    assert any(line.split()[:2] == ["3", "no"] for line in lines[: lines.index("b.py")])
    assert "Next: `torchlint fix --unsafe-fixes a.py`" in done.stdout


def test_only_the_states_that_were_asked_for(quick: Shell) -> None:
    quick.write("a.py", ANOMALY)
    done = quick.run("audit", "a.py", "--only", "missing")
    assert "missing (1)" in done.stdout
    assert "cannot tell (" not in done.stdout
    rows = json.loads(
        quick.run("audit", "a.py", "--only", "missing", "--output-format", "json").stdout
    )["rows"]
    assert [row["state"] for row in rows] == ["missing"]
    assert "did you mean `missing`?" in quick.run("audit", "a.py", "--only", "mising").stderr


def test_json(quick: Shell) -> None:
    quick.write("a.py", ANOMALY)
    done = quick.run("audit", "a.py", "--output-format", "json")
    found = json.loads(done.stdout)
    assert (found["version"], found["script"]) == (1, "a.py")
    assert [row["rules"] for row in found["rows"] if row["line"] == 3] == [["TL801"]]


def test_markdown(quick: Shell) -> None:
    quick.write("a.py", ANOMALY)
    done = quick.run("audit", "a.py", "--output-format", "markdown")
    assert done.stdout.startswith("# a.py\n\n## input pipeline\n\n| technique | state |")


def test_a_file_that_does_not_parse_is_one_line(quick: Shell) -> None:
    quick.write("a.py", "def f(:\n")
    quick.write("b.py", b"\xff\xfe")
    quick.write("c.py", "import torch\n")
    done = quick.run("audit", "a.py", "b.py", "c.py")
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith("error: a.py:1:7: cannot be parsed: ")
    assert second.startswith("error: b.py:1: cannot be parsed: ")
    assert done.stdout.startswith("c.py\n")


def test_a_file_that_is_not_there(quick: Shell) -> None:
    done = quick.run("audit", "gone.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "gone.py" in done.stderr


def test_a_broken_notebook_is_one_line(quick: Shell) -> None:
    quick.write("a.ipynb", "{}")
    done = quick.run("audit", "a.ipynb")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: a.ipynb:1: cannot be parsed: this notebook has no list of cells\n"
    )


def test_no_script(quick: Shell) -> None:
    assert quick.run("audit").returncode == 2


def test_settings_are_read_unless_isolated(quick: Shell) -> None:
    quick.write("pyproject.toml", '[tool.torchlint]\nignore = ["TL801"]\n')
    quick.write("a.py", ANOMALY)
    text = quick.run("audit", "a.py", "--only", "in-use", "--only", "not-applicable").stdout
    assert "your settings ignore TL801" in text + quick.run("audit", "a.py").stdout
    assert "your settings ignore" not in quick.run("audit", "--isolated", "a.py").stdout


def test_a_wrong_setting_is_one_line(quick: Shell) -> None:
    quick.write("torchlint.toml", 'ignore = ["TL999"]\n')
    quick.write("a.py", ANOMALY)
    done = quick.run("audit", "a.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "TL999" in done.stderr
