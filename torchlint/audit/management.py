"""Techniques of managing a training run."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.audit.questions import (
    calls,
    evaluated,
    looped,
    missing_at_training,
    trained,
    unless,
    whole,
    words,
)
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Answer, Technique, cannot_tell, in_use, missing, used
from torchlint.semantic.loops.loops import Role

_TRACKERS: Final = (
    r"(?:torch\.utils\.tensorboard|tensorboardX|wandb|mlflow|neptune|comet_ml|clearml|aim|swanlab|"
    r"visdom|dvclive|trackio)\.(?:\w+\.)*\w+"
)
_OTHER_REASONS: Final = re.compile(r"dry|debug|fast|(?<![a-z])kl|step|iter|nan", re.IGNORECASE)
_TIMERS: Final = (
    r"time\.(?:time|perf_counter|monotonic|process_time)|timeit\.default_timer|"
    r"torch\.cuda\.Event|torch\.profiler\.\w+|torch\.utils\.benchmark\.\w+"
)


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


MANAGEMENT: Final = (
    Technique(
        "early stopping",
        ("S1", "S2"),
        (words(r"\w*early_?stop\w*"), _patient, _leaves_early, looped, trained,
         unless(lambda survey: survey.script.loops.of(Role.EPOCH), "no loop over epochs here"),
         evaluated, _to_the_end),
        gain="saves the epochs that no longer help",
    ),
    Technique(
        "measuring where the time goes",
        ("S1", "S2"),
        (calls(_TIMERS), looped, trained, whole,
         missing_at_training("nothing measures the time of a step")),
        gain="tells which of these rows is worth the work",
    ),
    Technique(
        "experiment tracking",
        ("S1", "S2"),
        (calls(_TRACKERS), words("SummaryWriter|wandb|mlflow|report_to|log_with|init_trackers"),
         _own_logger, looped, trained, whole,
         missing_at_training("losses go to the terminal only")),
        gain="tells which change made a run better",
    ),
)  # fmt: skip
