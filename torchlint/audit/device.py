"""Techniques of host and device."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.audit.asking import (
    accelerated,
    calls,
    decided,
    evaluated,
    kept_at_training,
    keyword,
    method,
    owned,
    trained,
    unless,
)
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Answer, Technique, in_use, not_applicable

__all__ = ["DEVICE"]

_FACTORIES: Final = r"torch\.(?:zeros|ones|full|arange|eye|empty|linspace|rand|randn|tensor)"


def _kept_in_evaluation(survey: Survey) -> Answer | None:
    place = survey.script.evaluations()[0]
    return in_use(survey.line(place.node), "no value is read off the device batch by batch")


def _made_there(survey: Survey) -> Answer | None:
    for name, call in survey.named_calls:
        if name.startswith("torch.") and any(
            arg.keyword is not None and arg.keyword.value == "device" for arg in call.args
        ):
            last = name.rpartition(".")[2]
            if name == f"torch.{last}" and last not in ("load", "Generator", "autocast"):
                return in_use(survey.line(call), survey.quoted(call))
    return None


def _no_factories(survey: Survey) -> Answer | None:
    if survey.called(_FACTORIES) is None:
        return not_applicable("no tensor is made from scratch here")
    return None


def _moves_nothing(survey: Survey) -> Answer | None:
    for call in survey.script.method_calls("to", "cuda"):
        if survey.script.moves.move(call) is not None:
            return None
    return not_applicable("nothing is moved to a device here")


def _batches_moved(survey: Survey) -> Answer | None:
    for loop in survey.script.loops():
        for call in survey.script.within(loop.node.body, cst.Call):
            if loop.is_batch and survey.script.moves.move(call) is not None:
                return None
    return not_applicable("no batch is copied to a device in a loop of this file")


DEVICE: Final = (
    Technique(
        "no waiting in the training loop",
        ("S2", "S3.7"),
        (accelerated, owned, trained,
         kept_at_training("no value is read off the device step by step")),
        ("TL201", "TL205", "TL211"),
        "cited: the host can launch ahead again; how much that is depends on the kernels",
    ),
    Technique(
        "no waiting in evaluation",
        ("S3.7",),
        (accelerated, owned, evaluated, _kept_in_evaluation),
        ("TL202",),
        "cited: the host can launch ahead again; how much that is depends on the kernels",
    ),
    Technique(
        "logging now and then",
        ("S2",),
        (owned, trained, kept_at_training("nothing is logged in every step")),
        ("TL207",),
    ),
    Technique(
        "tensors made on the device",
        ("S3.7",),
        (_made_there, accelerated, _no_factories,
         decided("whether the tensors made here belong on the device")),
        ("TL203",),
    ),
    Technique(
        "copies that do not block",
        ("S3.7",),
        (keyword("non_blocking"), accelerated, owned, _batches_moved,
         decided("whether the host's memory is pinned where these batches come from")),
        ("TL204",),
        "cited: the copy overlaps with the work of the GPU",
    ),
    Technique(
        "networks moved once",
        ("S2",),
        (accelerated, owned, _moves_nothing, trained,
         kept_at_training("no network is moved in the loop")),
        ("TL206",),
        "measured x1.5 of a forward pass saved each step, two CPU cores",
    ),
    Technique(
        "graphs let go after each step",
        ("S2",),
        (owned, trained, kept_at_training("no sum or list keeps a graph alive")),
        ("TL208",),
        "measured 104 MB less for 40 losses that were kept",
    ),
    Technique(
        "whole tensors, no Python loop over elements",
        ("S2",),
        (trained, kept_at_training("no loop over the elements of a tensor was found")),
        ("TL209",),
        "measured x25 to x40 for a linear layer, x380 and more for sums, two CPU cores",
    ),
    Technique(
        "constants made once",
        ("S2",),
        (method("register_buffer"), trained, unless("forward", "no network is written here"),
         kept_at_training("nothing constant is made anew in a step")),
        ("TL210",),
        "measured x1.1 on two CPU cores",
    ),
    Technique(
        "concatenation once, behind the loop",
        ("S2",),
        (calls(r"torch\.(?:cat|concat|concatenate|stack)"),
         decided("nothing is concatenated in this file")),
        ("TL405",),
        "measured x265 to x347 for 300 pieces, two CPU cores",
    ),
)  # fmt: skip
