"""Techniques of evaluation."""

from __future__ import annotations

from typing import Final

from torchlint.audit.questions import calls, evaluated, looped, trainer_option, unknown
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Answer, Technique, not_applicable, used
from torchlint.semantic.values.gradient import Grad


def _unrecorded(survey: Survey) -> Answer | None:
    for place in survey.script.evaluations.all:
        for forward in place.forwards:
            if forward.records is Grad.OFF:
                return used(survey, forward.call, " records no graph")
    return None


def _in_modes(survey: Survey) -> Answer | None:
    back = survey.method("train")
    return used(survey, survey.method("eval"), f", {survey.placed(back)}" if back else "")


def _same_in_both(survey: Survey) -> Answer | None:
    networks = [each for place in survey.script.evaluations.all for each in place.networks]
    if networks and all(
        survey.script.modules.modes.depends_on_mode(each) is False for each in networks
    ):
        return not_applicable("the networks have neither dropout nor batch norm")
    return None


EVALUATION: Final = (
    Technique(
        "evaluation without gradients",
        ("S2", "S3.16"),
        (_unrecorded, looped, evaluated,
         unknown("whether autograd records where the networks are evaluated")),
        ("TL601",),
        "measured x1.8 to x2.0 for a network with batch norm on two CPU cores",
    ),
    Technique(
        "evaluation mode, then training mode again",
        ("S2",),
        (_in_modes, looped, evaluated, _same_in_both,
         unknown("the mode of the networks that are evaluated")),
        ("TL602", "TL604"),
    ),
    Technique(
        "inference mode",
        ("S3.16",),
        (calls(r"torch\.inference_mode"), looped, evaluated,
         unknown("whether autograd uses a tensor from here later")),
        ("TL603",),
        "no measurable difference on two CPU cores",
    ),
    Technique(
        "evaluation not in every step",
        ("S2",),
        (trainer_option("eval_strategy|evaluation_strategy|val_check_interval|eval_steps"),
         evaluated, unknown("how often this file evaluates")),
        ("TL612",),
        "measured x2.9 for an evaluation in each of 20 steps against one on two CPU cores",
    ),
)  # fmt: skip
