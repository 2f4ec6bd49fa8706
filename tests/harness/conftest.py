"""Sessions of this folder fork their runs from one process: to import torch takes seconds."""

from __future__ import annotations

import pytest
from harness.scripts import SharedServer

from torchlint.harness.runs import runner


@pytest.fixture(autouse=True)
def one_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "ForkServer", SharedServer)
