"""What `verify` writes beside its report, and what `check` makes of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from harness.scripts import write

CALL = "from torchlint.cli import main; main()"
SCRIPT = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    criterion = nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=16)
    torch.autograd.set_detect_anomaly(True)
    for epoch in range(100):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(net(x), y)
            loss.backward()
            optimizer.step()
    """


def torchlint(folder: Path, *arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", before + CALL, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_without_jinja2_one_line_says_how_to_install_it(tmp_path: Path) -> None:
    write(tmp_path, "open('ran', 'w')\n")
    without = "import importlib.util as u; find = u.find_spec; " + (
        "u.find_spec = lambda name, *rest: None if name == 'jinja2' else find(name, *rest); "
    )
    done = torchlint(tmp_path, "verify", "train.py", "--html", "page.html", before=without)
    assert (done.returncode, done.stdout) == (2, "")
    assert "`--html` makes its page with jinja2, which " in done.stderr
    assert "pip install 'torchlint[verify]'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("gone/page.html", "`--html gone/page.html`: there is no folder gone"),
        ("train.py", "`--html train.py` would write over the script"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, file: str, line: str
) -> None:
    script = write(tmp_path, "raise ValueError\n")
    done = torchlint(tmp_path, "verify", "train.py", "--html", file)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {line}\n")
    assert script.read_text() == "raise ValueError\n"


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verified")
    write(folder, SCRIPT)
    done = torchlint(
        folder,
        *("verify", "train.py", "--isolated", "--select", "TL801", "--json", "--html", "page.html"),
        *("--steps", "8", "--warmup", "2", "--rounds", "2", "--save-trace", "new/traces"),
    )
    assert done.returncode in (0, 1), done.stderr
    assert "Wrote new/traces/original.json.gz and new/traces/fixed.json.gz" in done.stderr
    (folder / "report.json").write_text(done.stdout)
    return folder


def test_a_verification_writes_its_page_beside_its_json(verified: Path) -> None:
    page = (verified / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert all(f'aria-label="{name}"' in page for name in ("step times", "losses", "one step"))
    assert '<span class="removed">-torch.autograd.set_detect_anomaly(True)</span>' in page
    assert all(f"var(--{name})" in page for name in ("data", "forward", "backward", "optimizer"))


def test_its_json_ranks_the_findings_of_the_script(verified: Path) -> None:
    variant = json.loads((verified / "report.json").read_text())["variants"][0]
    done = torchlint(
        verified,
        *("check", "train.py", "--isolated", "--no-cache", "--select", "TL801,TL501"),
        *("--measured", "report.json", "--output-format", "concise"),
    )
    assert done.returncode == 1, done.stderr
    line = next(line for line in done.stdout.splitlines() if "TL801" in line)
    assert f"(measured {variant['speedup']['ratio']:.2f}x on cpu" in line


def test_its_traces_are_of_both_sides_and_rank_the_findings(verified: Path) -> None:
    for name in ("original", "fixed"):
        done = torchlint(
            verified,
            *("check", "train.py", "--isolated", "--no-cache", "--select", "TL801,TL108"),
            *("--trace", f"new/traces/{name}.json.gz", "--output-format", "concise"),
        )
        assert done.returncode == 1, done.stderr
        assert "TL108" in done.stdout.splitlines()[0]
        assert "(trace: host busy " in done.stdout.splitlines()[0]


def test_a_folder_for_traces_that_cannot_be_made_is_refused_at_once(tmp_path: Path) -> None:
    write(tmp_path, "raise ValueError\n")
    done = torchlint(tmp_path, "verify", "train.py", "--save-trace", "train.py/traces")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: train.py/traces: cannot be made: Not a directory\n"
