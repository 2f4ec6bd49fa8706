"""The scripts of `gpu_proof.py`, with what is known of each before it is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from torchlint.finding import Safety

__all__ = [
    "HARD",
    "ITSELF",
    "KNOWN",
    "LOADING",
    "PRECISION",
    "SYNCS",
    "TURNS",
    "WAITS",
    "Case",
    "plain",
]

_TRAINING: Final = """
import time
import torch
from torch import nn
import torch.nn.functional as F
SETTINGS
device = torch.device("DEVICEINDEX")
torch.manual_seed(0)
side = SIDE
left, right = torch.randn(side, side, device=device), torch.randn(side, side, device=device)
net = NET.to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=LR)

def step():
    with torch.no_grad():
        for _ in range(KERNELS):
            torch.mm(left, right)
    optimizer.zero_grad()
    with AUTOCAST:
        loss = net(torch.randn(INPUT, device=device)).float().pow(2).mean()
    loss.backward()
    optimizer.step()
    READ

for at in range(STEPS):
    step()
"""
_PLAIN: Final = """
def wait():
    if device.type != "cpu":
        torch.accelerator.synchronize(device)

wait()
began = time.perf_counter()
for at in range(STEPS):
    step()
wait()
seconds = (time.perf_counter() - began) / STEPS
"""
TURNS: Final = """
import sys
from pathlib import Path
from statistics import median

turns, files = int(sys.argv[1]), sys.argv[2:]
found = {file: [] for file in files}
for turn in range(turns):
    for file in files:
        names = {}
        exec(compile(Path(file).read_text(), file, "exec"), names)
        found[file].append(names["seconds"])
print(*map(median, found.values()))
"""
"""Runs scripts that measure themselves in turns, and prints the seconds of a step of each."""
_MLP: Final = "nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))"
_NETS: Final = """
class Gelu(nn.Module):
    def forward(self, x):
        return HAND

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)
    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return ATTEND.transpose(1, 2).flatten(-2)
"""
_HAND: Final = "0.5 * x * (1.0 + torch.erf(x / 2.0 ** 0.5))"
_ATTEND: Final = "(((q @ k.transpose(-2, -1)) / 4.0).softmax(-1) @ v)"
_BLOCK: Final = (
    "nn.Sequential(nn.Linear(64, 64), Attention(), nn.Linear(64, 256), Gelu(), nn.Linear(256, 64))"
)


@dataclass(frozen=True)
class Case:
    """A script and its change: what replaces what in the text, and what the change promises."""

    name: str
    settings: dict[str, str]
    change: dict[str, str]
    safety: Safety = Safety.EXACT
    least_devices: int = 1

    def texts(self, device: str, *, small: bool) -> tuple[str, str]:
        """Return the script as it is and as changed."""
        before = _filled(self.settings, device, small=small)
        after = _filled({**self.settings, **self.change}, device, small=small)
        return before, after


def plain(text: str, steps: int) -> str:
    """Return a script that measures itself, without torchlint."""
    return text.replace("range(1000)", "range(10)") + _PLAIN.replace("STEPS", str(steps))


def _filled(settings: dict[str, str], device: str, *, small: bool) -> str:
    usual = {
        "SETTINGS": "",
        "NET": _MLP,
        "LR": "1e-3",
        "KERNELS": "20",
        "AUTOCAST": "torch.enable_grad()",
        "INPUT": "32, 64",
        "READ": "",
        "SIDE": "128" if small else "2048",
        "DEVICE": device,
        "INDEX": "",
        "HAND": _HAND,
        "ATTEND": _ATTEND,
    }
    text = _TRAINING
    for name, value in {**usual, **settings}.items():
        text = text.replace(name, value)
    return text.replace("STEPS", "1000")


_HOST: Final = "host = torch.randn(2048, 2048, pin_memory=torch.accelerator.is_available())"
_CHANGES: Final[tuple[tuple[str, dict[str, str], dict[str, str]], ...]] = (
    ("nothing", {}, {}),
    ("half the work", {}, {"KERNELS": "10"}),
    ("a fifth more work", {}, {"KERNELS": "24"}),
    ("no wait in a step", {"READ": "loss.item()"}, {"READ": ""}),
    (
        "a copy that does not block",
        {"SETTINGS": _HOST, "READ": "host.to(device)"},
        {"READ": "host.to(device, non_blocking=True)"},
    ),
)
KNOWN: Final = tuple(
    Case(f"{name}{on}", {**settings, **more}, change, least_devices=count)
    for on, more, count in (("", {}, 1), (", on the second device", {"INDEX": ":1"}, 2))
    for name, settings, change in _CHANGES
)
"""Changes whose true ratio a plain run of both scripts tells; equal settings follow each other."""

ITSELF: Final = (
    Case("a small script", {"KERNELS": "0"}, {}),
    Case("a middling script", {}, {}),
)
"""Scripts that are compared with themselves."""

SYNCS: Final = tuple(
    Case(f"two waits in a step{with_}", {"KERNELS": "1", "READ": _READ, **more}, {"READ": ""})
    for _READ in ("loss.item(); loss.tolist()",)
    for with_, more in (
        ("", {}),
        (
            ", warnings silenced",
            {"SETTINGS": "import warnings; warnings.filterwarnings('ignore')"},
        ),
    )
)
"""Scripts that wait twice in each step, and not at all after the change."""

_AUTOCASTS: Final = {
    "float32": {},
    "bfloat16 autocast": {"AUTOCAST": "torch.autocast(device.type, torch.bfloat16)"},
    "float16 autocast": {"AUTOCAST": "torch.autocast(device.type, torch.float16)"},
    "TF32": {"SETTINGS": "torch.backends.cuda.matmul.allow_tf32 = True"},
}
_FIXES: Final = {
    "erf GELU to F.gelu": ({"HAND": "F.gelu(x)"}, Safety.CLOSE, True),
    "attention to SDPA": (
        {"ATTEND": "F.scaled_dot_product_attention(q, k, v)"},
        Safety.CLOSE,
        True,
    ),
    "a doubled learning rate": ({"LR": "2e-3"}, Safety.EXACT, False),
}


def _in_precision(more: dict[str, str]) -> tuple[tuple[Case, bool], ...]:
    settings = {"KERNELS": "1", "NET": _BLOCK, "INPUT": "8, 16, 64", **more}
    settings["SETTINGS"] = settings.get("SETTINGS", "") + _NETS
    return tuple(
        (Case(name, settings, change, safety), right)
        for name, (change, safety, right) in _FIXES.items()
    )


PRECISION: Final = {
    precision: tuple(
        (replace(case, name=f"{case.name}, {precision}"), right)
        for case, right in _in_precision(more)
    )
    for precision, more in _AUTOCASTS.items()
}
"""Fixes with whether they are right: a wrong one must be DIFFERENT, a right one must not."""

WAITS: Final = {
    "a slow dataset": (0.004, 0),
    "a dataset behind the device": (0.0, 40),
}
"""Seconds that each item of a batch of eight takes, and products that a step adds."""
LOADING: Final = """
import time
import torch

class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 4096
    def __getitem__(self, index):
        if SECONDS:
            time.sleep(SECONDS)
        return torch.full((64,), index / 4096)

left = torch.randn(SIDE, SIDE, device="DEVICE")
layers = [torch.nn.Linear(256 if at else 64, 256) for at in range(8)]
net = torch.nn.Sequential(*layers).to("DEVICE")
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(Items(), batch_size=8, num_workers=0)
for epoch in range(20):
    for x in loader:
        for _ in range(KERNELS):
            torch.mm(left, left)
        optimizer.zero_grad()
        net(x.to("DEVICE")).pow(2).mean().backward()
        optimizer.step()
"""
_LOOP: Final = """
import torch
net = NET.to("DEVICE")
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for at in range(200):
    optimizer.zero_grad()
    net(INPUT).pow(2).mean().backward()
    optimizer.step()
"""


def _loop(net: str, shape: str, first: str = "") -> str:
    made = f'torch.randn({shape}, device="DEVICE")'
    text = _LOOP.replace("NET", net).replace("INPUT", made)
    return text.replace("for at in", f"{first}\nfor at in", 1)


_CONVOLUTION: Final = "torch.nn.Conv2d(3, 8, 3)"
_ENLARGED: Final = (
    f"torch.nn.Sequential({_CONVOLUTION}, torch.nn.Upsample(scale_factor=2.0, mode='bilinear'))"
)
_RATE: Final = ("lr=1e-3", "lr=0.001")
HARD: Final = {
    "a compiled optimizer step": (
        _loop(
            "torch.nn.Linear(64, 64)",
            "8, 64",
            "optimizer.step = torch.compile(optimizer.step, backend='eager')",
        ),
        _RATE,
        "",
    ),
    "a compiled network that meets other shapes": (
        _loop("torch.nn.Linear(64, 64)", "8 + at // 40, 64", "net = torch.compile(net)"),
        _RATE,
        "",
    ),
    "an autotuner of convolutions": (
        _loop(_CONVOLUTION, "8, 3, 32, 32", "torch.backends.cudnn.benchmark = True"),
        _RATE,
        "",
    ),
    "an operator without a deterministic kernel": (
        _loop(_ENLARGED, "8, 3, 16, 16"),
        _RATE,
        "",
    ),
    "a fix that runs out of memory": (
        _loop("torch.nn.Linear(64, 64)", "size, 64", "size = 64"),
        ("size = 64", "size = 1 << 44"),
        "memory",
    ),
    "a CUDA graph": (
        """
import torch
net = torch.nn.Linear(64, 64).to("DEVICE")
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
x = torch.randn(8, 64, device="DEVICE")
def step():
    optimizer.zero_grad(set_to_none=False)
    net(x).pow(2).mean().backward()
    optimizer.step()
if x.is_cuda:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for at in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for at in range(200):
        graph.replay()
else:
    for at in range(200):
        step()
""",
        ("range(200)", "range(100 * 2)"),
        "",
    ),
}
"""Scripts, a change, and words that the answer must hold."""
