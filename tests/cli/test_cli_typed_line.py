"""The next command repeats how the script was started, and which fixes were chosen."""

from __future__ import annotations

import shlex

import pytest

from torchlint.cli.typedline import typed_again
from torchlint.cli.verify import verify


@pytest.mark.parametrize(
    ("typed", "again"),
    [
        ("train.py", "--apply train.py"),
        ("train.py -- --lr 0.1 --json", "--apply train.py -- --lr 0.1 --json"),
        (
            "--select TL1,TL2 --html page.html train.py --quick",
            "--apply --select TL1,TL2 train.py",
        ),
        ("--html=page.html --json -m package.train", "--apply -m package.train"),
        (
            "-- torchrun --nproc-per-node 2 train.py",
            "--apply -- torchrun --nproc-per-node 2 train.py",
        ),
        ("'my train.py'", "--apply 'my train.py'"),
    ],
)
def test_what_was_typed_is_repeated_with_other_options(typed: str, again: str) -> None:
    ctx = verify.make_context("verify", shlex.split(typed))
    words = typed_again(ctx, "--apply", without=("html", "as_json", "quick"))
    assert words == f"torchlint verify {again}"
