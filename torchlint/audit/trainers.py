"""Techniques of programs whose training a framework runs."""

from __future__ import annotations

from typing import Final

from torchlint.audit.questions import keyword, unknown, unless
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Answer, Technique, not_applicable, used

_PREPARING: Final = frozenset({"accelerate", "transformers"})


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


TRAINERS: Final = (
    Technique(
        "no reads by the framework in every step",
        ("S2", "S3.7"),
        (_unfiltered,
         unless(lambda survey: survey.framework, "no framework runs the training"),
         unknown("what the framework reads in every step")),
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
        (keyword("non_blocking"),
         unless(lambda survey: survey.script.program.devices.framework in _PREPARING,
                "no loader is prepared by Accelerate"),
         unknown("whether the batches are in pinned memory")),
        ("TL225",),
        "no figure yet; the copy overlaps with the work of the GPU",
    ),
    Technique(
        "predictions reduced before they are kept",
        ("S2",),
        (keyword("preprocess_logits_for_metrics|batch_eval_metrics"),
         unless(lambda survey: survey.keyword("compute_metrics"),
                "no Trainer computes metrics here"),
         unknown("how large the outputs are that the Trainer keeps")),
        ("TL611",),
        "measured x14 for 512 samples of 32 x 4,000 logits on two CPU cores",
    ),
)  # fmt: skip
