"""Techniques of checkpoints."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.audit.questions import (
    calls,
    looped,
    mentions,
    method,
    trained,
    trainer_option,
    whole,
)
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Answer, Technique, cannot_tell, missing, not_applicable, used

_RESUMING: Final = (
    r"(?:\w+_)?(?:resume|restart|restore)\w*|load_(?:checkpoint|model|ckpt|weights)\w*"
)
_SAVERS: Final = ("save_state", "save_pretrained", "save_checkpoint", "save_model")


def _saves(survey: Survey) -> cst.Call | None:
    saved = survey.called(r"torch\.save|torch\.distributed\.checkpoint\.save\w*")
    return saved or survey.method(*_SAVERS)


def _saves_nothing(survey: Survey) -> Answer | None:
    if _saves(survey):
        return None
    saver = survey.calling(r"save_(?!image|fig|plot|path|dir)\w+|\w+_save|saver")
    if saver is not None:
        return cannot_tell(f"what {survey.quoted(saver)} saves, and how often")
    return not_applicable("nothing is saved here")


def _saved_now_and_then(survey: Survey) -> Answer | None:
    call = _saves(survey)
    if call is None:
        return None
    if survey.script.loops.each_step(call):
        return cannot_tell(f"how often line {survey.line(call)} saves")
    return used(survey, call, " is not run in every step")


def _copied(survey: Survey) -> Answer | None:
    for call in survey.script.calls.of("copy.deepcopy"):
        if "state_dict" in survey.script.code(call.node):
            return used(survey, call.node)
    kept = survey.word(r"best\w*(?:state|weight|model|wts|param)\w*")
    if kept is None:
        return not_applicable("no best weights are kept in memory")
    return cannot_tell(f"what {survey.quoted(kept)} keeps of the best weights")


def _restored(survey: Survey) -> Answer | None:
    restores = survey.script.optimizers.restores
    if restores:
        return used(survey, restores[0])
    call = survey.method("load_state_dict") if survey.called(r"torch\.load") else None
    return used(survey, call, "; the optimizer state is not restored")


def _never_loaded(survey: Survey) -> Answer | None:
    call = _saves(survey)
    if call is not None:
        why = f"{survey.quoted(call)} has no matching `torch.load`"
        return missing(survey.line(call), why)
    loop = survey.training
    return missing(survey.line(loop), "an interrupted run starts from scratch") if loop else None


CHECKPOINTS: Final = (
    Technique(
        "state dicts saved, not modules",
        ("S2",),
        (looped, _saves_nothing, method("state_dict", *_SAVERS)),
        ("TL901",),
    ),
    Technique(
        "checkpoints not in every step",
        ("S2",),
        (looped, _saves_nothing, _saved_now_and_then),
        ("TL902",),
        "measured: saving 4 MB takes as long as two steps of a small network",
    ),
    Technique(
        "best weights copied, not referenced",
        ("S2",),
        (_copied,),
        ("TL903",),
    ),
    Technique(
        "resuming from checkpoints",
        ("S2",),
        (_restored, trainer_option("resume_from_checkpoint|ckpt_path"),
         method("load_checkpoint", "load_state"),
         calls(r"torch\.distributed\.checkpoint\.load\w*"), looped, trained, whole,
         mentions(_RESUMING, "restores"), _never_loaded),
        gain="saves the time of a run that was interrupted",
    ),
)  # fmt: skip
