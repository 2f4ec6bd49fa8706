"""Questions about evaluations and checkpoints."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.audit.questions import method
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Answer, by_name, cannot_tell, missing, not_applicable, used
from torchlint.semantic.values.gradient import Grad

_SAVERS: Final = ("save_state", "save_pretrained", "save_checkpoint", "save_model")


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


EVALUATION: Final = by_name(_unrecorded, _in_modes, _same_in_both)


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


CHECKPOINTS: Final = by_name(
    _saves_nothing,
    _saved_now_and_then,
    _copied,
    _restored,
    _never_loaded,
    saves_states=method("state_dict", *_SAVERS),
)
