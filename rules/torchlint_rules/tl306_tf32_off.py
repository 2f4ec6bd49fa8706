"""TL306: float32 matmuls without TF32."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Impact, Role, Rule, Script, Step
from torchlint_rules.shared.cuda import (
    in_environment,
    is_open,
    makers,
    may_be_cuda,
    may_hold_place,
    moved_networks,
    named_convolutional,
    place,
    setting,
    surroundings,
    trained_in,
    trains,
    trains_in_float32,
)

_SET: Final = re.compile(r"float32_matmul_precision|fp32_precision|tf32")
_PRODUCTS: Final = re.compile(
    r"Attention|Transformer(?!_?[Nn]et)|(?:LSTM|GRU|RNN)_?[Cc]ell|MLP|Mixer|GPT|[Bb]ert\b|BERT|(?:\b|_)vit|ViT|[Ss]win|"
    r"matmul|bmm|einsum|\bmm\b|addmm|dot_product|torch_geometric|\bdgl\b"
)
_RECURRENT: Final = re.compile("LSTM|GRU|RNN")
_OF_CUDNN: Final = frozenset({"torch.nn.LSTM", "torch.nn.GRU", "torch.nn.RNN"})
"""Layers that use TF32 without being asked, as convolutions do."""
_IMAGES: Final = re.compile(
    r"torchvision|image|(?:\b|_)imgs?(?:\b|_)|cifar|mnist|conv|cnn|resne[xs]?t|u_?net|vgg|densenet|"
    r"yolo|ssd|cityscapes|crop_?size|pixel|segment|style_?gan|super_?res|upscale|\btcn\b"
)
_LINE: Final = '{torch}.set_float32_matmul_precision("high")'


class Tf32Off(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag a program that trains with matmuls in full float32."""
        if not (may_hold_place(script) and may_be_cuda(script)):
            return
        if any(each.program.vocabulary.has_lowered(_SET) for each in (script, script.running)):
            return
        steps = [each for each in script.loops.steps.all if script.loops.steps.updates(each)]
        program = trains(script)
        node = place(script) if program or (steps and _trains_its_own(script)) else None
        if node is None or not script.tree.is_own(node):
            return
        if in_environment(script) or not any(map(_multiplies, surroundings(script))):
            return
        heavy = [each for each in steps if not (is_open(script, each) or _is_light(script, each))]
        if steps and not heavy:
            return
        edits = setting(script, _LINE) if program else None
        fix = None
        if edits is not None:
            because = "matmuls are rounded to TF32, 10 bits of mantissa"
            fix = Fix.unsafe("Let matmuls use TF32", edits, because=because)
        message = (
            "float32 matmuls do not use tensor cores: call "
            '`torch.set_float32_matmul_precision("high")` at startup'
        )
        covered = bool(heavy) and all(trains_in_float32(script, each) for each in heavy)
        impact: Impact | None = "low" if covered else None
        yield Finding(self.code, script.span(node), message, fix, impact=impact)


def _multiplies(script: Script) -> bool:
    """Return whether networks multiply matrices in float32."""
    precision = script.values.precision
    return not (precision.is_low_by_default or precision.is_wide or _only_convolves(script))


def _is_light(script: Script, step: Step) -> bool:
    """Return whether a step spends little of its time in matmuls."""
    trained, sizes = trained_in(script, step), script.modules.sizes
    light = sizes.are_tiny(*trained) or sizes.are_convolutional(*trained)
    return light or script.modules.graphs.are_trained_in(step)


def _trains_its_own(script: Script) -> bool:
    """Return whether a module builds, moves and trains its own network."""
    if not script.loops.of(Role.TRAIN_BATCH):
        return False
    if not any(
        each.program.vocabulary.has(_PRODUCTS)
        or any(name.endswith(".Linear") for name in each.calls.called)
        for each in surroundings(script)
    ):
        return False
    return any(
        makers(script, move.moved) and not script.program.purpose.is_test(move.call)
        for move in moved_networks(script)
    )


def _only_convolves(script: Script) -> bool:
    """Return whether the networks mainly convolve, judged by their data if they are unknown.

    So do recurrent layers as far as TF32 goes, but for the words that come out of them.
    """
    if script.program.vocabulary.has(_PRODUCTS) or any(
        isinstance(each.operator, cst.MatrixMultiply)
        for each in script.tree.all(cst.BinaryOperation)
    ):
        return False
    if script.program.vocabulary.has(_RECURRENT) and (
        _OF_CUDNN.isdisjoint(script.calls.called) or "torch.nn.Embedding" in script.calls.called
    ):
        return False
    if named_convolutional(script):
        return True
    makes = [
        _last(site.name or "") for site in script.calls.of(*filter(_is_layer, script.calls.called))
    ]
    linear = makes.count("Linear")
    convolutions = len(makes) - linear
    if convolutions or linear:
        return convolutions >= linear
    return script.program.vocabulary.has_lowered(_IMAGES)


def _is_layer(name: str) -> bool:
    """Return whether a qualified name is a layer of cuDNN or a linear layer."""
    return name in _OF_CUDNN or _last(name) == "Linear" or _last(name).startswith("Conv")


def _last(name: str) -> str:
    """Return the last part of a qualified name."""
    return name.rpartition(".")[2]
