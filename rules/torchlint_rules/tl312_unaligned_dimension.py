"""TL312: a width that tensor cores have to pad."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Finding, Role, Rule, Script

_SMALLEST: Final = 64
_VOCABULARY: Final = 1000
_STEP: Final = 8
_NARROW: Final = re.compile(
    r"autocast|b?float16|\.half\b|\b(?:bf16|fp16|amp)\b|tf32|matmul_precision"
)
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


class _Width(NamedTuple):
    """A literal number used as the width of a layer."""

    number: int
    node: cst.BaseExpression
    layer: cst.Call


class UnalignedDimension(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every literal width that has to be padded."""
        layers = _layers(script)
        widths = [*_between_layers(script, layers), *_vocabularies(script, layers)]
        batches = list(_batches(script))
        if not widths and not batches:
            return
        narrow = _NARROW.search(script.tree.own_text) is not None
        trains = bool(script.loops.of(Role.TRAIN_BATCH, Role.EPOCH))
        if script.program.target.device == "cpu" or (
            trains and not script.program.devices.can_use_accelerator
        ):
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
            f"the {width.number} of `{named}` is not a multiple of {_STEP}: tensor cores pad it, "
            f"{better} would fill them"
        )
        return Finding(self.code, script.span(width.node), message)


def _layers(script: Script) -> list[tuple[str, cst.Call]]:
    """Return the torch layers that a script builds, with the short names of their classes."""
    return [
        ((site.name or "").removeprefix("torch.nn."), site.node)
        for site in script.calls.of(*_LAYERS)
        if site.node.args
    ]


def _width(script: Script, call: cst.Call, name: str) -> _Width | None:
    """Return the width in a call, if it is a literal or a name for one."""
    given = script.calls.at(call).given(name)
    number = script.values.value_of(given.value).literal if given is not None else None
    if given is None or not isinstance(number, int) or isinstance(number, bool):
        return None
    return _Width(number, given.value, call)


def _between_layers(script: Script, layers: list[tuple[str, cst.Call]]) -> Iterator[_Width]:
    """Yield the padded widths that are the output of one layer and the input of another."""
    made: list[_Width] = []
    taken: set[int] = set()
    for short, call in layers:
        maker = "hidden_size" if short in _RECURRENT else _MAKERS.get(short)
        if maker is not None:
            width = _width(script, call, maker)
            if width is not None and width.number >= _SMALLEST and width.number % _STEP:
                made.append(width)
                taken |= {width.number} if short in _RECURRENT else set()
    for short, call in layers if made else ():
        taker = _TAKERS.get(short)
        into = _width(script, call, taker) if taker is not None else None
        if into is not None:
            taken.add(into.number)
    yield from (width for width in made if width.number in taken)


def _vocabularies(script: Script, layers: list[tuple[str, cst.Call]]) -> Iterator[_Width]:
    """Yield the padded vocabularies that a linear layer projects to."""
    words = {
        width.number
        for short, call in layers
        if short == "Embedding" and (width := _width(script, call, "num_embeddings")) is not None
    }
    for short, call in layers if words else ():
        width = _width(script, call, "out_features") if short == "Linear" else None
        if width is not None and width.number >= _VOCABULARY and width.number % _STEP:
            if width.number in words:
                yield width


def _batches(script: Script) -> Iterator[_Width]:
    for loader in script.loaders:
        width = _width(script, loader.node, "batch_size")
        if width is not None and width.number >= _SMALLEST and width.number % _STEP:
            yield width
