"""A program of three modules, in which each file has findings that only the others explain."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from torchlint.engine import FileResult, Project
from torchlint.registry import load_registry

__all__ = ["DATA", "FILES", "HELPERS", "TRAIN", "found", "project", "write"]

DATA: Final = """\
import torch
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.ones(4), 1.0


def make_loader():
    return DataLoader(Pairs(), batch_size=4, pin_memory=True)
"""
HELPERS: Final = """\
import torch


def noisy(batch):
    return batch + torch.zeros(4).to("cuda")
"""
TRAIN: Final = """\
import torch
from data import make_loader
from helpers import noisy

model = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch, label in make_loader():
    batch = noisy(batch.to("cuda"))
    loss = (model(batch) - label.to("cuda")).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FILES: Final = {"data.py": DATA, "helpers.py": HELPERS, "train.py": TRAIN, "setup.py": ""}
"""TL203 in `helpers.py`, TL204 in `train.py`: neither without the other modules."""


def write(folder: Path, *, without: str = "") -> list[Path]:
    """Write the program, perhaps without a file, and return its modules in order."""
    for name, text in FILES.items():
        if name != without:
            (folder / name).write_text(text)
    return [folder / name for name in ("data.py", "helpers.py", "train.py") if name != without]


def project(**overrides: object) -> Project:
    """Return settings that select the rules whose findings need several modules."""
    chosen = {"select": ("TL203", "TL204"), **overrides}
    return Project(load_registry(), chosen, isolated=True)


def found(results: Iterable[FileResult]) -> list[tuple[str, int, str]]:
    """Return file, row and code of all findings."""
    return [
        (Path(result.path).name, result.source.position(finding.span.start).row, finding.code)
        for result in results
        for finding in result.findings
        if result.source is not None
    ]
