"""Techniques of programs whose training a framework runs."""

from __future__ import annotations

from typing import Final

from torchlint.audit.questions import keyword, unknown
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Answer, Technique, in_use, not_applicable

_PREPARING: Final = frozenset({"accelerate", "transformers"})


def _by_script(survey: Survey) -> Answer | None:
    if survey.framework is not None:
        return None
    return not_applicable("no framework runs the training")


def _unfiltered(survey: Survey) -> Answer | None:
    for arguments in survey.script.program.trainings.arguments("transformers"):
        given = arguments.given("logging_nan_inf_filter")
        if given is not None and arguments.is_literal("logging_nan_inf_filter", False):
            return in_use(survey.line(given.value), survey.quoted(given))
    return None


def _no_metrics(survey: Survey) -> Answer:
    call = survey.called(r"torchmetrics\..+")
    if call is None:
        return not_applicable("no metric of torchmetrics here")
    return in_use(survey.line(call), f"{survey.quoted(call)} is not computed in every step")


def _no_preparing(survey: Survey) -> Answer | None:
    if survey.script.program.devices.framework in _PREPARING:
        return None
    return not_applicable("no loader is prepared by Accelerate")


def _no_trainer(survey: Survey) -> Answer | None:
    if survey.keyword("compute_metrics"):
        return None
    return not_applicable("no Trainer computes metrics here")


TRAINERS: Final = (
    Technique(
        "no reads by the framework in every step",
        ("S2", "S3.7"),
        (_unfiltered, _by_script, unknown("what the framework reads in every step")),
        ("TL222", "TL223", "TL224"),
        "no figure yet; for steps that are shorter than a wait for the GPU",
    ),
    Technique(
        "metrics computed once an epoch",
        ("S2",),
        (_no_metrics,),
        ("TL221",),
        "measured x12 to x39 for metrics that keep lists, on two CPU cores",
    ),
    Technique(
        "prepared loaders copy without a wait",
        ("S3.7",),
        (keyword("non_blocking"), _no_preparing,
         unknown("whether the batches are in pinned memory")),
        ("TL225",),
        "no figure yet; the copy overlaps with the work of the GPU",
    ),
    Technique(
        "predictions reduced before they are kept",
        ("S2",),
        (keyword("preprocess_logits_for_metrics|batch_eval_metrics"), _no_trainer,
         unknown("how large the outputs are that the Trainer keeps")),
        ("TL611",),
        "measured x14 for 512 samples of 32 x 4,000 logits on two CPU cores",
    ),
)  # fmt: skip
