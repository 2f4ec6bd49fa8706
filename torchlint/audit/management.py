"""Techniques of managing a training run."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.audit.asking import calls, evaluated, lacking, owned, trained, words
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Answer, Technique, in_use, not_applicable
from torchlint.semantic.loops import Role

__all__ = ["MANAGEMENT"]

_TRACKERS: Final = (
    r"(?:torch\.utils\.tensorboard|tensorboardX|wandb|mlflow|neptune|comet_ml|clearml|aim|swanlab|"
    r"visdom|dvclive|trackio)\.(?:\w+\.)*\w+"
)
_TIMERS: Final = (
    r"time\.(?:time|perf_counter|monotonic|process_time)|timeit\.default_timer|"
    r"torch\.cuda\.Event|torch\.profiler\.\w+|torch\.utils\.benchmark\.\w+"
)


def _leaves_early(survey: Survey) -> Answer | None:
    for leave in survey.script.all(cst.Break):
        loop = next(survey.script.loops_around(leave), None)
        if loop is not None and loop.role is Role.EPOCH:
            if any(True for _ in survey.script.tests_around(leave)):
                return in_use(survey.line(leave), "`break` leaves the loop over epochs")
    return None


def _no_epochs(survey: Survey) -> Answer | None:
    if survey.script.loops(Role.EPOCH):
        return None
    return not_applicable("no loop over epochs in this file")


MANAGEMENT: Final = (
    Technique(
        "early stopping",
        ("S1", "S2"),
        (words(r"\w*early_?stop\w*|patience"), _leaves_early, owned, trained, _no_epochs,
         evaluated, lacking("the loop over epochs runs to its end whatever validation says")),
        gain="saves the epochs that no longer help",
    ),
    Technique(
        "measuring where the time goes",
        ("S1", "S2"),
        (calls(_TIMERS), owned, trained, lacking("nothing here measures the time of a step")),
        gain="tells which of these rows is worth the work",
    ),
    Technique(
        "experiment tracking",
        ("S1", "S2"),
        (calls(_TRACKERS), words("SummaryWriter|wandb|mlflow|report_to"), owned, trained,
         lacking("losses go to the terminal only")),
        gain="tells which change made a run better",
    ),
)  # fmt: skip
