"""The network: a class with layers for its task, and a forward pass."""

from __future__ import annotations

from typing import Final

from trainings.attention import write_attention
from trainings.writer import Task, Writer, inner

__all__ = ["write_network"]

_NETWORK: Final = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
{layers}

    def forward(self, x):
{forward}


model = {made}
{wrapped}"""

_WRAPPED: Final = """\
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = DistributedDataParallel(model)
"""

_WIDE: Final = (
    "self.wide = nn.Sequential(nn.Linear(8, 512), nn.Linear(512, 512), nn.Linear(512, 8))"
)
"""Layers with so many weights that a fused optimizer is worth it."""

_PARTS: Final = """\
parts = torch.empty(0, 8)
for row in x.split(2):
    parts = torch.cat([parts, self.body(row)])
x = parts"""


def write_network(writer: Writer, task: Task) -> str:
    """Write the class of a network and make one."""
    layers, forward = {"rows": _rows, "images": _images, "tokens": _tokens}[task.form](writer)
    if writer.pick((True, ""), (False, "")):
        layers.append("self.drop = nn.Dropout(0.2)")
        forward.append("x = self.drop(x)")
    forward += writer.some(
        ("shift = torch.ones(x.size(0), 8).to(x.device)\nx = x + shift", "TL203"),
        ("x = x * torch.sigmoid(x)", "TL311"),
        ("x = torch.relu(x)", ""),
    )
    if writer.focus == "TL501":
        layers.append(_WIDE)
        forward.append("x = x + self.wide(x)")
    layers.append(f"self.out = nn.Linear(8, {task.classes or 1})")
    forward.append("return self.out(x)" if task.classes else "return self.out(x).squeeze(1)")
    made = writer.pick(("Net().to(device)", ""), ("Net()\nmodel.to(device)", ""))
    wrapped = _WRAPPED if writer.focus == "TL704" else ""
    parts = {"layers": inner(layers, 2), "forward": inner(forward, 2)}
    return _NETWORK.format(**parts, made=made, wrapped=wrapped)


def _rows(writer: Writer) -> tuple[list[str], list[str]]:
    norm = writer.pick(("nn.LayerNorm(8), ", ""), ("", "TL405"), ("nn.BatchNorm1d(8), ", ""))
    layers = [f"self.body = nn.Sequential(nn.Linear(6, 8), {norm}nn.ReLU())"]
    forward = [
        _PARTS if not norm and writer.maybe("parts", "TL405", "TL502") else "x = self.body(x)"
    ]
    if writer.maybe("more", "TL404", "TL502 TL704"):
        layers.append("self.more = nn.Sequential(nn.Linear(8, 8), nn.Tanh())")
        forward.append("x = checkpoint(self.more, x)")
    return layers, forward


def _images(writer: Writer) -> tuple[list[str], list[str]]:
    norm = writer.maybe("nn.BatchNorm2d(4), ")
    flat = writer.pick(
        ("torch.flatten(self.conv(x), 1)", "TL307"),
        ("self.conv(x).reshape(x.size(0), -1)", "TL307"),
        ("self.conv(x).view(x.size(0), -1)", ""),
    )
    layers = [
        f"self.conv = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), {norm}nn.ReLU())",
        "self.flat = nn.Linear(4 * 36, 8)",
    ]
    return layers, [f"x = self.flat({flat})"]


def _tokens(writer: Writer) -> tuple[list[str], list[str]]:
    table, looked_up = writer.pick(
        (("nn.Embedding(9, 8)", "self.table(x)"), ""),
        (
            ("nn.Parameter(torch.randn(9, 8) * 0.1)", "F.one_hot(x, 9).float() @ self.table"),
            "TL406",
        ),
    )
    layers, forward = [f"self.table = {table}"], [f"x = {looked_up}"]
    recurrent = () if writer.focus == "TL314" else (("lstm", "TL203"),)
    mix = writer.pick(("none", ""), ("attention", "TL315"), ("by hand", "TL310"), *recurrent)
    if mix == "attention":
        layers.append("self.attention = nn.MultiheadAttention(8, 2, batch_first=True)")
        forward += ["mixed, _ = self.attention(x, x, x)", "x = x + mixed"]
    if mix == "by hand":
        made, used = write_attention(writer)
        layers += made
        forward += used
    if mix == "lstm":
        layers.append("self.lstm = nn.LSTM(8, 8, batch_first=True)")
        forward += [
            "state = torch.zeros(1, x.size(0), 8).to(x.device)",
            "cell = torch.zeros(1, x.size(0), 8).to(x.device)",
            "x, _ = self.lstm(x, (state, cell))",
        ]
    return layers, [*forward, "x = x.mean(dim=1)"]
