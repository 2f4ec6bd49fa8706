"""Questions about techniques of large models and of modern pre-training."""

from __future__ import annotations

from typing import Final

from torchlint.audit.questions import (
    unless,
)
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Answer, by_name, used

_GRAPHED: Final = frozenset({"reduce-overhead", "max-autotune"})
_SEQUENCES: Final = r"\w*tokeniz\w*|pad_sequence|pack_padded_sequence|input_ids|max_length"


_WITHOUT_SEQUENCES: Final = unless(
    lambda survey: survey.word(_SEQUENCES) or survey.framework,
    "no sequences of tokens in this file",
)


def _graphed_by_compiler(survey: Survey) -> Answer | None:
    for name in ("mode", "torch_compile_mode"):
        arg = survey.keyword(name)
        if arg is not None and survey.script.values.value_of(arg.value).literal in _GRAPHED:
            return used(survey, arg)
    return None


LARGE_MODELS: Final = by_name(
    _graphed_by_compiler,
    without_sequences=_WITHOUT_SEQUENCES,
    freezes=lambda survey: (
        survey.method("requires_grad_") or survey.assigned_attribute("requires_grad")
    ),
    saves=lambda survey: survey.calling(r"save\w*|\w+_save") or survey.framework,
)
