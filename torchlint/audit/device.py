"""Techniques of host and device."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.audit.questions import (
    accelerated,
    calls,
    evaluated,
    in_use_at_training,
    keyword,
    layered,
    method,
    owned,
    trained,
    unknown,
    unless,
)
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Answer, Technique, cannot_tell, in_use, not_applicable, used
from torchlint.semantic.loops.frequency import Frequency
from torchlint.semantic.loops.loops import Role

_FACTORY: Final = re.compile(
    r"torch\.(?:zeros|ones|full|arange|eye|empty|linspace|rand|randn|tensor)"
)


def _reads(survey: Survey, region: cst.CSTNode) -> Answer | None:
    for reading in survey.script.readings.within(region):
        if survey.script.loops.frequency(reading.node) is Frequency.EVERY_PASS:
            return cannot_tell(f"whether each pass needs {survey.placed(reading.node)}")
    for site in survey.script.calls.of_methods("item", "tolist", "numpy", "cpu"):
        call = site.node
        if (
            survey.script.tree.inside(call, region)
            and survey.script.loops.frequency(call) is Frequency.EVERY_PASS
        ):
            return cannot_tell(f"whether {survey.placed(call)} waits")
    return None


def _read_in_training(survey: Survey) -> Answer | None:
    loops = survey.script.loops.of(Role.TRAIN_BATCH)
    return next(filter(None, (_reads(survey, loop.node.body) for loop in loops)), None)


def _read_in_evaluation(survey: Survey) -> Answer | None:
    places = survey.script.evaluations.all
    return next(filter(None, (_reads(survey, place.body) for place in places)), None)


def _kept_in_evaluation(survey: Survey) -> Answer | None:
    place = survey.script.evaluations.all[0]
    return in_use(
        survey.line(place.node), "no rule found a value that each batch reads from the device"
    )


def _made_there(survey: Survey) -> Answer | None:
    for name, call in survey.named_calls:
        if name.startswith("torch.") and any(
            arg.keyword is not None and arg.keyword.value == "device" for arg in call.args
        ):
            last = name.rpartition(".")[2]
            if name == f"torch.{last}" and last not in ("load", "Generator", "autocast"):
                return used(survey, call)
    return None


def _made_on_host(survey: Survey) -> Answer:
    reading = [code.node for code in survey.script.loaders.items.all()]
    for name, call in survey.named_calls:
        if _FACTORY.fullmatch(name):
            if not any(survey.script.tree.inside(call, each) for each in reading):
                return cannot_tell(f"whether {survey.placed(call)} belongs on the device")
    return not_applicable("no tensor is created from scratch outside of datasets")


def _moves(survey: Survey) -> bool:
    calls_of = survey.script.calls.of_methods("to", "cuda")
    return any(survey.script.program.moves.move(site.node) is not None for site in calls_of)


def _moves_batches(survey: Survey) -> bool:
    return any(
        survey.script.program.moves.move(call) is not None
        for loop in survey.script.loops.all()
        if loop.is_batch
        for call in survey.script.tree.within(loop.node.body, cst.Call)
    )


DEVICE: Final = (
    Technique(
        "no host syncs in the training loop",
        ("S2", "S3.7"),
        (accelerated, owned, trained, _read_in_training,
         in_use_at_training("no rule found a value that each step reads from the device")),
        ("TL201", "TL205", "TL207", "TL211", "TL212", "TL213", "TL214"),
        "cited: the host can queue kernels ahead again; the gain depends on the kernels",
    ),
    Technique(
        "no host syncs in evaluation",
        ("S3.7",),
        (accelerated, owned, evaluated, _read_in_evaluation, _kept_in_evaluation),
        ("TL202",),
        "cited: the host can queue kernels ahead again; the gain depends on the kernels",
    ),
    Technique(
        "logging not in every step",
        ("S2",),
        (owned, trained, in_use_at_training("no rule found a log line in each step")),
        ("TL207",),
    ),
    Technique(
        "tensors created on the device",
        ("S3.7",),
        (_made_there, accelerated, _made_on_host),
        ("TL203",),
    ),
    Technique(
        "non-blocking copies to the device",
        ("S3.7",),
        (keyword("non_blocking"), accelerated, owned,
         unless(_moves_batches, "no loop here copies a batch to a device"),
         unknown("whether these batches come from pinned memory")),
        ("TL204",),
        "cited: the copy overlaps with the work of the GPU",
    ),
    Technique(
        "networks moved to the device once",
        ("S2",),
        (accelerated, owned, unless(_moves, "nothing is moved to a device here"), trained,
         in_use_at_training("no rule found a network that moves in the loop")),
        ("TL206",),
        "measured x1.5 of a forward pass saved each step, two CPU cores",
    ),
    Technique(
        "no graph kept across steps",
        ("S2",),
        (owned, trained,
         in_use_at_training("no rule found a sum or list that keeps a graph alive")),
        ("TL208",),
        "measured 104 MB less for 40 losses that were kept",
    ),
    Technique(
        "whole tensors, no Python loop over elements",
        ("S2",),
        (trained, in_use_at_training("no rule found a loop over the elements of a tensor")),
        ("TL209",),
        "measured x25 to x40 for a linear layer, x380 and more for sums, two CPU cores",
    ),
    Technique(
        "constants created once",
        ("S2",),
        (method("register_buffer"), trained, layered("forward", "no network is written here"),
         in_use_at_training("no rule found a constant that each step creates again")),
        ("TL210",),
        "measured x1.1 on two CPU cores",
    ),
    Technique(
        "one concatenation, after the loop",
        ("S2",),
        (calls(r"torch\.(?:cat|concat|concatenate|stack)"),
         lambda survey: not_applicable("nothing is concatenated here")),
        ("TL405",),
        "measured x265 to x347 for 300 pieces, two CPU cores",
    ),
)  # fmt: skip
