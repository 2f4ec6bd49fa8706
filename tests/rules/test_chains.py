"""Values that come out of themselves end no analysis."""

from __future__ import annotations

from pathlib import Path

from torchlint.engine import Project, check_paths
from torchlint.registry import load_registry

CHECKPOINTS = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def forward(self, hidden):
        for block in self.blocks:
            hidden = checkpoint(block, hidden).relu()
        return hidden
"""


def test_a_checkpoint_in_a_loop_gets_what_it_gave(tmp_path: Path) -> None:
    script = tmp_path / "net.py"
    script.write_text(CHECKPOINTS)
    project = Project(load_registry(), {"select": ("TL404",)}, isolated=True)
    (result,) = check_paths([script], project)
    assert result.is_whole
    assert [finding.code for finding in result.findings] == ["TL404"]
