"""What rules report of a file because of the other modules of its program."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_program import found, project

from torchlint.engine import check_paths

NETWORK = """\
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())

    def forward(self, x):
        return self.layers(x)
"""
LOADED = """\
import torch
from network import Net

net = Net()
net.load_state_dict(torch.load("net.pt"))
for batch in torch.utils.data.DataLoader(range(8)):
    net(batch).sum().backward()
"""


@pytest.mark.parametrize(
    ("train", "rows"), [(LOADED, []), (LOADED.replace("net.load_state_dict", "print"), [7])]
)
def test_another_module_loads_weights_into_a_class(
    tmp_path: Path, train: str, rows: list[int]
) -> None:
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "network.py").write_text(NETWORK)
    (tmp_path / "train.py").write_text(train)
    results = check_paths([tmp_path / "network.py"], project(select=("TL401",)))
    assert [row for _, row, _ in found(results)] == rows


def test_an_import_that_a_star_binds_a_second_time(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "model.py").write_text(
        "import torch\nfrom torch.autograd import Variable\n\n\n"
        "class Net(torch.nn.Module):\n"
        "    def start(self):\n        return Variable(torch.zeros(1, 8))\n"
    )
    (tmp_path / "train.py").write_text(
        "import torch\nfrom model import *\n\nnet = Net()\n"
        "optimizer = torch.optim.SGD(net.parameters(), 0.1)\n"
        "for step in range(100):\n"
        "    loss = net(Variable(torch.ones(1, 8)), net.start()).mean()\n"
        "    loss.backward()\n    optimizer.step()\n    print(loss.data[0])\n"
    )
    results = list(check_paths([tmp_path / "train.py"], project(select=("TL408",))))
    assert 10 in [row for _, row, _ in found(results)]
    assert not [said for each in results for said in each.warnings]


TRAINER = """\
import torch


class Trainer:
    def __init__(self, model):
        self.model = model.cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def train(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.model(x.cuda()), y.cuda()).backward()
            self.optimizer.step()
"""
STARTED = """\
from torch.utils.data import DataLoader
from torchvision.datasets import CIFAR10
from torchvision.models import resnet18
from trainer import Trainer

if __name__ == "__main__":
    model = resnet18()
    trainer = Trainer(model)
    trainer.train(DataLoader(CIFAR10("data"), batch_size=64))
"""


def test_advice_for_a_program_stands_where_it_makes_its_network(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "trainer.py").write_text(TRAINER)
    (tmp_path / "main.py").write_text(STARTED)
    (tmp_path / "predict.py").write_text(STARTED.replace(".train(", ".model("))
    results = check_paths(sorted(tmp_path.glob("*.py")), project(select=("TL305",)))
    assert found(results) == [("main.py", 7, "TL305")]
