"""Questions about a run: how it is managed, what is left on in it, and what a framework does."""

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
    missing,
    not_applicable,
    used,
)
from torchlint.semantic.loops.loops import Role

_OTHER_REASONS: Final = re.compile(r"dry|debug|fast|(?<![a-z])kl|step|iter|nan", re.IGNORECASE)
_PROFILERS: Final = r"torch\.(?:profiler|autograd\.profiler)\.\w+|cProfile\.\w+|line_profiler\.\w+"
_PREPARING: Final = frozenset({"accelerate", "transformers"})


def _patient(survey: Survey) -> Answer | None:
    names = survey.script.tree.all(cst.Name)
    return used(survey, next((n for n in names if n.value.lower().endswith("patience")), None))


def _leaves_early(survey: Survey) -> Answer | None:
    for leave in survey.script.tree.all(cst.Break):
        loop = next(survey.script.loops.around(leave), None)
        if loop is not None and loop.role is Role.EPOCH:
            tests = [survey.script.code(test) for test in survey.script.tree.tests_around(leave)]
            if tests and not any(map(_OTHER_REASONS.search, tests)):
                return in_use(survey.line(leave), "`break` leaves the loop over epochs")
    return None


def _to_the_end(survey: Survey) -> Answer:
    line = survey.line(survey.script.loops.of(Role.EPOCH)[0].node)
    return missing(line, "every epoch runs, whatever the validation loss")


def _own_logger(survey: Survey) -> Answer | None:
    node = survey.word(r"(?:\w+_)?(?:logger|writer|tracker|visuali[sz]er)|\w+(?:Logger|Writer)")
    if node is None or survey.called(r"logging\.getLogger"):
        return None
    return cannot_tell(f"what {survey.quoted(node)} keeps")


MANAGEMENT: Final = by_name(
    _patient,
    _leaves_early,
    _to_the_end,
    _own_logger,
    epochs=lambda survey: survey.script.loops.of(Role.EPOCH),
)


def _asked_for(survey: Survey) -> Answer | None:
    setting = next(survey.script.program.determinism.settings(), None)
    if setting is None:
        return None
    return not_applicable(
        f"line {survey.line(setting.node)} asks for deterministic kernels, under a condition"
    )


def _on_demand(survey: Survey) -> Answer | None:
    call = survey.called(_PROFILERS)
    if call is None:
        return not_applicable("nothing is profiled here")
    return used(survey, call, " runs for a while, or on demand")


LEFTOVERS: Final = by_name(_on_demand, _asked_for)


def _unfiltered(survey: Survey) -> Answer | None:
    for arguments in survey.script.program.trainings.arguments("transformers"):
        given = arguments.given("logging_nan_inf_filter")
        if given is not None and arguments.is_literal("logging_nan_inf_filter", False):
            return used(survey, given)
    return None


def _no_metrics(survey: Survey) -> Answer | None:
    call = survey.called(r"torchmetrics\..+")
    if call is None:
        return not_applicable("no metric of torchmetrics here")
    return used(survey, call, " is not computed in every step")


TRAINERS: Final = by_name(
    _unfiltered,
    _no_metrics,
    framework=lambda survey: survey.framework,
    prepares=lambda survey: survey.script.program.devices.framework in _PREPARING,
    computes_metrics=lambda survey: survey.keyword("compute_metrics"),
)
