"""Whole scripts after TL701's fix: evaluations and checkpoints of one process and of two."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torchrun_scripts
from scriptruns import ScriptServer
from torchrun import fixed, run_in_forks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="scripts run in forks")

SCRIPTS = {name.lower(): getattr(torchrun_scripts, name) for name in torchrun_scripts.__all__}
NUMBERS_IN_AN_EPOCH = 2
EPOCHS = 4
TOLERANCE = 1e-4


class Scripts:
    """A script as it was and as it is fixed, and what the unchanged one says."""

    def __init__(self, server: ScriptServer, name: str, folder: Path) -> None:
        self.server = server
        self.name = name
        self.source = SCRIPTS[name].encode()
        self.fixed = fixed(self.source)
        self.folder = folder
        self.whole = run_in_forks(server, folder / "whole", self.source, f"--epochs={EPOCHS}")

    def half(self, processes: int) -> Path:
        """Train half of the epochs by the fixed script, and give the folder it wrote to."""
        folder = self.folder / f"half_{processes}"
        if not folder.exists():
            done = run_in_forks(
                self.server, folder, self.fixed, f"--epochs={EPOCHS // 2}", processes=processes
            )
            begun = self.whole.losses[: len(done.losses)]
            if processes:
                same(done.losses, begun)
            else:
                assert done.losses == begun
        return folder


def same(found: list[float], wanted: list[float]) -> None:
    assert found == pytest.approx(wanted, rel=TOLERANCE)


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptServer]:
    with ScriptServer() as started:
        yield started


@pytest.fixture(scope="module", params=list(SCRIPTS))
def scripts(
    request: pytest.FixtureRequest, server: ScriptServer, tmp_path_factory: pytest.TempPathFactory
) -> Scripts:
    return Scripts(server, request.param, tmp_path_factory.mktemp(request.param))


def goes_on(scripts: Scripts, folder: Path, source: bytes, half: Path, processes: int) -> None:
    """Resume from what another run stored, and come to what the original came to."""
    shutil.copytree(half, folder)
    arguments = (f"--epochs={EPOCHS}", "--resume")
    done = run_in_forks(scripts.server, folder, source, *arguments, processes=processes)
    left = len(done.losses) // NUMBERS_IN_AN_EPOCH
    assert f"start: {EPOCHS - left}" in done.output
    assert 0 < left < EPOCHS
    same(done.losses, scripts.whole.losses[-len(done.losses) :])


def test_the_original_goes_on_from_what_two_processes_stored(
    scripts: Scripts, tmp_path: Path
) -> None:
    goes_on(scripts, tmp_path / "original", scripts.source, scripts.half(2), 0)


def test_plain_python_says_the_same_and_two_processes_go_on_from_it(
    scripts: Scripts, tmp_path: Path
) -> None:
    half = scripts.half(0)
    if scripts.name == "cifar":
        goes_on(scripts, tmp_path / "two", scripts.fixed, half, 2)
