"""What `verify` and `tune` are asked to run."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from harness.scripts import run_by, write

from torchlint.cli.commandline import Started, started
from torchlint.harness.plan import Launcher

TRAIN = Path("train.py")
MODULE = Path("pkg/train.py")
TWO = Launcher(2)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with a script and a package."""
    (tmp_path / "pkg").mkdir()
    for name in ("train.py", "pkg/__init__.py", "pkg/__main__.py", "pkg/train.py"):
        (tmp_path / name).write_text("raise ValueError('imported')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


LINES = {
    "train.py --lr 1": Started(TRAIN, ("--lr", "1")),
    "python train.py --lr 1": Started(TRAIN, ("--lr", "1")),
    "python3.12 -u -X dev train.py -m x": Started(TRAIN, ("-m", "x")),
    "/usr/bin/python -m pkg.train --lr 1": Started(MODULE, ("--lr", "1"), "pkg.train"),
    "python -m pkg": Started(Path("pkg/__main__.py"), (), "pkg.__main__"),
    "torchrun train.py": Started(TRAIN, launcher=Launcher(1)),
    "torchrun --standalone --nproc_per_node=2 train.py a": Started(TRAIN, ("a",), launcher=TWO),
    "torchrun --master-port 29501 --nproc-per-node 2 -m pkg.train": Started(
        MODULE, (), "pkg.train", TWO
    ),
    "python -m torch.distributed.run --nproc-per-node 2 train.py": Started(TRAIN, launcher=TWO),
    "torchrun --nnodes 2 --nproc-per-node 2 --rdzv-endpoint h:1 train.py": Started(
        TRAIN, launcher=Launcher(2, 2, "h:1")
    ),
    "accelerate launch train.py --lr 1": Started(TRAIN, ("--lr", "1")),
    "accelerate launch --multi_gpu --num_processes 2 --mixed_precision bf16 train.py": Started(
        TRAIN, launcher=TWO, precision="bf16"
    ),
    "accelerate launch --num_processes=1 -m pkg.train": Started(MODULE, (), "pkg.train"),
}


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_as_people_type_it(project: Path, line: str) -> None:
    first, *rest = line.split()
    assert started("verify", first, rest, None) == LINES[line]


def test_a_module_takes_all_words_as_its_arguments(project: Path) -> None:
    found = started("verify", "--lr", ["1"], "pkg.train")
    assert found == Started(MODULE, ("--lr", "1"), "pkg.train")


WRONG = {
    "gone.py": "File 'gone.py' does not exist",
    "python gone.py": "File 'gone.py' does not exist",
    "python -m pkg.gone": "`-m pkg.gone`: there is no such module to run",
    "python -m train.py": "`-m train.py`: there is no such module to run",
    "python": "the command line names no script",
    "accelerate test": "File 'accelerate' does not exist",
    "accelerate launch --use_fsdp train.py": "--use-fsdp cannot be measured",
    "accelerate launch --num_machines 2 train.py": "several machines need",
    "accelerate launch --num_processes all train.py": "must be a number",
    "torchrun --nproc-per-node=gpu train.py": "must be numbers here",
    "torchrun --nnodes 2 train.py": "several hosts need --rdzv-endpoint",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_command_line_that_cannot_be_run_says_why(project: Path, line: str) -> None:
    first, *rest = line.split()
    with pytest.raises(click.UsageError) as error:
        started("verify", first, rest, None)
    assert WRONG[line] in error.value.format_message()


def test_without_script_and_module_one_is_asked_for() -> None:
    with pytest.raises(click.UsageError, match="missing argument 'SCRIPT', or `-m MODULE`"):
        started("verify", None, [], None)


TEXT = """
    import os, sys
    from . import rate
    seen = (__name__, __package__, __spec__.name, sys.path[0], sys.argv[1:])
    wanted = ("__main__", "pkg", "pkg.train", os.getcwd(), ["--lr", "1"])
    if seen != wanted or rate.RATE != 2:
        raise ValueError(seen)
    """


def test_a_module_runs_as_with_python_m(project: Path) -> None:
    write(project, "", "pkg/__init__.py")
    rate = write(project, "RATE = 1\n", "pkg/rate.py")
    script = write(project, TEXT, "pkg/train.py")
    trace = run_by(
        None, script, module="pkg.train", args=("--lr", "1"), texts={str(rate): "RATE = 2\n"}
    )
    assert trace.failure is None
    plain = run_by(None, script, args=("--lr", "1"), folder=project / "again")
    assert plain.failure is not None
