"""What TL317 and TL318 say of torch.compile holds in the installed torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

EFFECTS: Final = {
    "torch.compile of a container": ("run(compiled(nn.Sequential(layer(), nn.ReLU())))", 1),
    "torch.compile of a layer": ("run(compiled(layer()))", 1),
    "torch.compile of a transformer layer": ("run(compiled(transformer()), rows)", 1),
    "a container": ("run(in_place(nn.Sequential(layer(), nn.ReLU())))", 0),
    "a layer": ("run(in_place(layer()))", 0),
    "a transformer layer": ("run(in_place(transformer()), rows)", 0),
    "attention": ("run(in_place(nn.MultiheadAttention(4, 2)), rows, rows, rows)", 0),
    "an own network": ("run(in_place(Net()))", 1),
    "an own network around a container": ("run(in_place(Around()))", 1),
    "a container of own networks": ("run(in_place(nn.Sequential(Net(), layer(), Net())))", 2),
    "a dropped result": ("net = Net(); compiled(net); run(net)", 0),
    "another method of the result": ("run(compiled(Net()).loss)", 0),
    "another method that is compiled": ("net = Net(); run(compiled(net.loss))", 1),
    "another method, compiled in place": ("run(in_place(Net()).loss)", 1),
    "forward, compiled in place": ("run(in_place(Net()).forward)", 0),
    "forward of the result": ("run(compiled(Net()).forward)", 1),
    "a wrapped container": ("run(in_place(DDP(nn.Sequential(layer()))))", 0),
    "around a wrapped container": ("run(compiled(DDP(nn.Sequential(layer()))))", 0),
    "around a wrapped layer": ("run(compiled(DDP(layer())))", 0),
    "a compiled container, wrapped": ("run(DDP(compiled(nn.Sequential(layer()))))", 1),
    "around a wrapped own network": ("run(compiled(DDP(Net())))", 1),
    "a wrapped own network": ("run(in_place(DDP(Net())))", 1),
    "an own network, wrapped before": ("net = Net(); ddp = DDP(net); in_place(net); run(ddp)", 1),
    "around DataParallel": ("run(compiled(nn.DataParallel(nn.Sequential(layer()))))", 1),
}
"""What runs twice, and how many graphs torch makes of it."""

STATES: Final = {
    "a counter": ("self.n = 0", "self.n += 1", 8),
    "a counter that is used": ("self.n = 0", "self.n += 1; x = x * self.n", 8),
    "a counter by assignment": ("self.n = 0", "self.n = self.n + 1", 8),
    "a counter of samples": ("self.n = 0", "self.n += x.shape[0]", 8),
    "a counter in training mode": ("self.n = 0", "self.n += self.training", 8),
    "a list": ("self.kept = []", "self.kept.append(x.detach())", 8),
    "a list by assignment": ("self.kept = []", "self.kept = self.kept + [1]", 8),
    "a list by +=": ("self.kept = []", "self.kept += [x.detach()]", 8),
    "a list that is extended": ("self.kept = []", "self.kept.extend([1, 2])", 8),
    "a global counter": ("", "count()", 8),
    "a global list": ("", "KEPT.append(1)", 8),
    "a number that the loop sets": ("self.scale = 0", "x = x * self.scale", 8),
    "a dropout rate that the loop sets": ("self.drop = nn.Dropout(0.5)", "x = self.drop(x)", 8),
    "a float in math": ("self.rate = 0.0", "x = x * math.exp(self.rate)", 8),
    "a float counter": ("self.f = 0.0", "self.f += 1.0; x = x * self.f", 2),
    "a float that the loop sets": ("self.rate = 0.0", "x = x * self.rate", 2),
    "a number that nothing uses": ("self.scale = 0", "", 1),
    "a buffer": ("self.register_buffer('n', torch.tensor(0), persistent=False)", "self.n += 1", 1),
    "a list that is emptied first": ("self.kept = []", "self.kept = []; self.kept.append(x)", 1),
    "the last output": ("self.last = None", "self.last = x.detach()", 1),
    "a list that the loop empties": ("self.emptied = []", "self.emptied.append(x)", 1),
}
"""What a network keeps, what its forward does with it, and how often 24 steps compile it."""

CALLS: Final = {
    "an odd last batch": ("run(lambda x: x * 2, [64, 64, 17, 64, 17, 64])", 2),
    "an odd last batch without dynamic shapes": (
        "run(lambda x: x * 2, [64, 64, 17, 64, 9, 64], dynamic=False)",
        3,
    ),
    "an odd last batch, declared dynamic": (
        "run(lambda x: x * 2, [64, 64, 17, 64, 17, 64], dynamic=True)",
        1,
    ),
    "another size in each step": ("run(lambda x: x * 2, range(2, 26))", 2),
    "another size in each step without dynamic shapes": (
        "run(lambda x: x * 2, range(2, 26), dynamic=False)",
        8,
    ),
}
"""How often functions are compiled whose input has these numbers of rows."""

BEFORE: Final = """
import json, logging, math, os, sys
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
logging.disable(logging.ERROR)
made = []
def backend(graph, inputs):
    made.append(graph)
    return graph.forward
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
    def forward(self, x):
        return self.layer(x).relu()
    def loss(self, x):
        return self(x).sum()
class Around(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    def forward(self, x):
        return self.layers(x)
layer = lambda: nn.Linear(4, 4)
transformer = lambda: nn.TransformerEncoderLayer(4, 2)
rows = torch.ones(2, 4, 4)
compiled = lambda it: torch.compile(it, backend=backend)
def in_place(net):
    net.compile(backend=backend)
    return net
KEPT, COUNT = [], 0
def count():
    global COUNT
    COUNT += 1
"""

EFFECT: Final = """
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
def run(it, *given):
    for _ in range(2):
        it(*(given or (torch.ones(4, 4),)))
"""

STATE: Final = """
def step(net, i):
    if hasattr(net, "drop"): net.drop.p = 0.01 * (i + 1)
    if hasattr(net, "scale"): net.scale = i
    if hasattr(net, "rate"): net.rate = 0.05 * (i + 1)
    if hasattr(net, "emptied"): net.emptied.clear()
def run(init, body):
    space = dict(globals())
    exec(
        "class Kept(Net):\\n    def __init__(self):\\n        super().__init__()\\n        "
        f"{init or 'pass'}\\n    def forward(self, x):\\n        {body or 'pass'}\\n"
        "        return self.layer(x)\\n",
        space,
    )
    net = space["Kept"]()
    fast = compiled(net)
    for i in range(24):
        step(net, i)
        fast(torch.ones(4, 4))
"""

CALL: Final = """
def run(function, sizes, **options):
    fast = torch.compile(function, backend=backend, **options)
    for size in sizes:
        fast(torch.ones(size, 4))
"""

AFTER: Final = """
for key, code in json.load(open(sys.argv[1])).items():
    torch.compiler.reset()
    made.clear()
    exec(code)
    print(json.dumps([key, len(made)]))
"""


def _counted(folder: Path, setup: str, samples: dict[str, str]) -> dict[str, int]:
    """Return how many graphs each sample makes, in one process."""
    given, script = folder / "samples.json", folder / "count.py"
    given.write_text(json.dumps(samples), encoding="utf-8")
    script.write_text(BEFORE + setup + AFTER, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(given)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(line) for line in done.stdout.splitlines())


def _make(factory: pytest.TempPathFactory, setup: str, samples: dict[str, str]) -> dict[str, int]:
    return _counted(factory.mktemp("counts"), setup, samples)


@pytest.fixture(scope="module")
def effects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    return _make(tmp_path_factory, EFFECT, {key: code for key, (code, _) in EFFECTS.items()})


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    samples = {key: f"run({init!r}, {body!r})" for key, (init, body, _) in STATES.items()}
    return _make(tmp_path_factory, STATE, samples)


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    return _make(tmp_path_factory, CALL, {key: code for key, (code, _) in CALLS.items()})


@pytest.mark.parametrize("key", EFFECTS)
def test_what_is_compiled(key: str, effects: dict[str, int]) -> None:
    assert effects[key] == EFFECTS[key][-1]


@pytest.mark.parametrize("key", STATES)
def test_how_often_a_network_that_changes_is_compiled(key: str, states: dict[str, int]) -> None:
    assert states[key] == STATES[key][-1]


@pytest.mark.parametrize("key", CALLS)
def test_how_often_sizes_are_compiled(key: str, calls: dict[str, int]) -> None:
    assert calls[key] == CALLS[key][-1]
