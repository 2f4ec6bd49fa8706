"""TL312: a width that tensor cores have to pad."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Record, Role, Rule, Script, regex

_SMALLEST: Final = 64
_VOCABULARY: Final = 1000
_STEP: Final = 8
_NARROW: Final = regex(r"autocast|b?float16|\.half\b|\b(?:bf16|fp16|amp)\b|tf32|matmul_precision")
_MAKERS: Final = {
    "Linear": "out_features", "Bilinear": "out_features", "LazyLinear": "out_features",
    "Conv1d": "out_channels", "Conv2d": "out_channels", "Conv3d": "out_channels",
    "ConvTranspose1d": "out_channels", "ConvTranspose2d": "out_channels",
    "ConvTranspose3d": "out_channels", "Embedding": "embedding_dim",
}  # fmt: skip
_TAKERS: Final = {
    "Linear": "in_features", "Conv1d": "in_channels", "Conv2d": "in_channels",
    "Conv3d": "in_channels", "ConvTranspose1d": "in_channels", "ConvTranspose2d": "in_channels",
    "ConvTranspose3d": "in_channels", "LSTM": "input_size", "GRU": "input_size",
    "RNN": "input_size", "LSTMCell": "input_size", "GRUCell": "input_size",
    "RNNCell": "input_size", "MultiheadAttention": "embed_dim",
}  # fmt: skip
_RECURRENT: Final = ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell")
_LAYERS: Final = tuple(f"torch.nn.{name}" for name in {**_MAKERS, **_TAKERS})


class _Width(Record):
    """A number that is written down as the width of a layer."""

    number: int
    node: cst.BaseExpression
    layer: cst.Call


class UnalignedDimension(Rule):
    """
    ## What it does
    Flags widths inside a network that are written down and are no multiple of 8: what one layer
    puts out and another takes in, the state of a recurrent layer, a vocabulary that a linear layer
    projects to, the batch size of a loader.

    ## Why it is slow
    Tensor cores multiply tiles of 8 and more halves. A matrix with another width is padded, or
    handled by a slower kernel. On a CPU a bfloat16 product of width 1021 took 1.22 ms, one of 1024
    took 1.07 ms.

    ## When not to
    In full precision the width hardly matters: a script that trains without autocast, half
    precision or TF32 is not flagged. Numbers of classes and of input features belong to the data
    and are not flagged either, nor are widths under 64.

    ## Fix safety
    There is no fix: another width is another network, with other checkpoints.
    """

    code = "TL312"
    name = "unaligned-dimension"
    summary = "a width is no multiple of 8"
    impact = "low"
    safety = None
    articles = ("S2",)
    needs = ("Linear", "Conv", "Embedding", "LSTM", "GRU", "RNN", "DataLoader")
    default = False

    invalid = {
        "between two layers": """
              from torch import nn
              net = nn.Sequential(
            !     nn.Linear(784, 300),
                  nn.ReLU(),
                  nn.Linear(300, 10),
              )
            """,
        "by a name": """
              from torch import nn
              HIDDEN = 500
              class Net(nn.Module):
                  def __init__(self, classes):
                      super().__init__()
            !         self.fc1 = nn.Linear(in_features=32, out_features=HIDDEN)
                      self.fc2 = nn.Linear(HIDDEN, classes)
            """,
        "the channels of a convolution": """
              import torch
              from torch import nn
            ! first = nn.Conv2d(3, 70, 3)
              second = nn.Conv2d(70, 128, 3)
            """,
        "the state of a recurrent layer": """
              from torch import nn
            ! rnn = nn.LSTM(64, hidden_size=150)
            """,
        "a vocabulary that is projected to": """
              from torch import nn
              class Model(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.embed = nn.Embedding(50257, 768)
            !         self.head = nn.Linear(768, 50257, bias=False)
            """,
        "a batch, in a script with autocast": """
              import torch
              from torch.utils.data import DataLoader
              def train(dataset, model, optimizer):
            !     for x, y in DataLoader(dataset, batch_size=100):
                      with torch.autocast("cuda"):
                          loss = model(x.cuda()).sub(y.cuda()).square().mean()
                      loss.backward()
                      optimizer.step()
            """,
    }
    valid = {
        "multiples of eight": """
            from torch import nn
            net = nn.Sequential(nn.Linear(784, 304), nn.ReLU(), nn.Linear(304, 10))
            rnn = nn.GRU(64, 256)
            """,
        "classes and input features belong to the data": """
            from torch import nn
            net = nn.Sequential(nn.Linear(561, 256), nn.ReLU(), nn.Linear(256, 101))
            stem = nn.Conv2d(3, 64, 7)
            """,
        "small widths": """
            from torch import nn
            net = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 2))
            """,
        "an embedding is looked up, not multiplied": """
            from torch import nn
            embed = nn.Embedding(50257, 768)
            """,
        "somebody's decision": """
            import argparse
            from torch import nn
            parser = argparse.ArgumentParser()
            parser.add_argument("--hidden", type=int, default=300)
            args = parser.parse_args()
            net = nn.Sequential(nn.Linear(64, args.hidden), nn.Linear(args.hidden, 10))
            """,
        "it trains in full precision": """
            import torch
            from torch import nn
            net = nn.Sequential(nn.Linear(64, 300), nn.Linear(300, 10)).cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for step in range(10):
                net(torch.ones(8, 64, device="cuda")).sum().backward()
                optimizer.step()
            """,
        "it trains on the CPU": """
            import torch
            from torch import nn
            net = nn.Sequential(nn.Linear(64, 300), nn.Linear(300, 10))
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for step in range(10):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = net(torch.ones(8, 64)).sum()
                loss.backward()
                optimizer.step()
            """,
        "the CPU is what it is written for": """
            # target-device: cpu
            from torch import nn
            net = nn.Sequential(nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 10))
            """,
        "a batch to evaluate in full precision": """
            import torch
            from torch.utils.data import DataLoader
            def evaluate(dataset, model):
                return [model(x) for x in DataLoader(dataset, batch_size=100)]
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every width that is written down and has to be padded."""
        layers = _layers(script)
        widths = [*_between_layers(script, layers), *_vocabularies(script, layers)]
        batches = list(_batches(script))
        if not widths and not batches:
            return
        narrow = _NARROW.search(script.source.text) is not None
        trains = bool(script.loops(Role.TRAIN_BATCH, Role.EPOCH))
        if script.target.device == "cpu" or (trains and not script.can_use_accelerator):
            return
        seen: set[int] = set()
        for width in widths if narrow or not trains else ():
            if width.number not in seen:
                seen.add(width.number)
                yield self._finding(script, width, script.code(width.layer.func))
        for width in batches if narrow else ():
            yield self._finding(script, width, "batch_size")

    def _finding(self, script: Script, width: _Width, named: str) -> Finding:
        step = 64 if width.number >= _VOCABULARY else _STEP
        better = -(-width.number // step) * step
        message = (
            f"the {width.number} of `{named}` is no multiple of {_STEP}: tensor cores pad it, "
            f"{better} would fill them"
        )
        return Finding(self.code, script.span(width.node), message)


def _layers(script: Script) -> list[tuple[str, cst.Call]]:
    """Give the layers of torch that a script makes, with the short names of their classes."""
    return [
        ((site.name or "").removeprefix("torch.nn."), site.node)
        for site in script.calls(*_LAYERS)
        if site.node.args
    ]


def _width(script: Script, call: cst.Call, name: str, position: int) -> _Width | None:
    """Give a width that a call spells out, as a number or as a name for one."""
    given = script.call(call).given(name, position)
    number = script.value_of(given.value).literal if given is not None else None
    if given is None or not isinstance(number, int) or isinstance(number, bool):
        return None
    return _Width(number, given.value, call)


def _between_layers(script: Script, layers: list[tuple[str, cst.Call]]) -> Iterator[_Width]:
    """Yield the padded widths that one layer makes and another takes."""
    made: list[_Width] = []
    taken: set[int] = set()
    for short, call in layers:
        maker = "hidden_size" if short in _RECURRENT else _MAKERS.get(short)
        if maker is not None:
            width = _width(script, call, maker, 0 if short.startswith("Lazy") else 1)
            if width is not None and width.number >= _SMALLEST and width.number % _STEP:
                made.append(width)
                taken |= {width.number} if short in _RECURRENT else set()
    for short, call in layers if made else ():
        taker = _TAKERS.get(short)
        into = _width(script, call, taker, 0) if taker is not None else None
        if into is not None:
            taken.add(into.number)
    yield from (width for width in made if width.number in taken)


def _vocabularies(script: Script, layers: list[tuple[str, cst.Call]]) -> Iterator[_Width]:
    """Yield the padded vocabularies that a linear layer projects to."""
    words = {
        width.number
        for short, call in layers
        if short == "Embedding" and (width := _width(script, call, "num_embeddings", 0)) is not None
    }
    for short, call in layers if words else ():
        width = _width(script, call, "out_features", 1) if short == "Linear" else None
        if width is not None and width.number >= _VOCABULARY and width.number % _STEP:
            if width.number in words:
                yield width


def _batches(script: Script) -> Iterator[_Width]:
    for site in script.calls("torch.utils.data.DataLoader"):
        width = _width(script, site.node, "batch_size", 1)
        if width is not None and width.number >= _SMALLEST and width.number % _STEP:
            yield width
