"""The scripts of `gpu_proof.py`, with what is known of each before it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from torchlint.finding import Safety

__all__ = ["ITSELF", "KNOWN", "PRECISION", "SYNCS", "WAITS", "Case", "plain"]

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
print((time.perf_counter() - began) / STEPS)
"""
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


_SECOND: Final = {"INDEX": ":1"}
_CHANGES: Final = {
    "half the work": {"KERNELS": "10"},
    "a fifth more work": {"KERNELS": "24"},
    "no wait in a step": {"READ": ""},
}
KNOWN: Final = tuple(
    Case(
        f"{name}{on}",
        {"READ": "loss.item()" if "READ" in change else "", **settings},
        change,
        least_devices=count,
    )
    for on, settings, count in (("", {}, 1), (", on the second device", _SECOND, 2))
    for name, change in _CHANGES.items()
)
"""Changes whose true ratio a plain run of both scripts tells."""

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


def _precision() -> tuple[tuple[Case, bool], ...]:
    found = []
    for precision, more in _AUTOCASTS.items():
        settings = {"KERNELS": "1", "NET": _BLOCK, "INPUT": "8, 16, 64", **more}
        settings["SETTINGS"] = settings.get("SETTINGS", "") + _NETS
        for name, (change, safety, right) in _FIXES.items():
            found.append((Case(f"{name}, {precision}", settings, change, safety), right))
    return tuple(found)


PRECISION: Final = _precision()
"""Fixes with whether they are right: a wrong one must be DIFFERENT, a right one must not."""

WAITS: Final = {
    "a slow dataset": 0.004,
    "a dataset that costs nothing": 0.0,
}
"""Seconds that each item of a batch of eight takes."""
