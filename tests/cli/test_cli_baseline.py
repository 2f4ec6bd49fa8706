from __future__ import annotations

import json

import pytest
from cli_shell import TRAIN, Shell

FILE = ("--baseline", "known.json")


def with_baseline(shell: Shell) -> None:
    """Put a script into the folder, and the baseline of what is found in it."""
    shell.write("src/a.py", TRAIN)
    done = shell.check(*FILE, "--write-baseline")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "Wrote 3 findings to known.json.\n"


def test_what_is_known_is_hidden_and_what_is_new_is_not(quick: Shell) -> None:
    with_baseline(quick)
    done = quick.check(*FILE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "3 findings hidden: known from known.json.\n"
    quick.write("src/a.py", "x = 1\n\n\n" + TRAIN.replace("batch)", "batch)  # a\n    g()"))
    assert quick.check(*FILE).returncode == 0
    quick.write("src/a.py", TRAIN + "slow()\n")
    quick.write("src/b.py", TRAIN)
    done = quick.check(*FILE, "--output-format", "concise")
    assert done.returncode == 1
    places = [line.split(" ")[0] for line in done.stdout.splitlines()[:4]]
    assert places == ["src/a.py:7:1:", "src/b.py:3:1:", "src/b.py:5:5:", "src/b.py:6:1:"]


def test_a_finding_that_is_gone_is_mentioned(quick: Shell) -> None:
    with_baseline(quick)
    quick.write("src/a.py", TRAIN.replace("slow", "fast"))
    done = quick.check(*FILE)
    assert done.returncode == 0
    assert done.stderr == "1 finding of known.json is gone: `--write-baseline` removes it.\n"
    done = quick.check(*FILE, "--verbose")
    assert "  src/a.py: XY201 slow()\n" in done.stderr
    assert quick.check(*FILE, "--quiet").stderr == ""
    assert quick.check(*FILE, "--write-baseline").stderr == "Wrote 2 findings to known.json.\n"
    assert quick.check(*FILE).stderr == ""


def test_only_what_a_run_looks_for_can_be_gone(quick: Shell) -> None:
    with_baseline(quick)
    quick.write("src/a.py", "x = 1\n")
    quick.write("b.py", "x = 1\n")
    assert quick.check(*FILE, "b.py").stderr == ""
    assert quick.run("check", "--select", "XY4", *FILE, "--no-cache").stderr.startswith("1 finding")
    assert quick.check(*FILE, "--per-file-ignores", "src/*:XY").stderr == ""
    quick.write("src/a.py", "import torch\nslow = (\n")
    assert "gone" not in quick.run("check", "--select", "XY,TL001", *FILE, "--no-cache").stderr
    (quick.folder / "src" / "a.py").unlink()
    assert quick.check(*FILE).stderr.startswith("3 findings of known.json are gone")


def test_a_baseline_of_a_part_keeps_the_rest(quick: Shell) -> None:
    with_baseline(quick)
    quick.write("b.py", TRAIN)
    assert quick.check(*FILE, "--write-baseline", "b.py").returncode == 0
    assert quick.check(*FILE).returncode == 0
    done = quick.run("check", "--select", "XY2", *FILE, "--write-baseline", "--no-cache")
    assert done.stderr == "Wrote 6 findings to known.json.\n"


def test_the_file_is_one_that_people_can_review(quick: Shell) -> None:
    with_baseline(quick)
    text = quick.read("known.json")
    assert json.loads(text) == {
        "tool": "torchlint",
        "version": 1,
        "findings": [
            {"path": "src/a.py", "code": "XY201", "statement": "slow()", "count": 1},
            {"path": "src/a.py", "code": "XY301", "statement": "risky(batch)", "count": 1},
            {"path": "src/a.py", "code": "XY401", "statement": "heavy()", "count": 1},
        ],
    }
    assert len(text.splitlines()) == 9


def test_the_configuration_may_name_it_wherever_torchlint_is_called(shell: Shell) -> None:
    shell.write("torchlint.toml", 'select = ["XY"]\nno-cache = true\nbaseline = "ci/known.json"\n')
    shell.write("src/a.py", TRAIN)
    shell.write("ci/.keep", "")
    assert shell.run("check", "--write-baseline").returncode == 0
    assert shell.run("check").returncode == 0
    inner = Shell(shell.folder / "src")
    assert inner.run("check").returncode == 0
    assert inner.run("check", "--isolated", "--select", "XY", "--no-cache").returncode == 1


def test_fix_leaves_alone_what_is_known(quick: Shell) -> None:
    with_baseline(quick)
    quick.write("src/a.py", TRAIN + "f(slow())\n")
    done = quick.fix(*FILE, "--apply")
    assert (done.returncode, done.stderr) == (0, "Made 1 fix in 1 file.\n")
    assert done.stdout == "3 findings hidden: known from known.json.\n"
    assert quick.read("src/a.py") == TRAIN + "f(fast())\n"
    assert quick.fix(*FILE).returncode == 0
    assert quick.fix().returncode == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "known.json does not exist: `--write-baseline` creates it"),
        ("", "known.json is not a baseline: not JSON"),
        ("\xff\xfe", "known.json is not a baseline: not JSON"),
        ("[" * 100_000, "known.json is not a baseline: not JSON"),
        ("[]", "known.json is not a baseline: `--write-baseline` did not write it"),
        (
            '{"tool": "torchlint", "version": 2}',
            "known.json is a baseline of version 2, and this torchlint reads version 1:"
            " `--write-baseline` writes it again",
        ),
        (
            '{"tool": "torchlint", "version": 1, "findings": {}}',
            "known.json is not a baseline: `findings` is not a list",
        ),
        (
            '{"tool": "torchlint", "version": 1, "findings": [{"path": "a.py"}]}',
            "known.json is not a baseline: `findings[0]` is not complete",
        ),
    ],
    ids=["gone", "empty", "bytes", "deep", "list", "version", "no list", "no code"],
)
def test_a_wrong_baseline_is_one_line(quick: Shell, text: str | None, said: str) -> None:
    quick.write("a.py", TRAIN)
    if text is not None:
        quick.write("known.json", text.encode("latin-1"))
    for command in (quick.check, quick.fix):
        done = command(*FILE)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {said}\n")
    assert quick.read("a.py") == TRAIN


def test_writing_takes_the_place_of_a_baseline_and_of_nothing_else(quick: Shell) -> None:
    quick.write("a.py", TRAIN)
    quick.write("known.json", '{"tool": "torchlint", "version": 2}')
    assert quick.check(*FILE, "--write-baseline").returncode == 0
    assert quick.check(*FILE).returncode == 0
    quick.write("known.json", '{"name": "mine"}')
    done = quick.check(*FILE, "--write-baseline")
    assert done.returncode == 2
    assert done.stderr == (
        "error: known.json is not a baseline, and `--write-baseline` would write over it\n"
    )
    assert quick.read("known.json") == '{"name": "mine"}'
    done = quick.check("--baseline", "no/such.json", "--write-baseline")
    assert (done.returncode, done.stderr) == (
        2,
        "error: no/such.json: cannot be written: No such file or directory\n",
    )
    done = quick.check("--write-baseline")
    assert done.stderr.startswith("error: `--write-baseline` needs `--baseline FILE`")
    done = quick.check("-", *FILE, "--write-baseline")
    assert done.stderr.startswith("error: `--write-baseline` writes to files")
