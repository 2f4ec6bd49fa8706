"""How much findings about loaders matter: in training, and in a script without one."""

from __future__ import annotations

import pytest

import torchlint

_HEAD = """
import cv2, torch
from torch.utils.data import DataLoader, Dataset
from mine import net
class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, index):
        return torch.tensor(cv2.resize(cv2.imread(self.paths[index]), (8, 8)))
def main(paths):
    loader = DataLoader(Images(paths), batch_size=8{workers})
"""
_TRAINS = """
    for x in loader:
        net(x.cuda()).mean().backward()
"""
_EVALUATES = """
    with torch.no_grad():
        for x in loader:
            print(net(x.cuda()).mean())
"""
_GENERATES = """
    for x in loader:
        print(net.generate(x.cuda()))
"""
_TWICE = """
    with torch.no_grad():
        for epoch in range(9):
            for x in loader:
                print(net(x.cuda()).mean())
"""
_RUN = """
if __name__ == "__main__":
    main(["a"])
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (_TRAINS, {"TL101": "high", "TL102": "medium"}),
        (_EVALUATES, {"TL101": "low", "TL102": "low"}),
        (_GENERATES, {"TL101": "low", "TL102": "low"}),
        (_TWICE, {"TL101": "low", "TL102": "low"}),
        (_EVALUATES + _TRAINS, {"TL101": "high", "TL102": "medium"}),
    ],
)
def test_a_loader_without_workers(body: str, expected: dict[str, str]) -> None:
    text = _HEAD.format(workers="") + body + _RUN
    found = torchlint.check(text, select=["TL101", "TL102"])
    assert {each.code: each.impact for each in found} == expected


_OLD = """
    def old(self, model, loader, opt):
        for x in loader:
            opt.zero_grad()
            model(x.cuda()).mean().backward()
            opt.step()
"""


@pytest.mark.parametrize(
    ("more", "impacts"),
    [
        ("class Tool:" + _OLD, []),
        ("class Tool:" + _OLD + "print(Tool())", []),
        ("class Tool:" + _OLD + "print(getattr(Tool(), input()))", ["high"]),
        ("class Tool(Unseen):" + _OLD + "print(Tool())", ["high"]),
        ("class Tool:" + _OLD + "print(Tool().old)", ["high"]),
    ],
)
def test_code_that_nothing_uses_does_not_matter(more: str, impacts: list[str]) -> None:
    found = torchlint.check(_HEAD.format(workers="") + _RUN + more, select=["TL301"])
    assert [each.impact for each in found] == impacts


@pytest.mark.parametrize(("body", "impact"), [(_TRAINS, "medium"), (_EVALUATES, "low")])
def test_opencv_in_workers(body: str, impact: str) -> None:
    text = _HEAD.format(workers=", num_workers=4") + body + _RUN
    assert [each.impact for each in torchlint.check(text, select=["TL110"])] == [impact]


_ARRAYS = """
import numpy as np, torch
from mine import lines, net
def rows():
    return torch.FloatTensor([np.zeros(8) for line in lines])
{use}
"""


@pytest.mark.parametrize(
    ("use", "impact"),
    [
        ("x = rows()", "medium"),
        ("for epoch in range(9):\n    net(rows()).sum().backward()", "high"),
        ("", "high"),
    ],
)
def test_a_list_of_arrays_that_is_converted_once_matters_less(use: str, impact: str) -> None:
    found = torchlint.check(_ARRAYS.format(use=use), select=["TL106"])
    assert [each.impact for each in found] == [impact]
