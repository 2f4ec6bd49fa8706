"""Techniques about what is left in a script: debugging tools, and names of old versions."""

from __future__ import annotations

from typing import Final

from torchlint.audit.questions import in_use_at_training, trained
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Answer, Technique, not_applicable, used

_PROFILERS: Final = r"torch\.(?:profiler|autograd\.profiler)\.\w+|cProfile\.\w+|line_profiler\.\w+"


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


LEFTOVERS: Final = (
    Technique(
        "no debugging tools left on",
        ("S2", "S3.13"),
        (trained, in_use_at_training("no rule found a debugging tool that was left on")),
        ("TL801", "TL803", "TL805"),
        "measured x3.2 to x8.8 for anomaly detection on two CPU cores",
    ),
    Technique(
        "profilers off",
        ("S1", "S2", "S3.13"),
        (_on_demand,),
        ("TL802",),
        "measured x4.7 to x17 on two CPU cores",
    ),
    Technique(
        "nondeterministic kernels allowed",
        ("S3.6",),
        (_asked_for, trained,
         in_use_at_training("no rule found a request for deterministic kernels")),
        ("TL804",),
        "measured x1.05 to x1.07 on a CPU",
    ),
    Technique(
        "no names that torch warns about",
        (),
        (trained, in_use_at_training("no rule found a deprecated name")),
        ("TL806",),
        "no gain in speed: a later torch runs the script",
    ),
)  # fmt: skip
