"""`verify` on whole scripts, from the command line to what it wrote."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from harness.scripts import PLAIN, write
from harness.wrong_pack import WRONG, install
from processes import interruptible, stopped

CALL = "from torchlint.cli import main; main()"

TRAINING = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    def main():
        torch.manual_seed(0)
        x = torch.randn(64, 4)
        loader = DataLoader(TensorDataset(x, x.sum(1)), batch_size=4, shuffle=True)
        first, second = nn.Linear(4, 8), nn.Linear(8, 1)
        net = nn.ModuleList([first, nn.Dropout(0.5), second, nn.BatchNorm1d(8)])
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net.train()
        for epoch in range(100):
            for x, y in loader:
                optimizer.zero_grad()
                hidden = first(x)
                hidden = net[1](net[3](hidden))
                loss = (second(hidden).squeeze(1) - y.float()).pow(2).mean()
                loss.backward()
                optimizer.step()

    main()
    """

AUGMENTED = """
    import time

    import torch
    from torch.utils.data import DataLoader, Dataset

    class Augmented(Dataset):
        def __len__(self):
            return 1024

        def __getitem__(self, index):
            time.sleep(0.008)
            return torch.full((4,), index / 1024) + 0.1 * torch.randn(4)

    def main():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loader = DataLoader(Augmented(), batch_size=8, shuffle=True)
        open("log.txt", "a").close()
        for epoch in range(9):
            for batch in loader:
                optimizer.zero_grad()
                loss = net(batch).pow(2).mean()
                loss.backward()
                optimizer.step()

    if __name__ == "__main__":
        main()
    """


def verify(folder: Path, *arguments: str, path: Path | None = None) -> tuple[int, Any]:
    done = subprocess.run(
        [sys.executable, "-c", CALL, "verify", "train.py", "--isolated", "--json", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(path or "")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_every_wrong_fix_of_a_pack_that_calls_itself_exact_is_found_out(tmp_path: Path) -> None:
    codes = install(tmp_path / "site")
    project = tmp_path / "project"
    project.mkdir()
    text = write(project, TRAINING).read_text()
    arguments = ("--select", "WR", "--steps", "30", "--warmup", "2", "--apply")
    code, report = verify(project, *arguments, path=tmp_path / "site")
    verdicts = {tuple(it["codes"]): (it["verdict"], it["decision"]) for it in report["variants"]}
    alone = [(code,) for code in codes]
    # The last rule's edit overlaps that of the first, which goes before it.
    assert verdicts == dict.fromkeys([*alone, codes[:-1]], ("DIFFERENT", "revert"))
    assert len(WRONG) == len(codes) == 13
    assert code == 1
    assert report["changed"] == []
    assert [path.name for path in project.iterdir()] == ["train.py"]
    assert (project / "train.py").read_text() == text


def test_an_unsafe_fix_that_is_good_on_the_originals_batches_is_kept_and_written(
    tmp_path: Path,
) -> None:
    script = write(tmp_path, AUGMENTED)
    size = ("--steps", "20", "--warmup", "3", "--rounds", "2")
    code, report = verify(tmp_path, "--select", "TL101", "--apply", *size)
    alone = report["variants"][0]
    assert (alone["kind"], alone["safety"]) == ("rule", "unsafe")
    assert (alone["verdict"], alone["decision"]) == ("FASTER", "keep")
    assert (alone["numbers"], alone["compared"]["method"]) == ("equal", "aligned")
    assert alone["because"]
    assert alone["wait_share"]["before"] > 0.5
    assert report["diverted"] == ["log.txt"]
    assert code == 0
    assert "num_workers=" in script.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_quick_answer_begins_with_all_fixes_together(tmp_path: Path) -> None:
    write(tmp_path, AUGMENTED)
    _, report = verify(tmp_path, "--select", "TL101", "--quick", "--rounds", "2")
    kinds = [variant["kind"] for variant in report["variants"]]
    assert kinds[0] == "all"
    assert set(kinds[1:]) <= {"rule"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_verification_leaves_no_process_and_no_file(
    tmp_path: Path, number: int, code: int
) -> None:
    write(tmp_path, AUGMENTED.replace("shuffle=True", "num_workers=2"))
    marked = {**os.environ, "TMPDIR": str(tmp_path / "temporary"), "VERIFIED": str(tmp_path)}
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", CALL, "verify", "train.py", "--isolated", "--select", "TL501"],
        cwd=tmp_path,
        env=marked,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=interruptible,
    )
    with stopped(process, 200):
        until = time.monotonic() + 120
        while len(_marked(tmp_path)) < 4 and time.monotonic() < until:
            time.sleep(0.1)
        assert len(_marked(tmp_path)) >= 4
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert b"Traceback" not in errors
    assert _marked(tmp_path) == []
    assert list((tmp_path / "temporary").glob("torchlint-*")) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["temporary", "train.py"]


def _marked(folder: Path) -> list[int]:
    """Return the processes that carry our mark in their environment."""
    mark = f"VERIFIED={folder}".encode()
    processes = Path("/proc").glob("[0-9]*")
    return [int(process.name) for process in processes if mark in _environment(process)]


def _environment(process: Path) -> list[bytes]:
    """Return the environment of a process, nothing for one that is gone."""
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def test_where_no_version_of_torch_is_stated_the_installed_one_counts(tmp_path: Path) -> None:
    text = PLAIN.replace("optim.SGD(net.parameters(), lr=0.1)", "optim.Adam(net.parameters())")
    deep = "nn.Sequential(nn.Linear(4, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.Linear(2048, 1))"
    write(tmp_path, text.replace("nn.Linear(4, 1)", deep))
    size = ("--steps", "8", "--warmup", "2", "--rounds", "2")
    _, report = verify(tmp_path, "--select", "TL501", *size)
    assert report["variants"][0]["safety"] == "close"
    assert "needs torch" not in str(report["variants"][0]["because"])
