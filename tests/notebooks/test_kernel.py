"""The magics in a kernel of Jupyter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("ipykernel")

from jupyter_client.manager import KernelManager

FAST = "def train():\n    import torch\n    return torch.ones(1)\n"
SLOW = FAST.replace("    return", "    torch.autograd.set_detect_anomaly(True)\n    return")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Yield what runs a cell in the kernel and returns what it printed."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    manager = KernelManager(transport="ipc", ip=str(tmp_path / "kernel"))
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.blocking_client()
    client.start_channels()

    def printed(cell: str) -> str:
        said: list[str] = []
        reply = client.execute_interactive(
            cell, output_hook=lambda message: said.append(message["content"].get("text", ""))
        )
        assert reply["content"]["status"] == "ok"
        return "".join(said)

    try:
        client.wait_for_ready(timeout=60)
        yield printed
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_the_magics_check_run_and_fix_cells(run: Callable[[str], str]) -> None:
    assert run("%load_ext torchlint") == ""
    assert run(f"%%torchlint\n{SLOW}").startswith("line 4: TL801 [anomaly-detection] high: ")
    assert run("train.__name__") == ""
    assert run("%torchlint").startswith("cell 2, line 4: TL801 ")
    assert run(f"%%torchlint fix\n{SLOW}") == FAST
