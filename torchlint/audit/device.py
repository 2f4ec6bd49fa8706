"""Questions about techniques of host and device."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.audit.survey import Survey
from torchlint.audit.technique import (
    Answer,
    by_name,
    cannot_tell,
    in_use,
    not_applicable,
    used,
)
from torchlint.semantic.loops.frequency import Frequency
from torchlint.semantic.loops.loops import Role
from torchlint.semantic.syntax.methods import named_arguments

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
        if name.startswith("torch.") and named_arguments(call, "device"):
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


DEVICE: Final = by_name(
    _read_in_training,
    _read_in_evaluation,
    _kept_in_evaluation,
    _made_there,
    _made_on_host,
    _moves_batches,
    _moves,
)
