"""Running a script by plain python and by torchrun, before and after the fix of TL701."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scriptruns import Job, ScriptServer

from torchlint.config import Settings
from torchlint.engine import fix_bytes
from torchlint.registry import load_registry

__all__ = ["Run", "fixed", "run", "run_in_forks"]

TORN_DOWN = "terminate called without an active exception"
"""What torch 2.13 says of an interpreter that ends while a thread of gloo lets go of a tensor.

On a busy machine that is one run in five, whoever wrote the script: it is run again.
"""
TRIES = 5


@dataclass(frozen=True)
class Run:
    """What a script said and wrote."""

    output: str
    errors: str
    files: tuple[str, ...]

    @property
    def losses(self) -> list[float]:
        found: list[float] = literal_eval(re.findall(r"^losses: (.*)$", self.output, re.M)[-1])
        return found

    @property
    def said(self) -> str:
        """The output without what the clock says."""
        return re.sub(r"\(\d+\.\d s\)", "", self.output)


def fixed(source: bytes) -> bytes:
    settings = Settings(select=("TL701",), unsafe_fixes=True)
    result = fix_bytes(source, "train.py", load_registry().select(settings), settings)
    assert result.is_whole
    assert [finding.code for finding in result.applied] == ["TL701"]
    again = fix_bytes(
        result.after.to_bytes(), "train.py", load_registry().select(settings), settings
    )
    assert not again.changed
    assert not again.left
    return result.after.to_bytes()


def run(folder: Path, source: bytes, *arguments: str, processes: int = 0) -> Run:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_bytes(source)
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *(launcher if processes else ()), "train.py", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment["PYTHONWARNINGS"] = "default::ResourceWarning"
    for _ in range(TRIES):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        if done.returncode == 0 or TORN_DOWN not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    return Run(done.stdout, done.stderr, _written(folder))


def run_in_forks(
    server: ScriptServer, folder: Path, source: bytes, *arguments: str, processes: int = 0
) -> Run:
    """Run a script as `run` does, without a new interpreter for each process."""
    folder.mkdir(exist_ok=True)
    script = folder / "train.py"
    script.write_bytes(source)
    environments = list(_ranks(processes)) if processes else [{}]
    jobs = [Job(str(script), str(folder), arguments, each) for each in environments]
    for _ in range(TRIES):
        ended = server.run(*jobs)
        if not any(done.returncode and TORN_DOWN in done.stderr for done in ended):
            break
    assert not any(done.returncode for done in ended), [done.stderr for done in ended]
    return Run(
        "".join(done.stdout for done in ended),
        "".join(done.stderr for done in ended),
        _written(folder),
    )


def _ranks(processes: int) -> Iterator[dict[str, str]]:
    """Yield the environment that torchrun gives to each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for rank in range(processes):
        yield {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(processes),
        }


def _written(folder: Path) -> tuple[str, ...]:
    """Return the files of a folder, without the script."""
    files = (
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.name != "train.py" and "__pycache__" not in path.parts
    )
    return tuple(sorted(files))
