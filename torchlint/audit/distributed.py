"""Questions about techniques of several GPUs, of large models and of modern pre-training."""

from __future__ import annotations

from typing import Final

from torchlint.audit.questions import mentions, unless, whole
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Answer, by_name, cannot_tell, not_applicable, used
from torchlint.semantic.values.values import State

_PERHAPS: Final = mentions(
    r"\w*distributed|ddp|\w*world_size|\w*local_rank", "does with several GPUs"
)
_NO_WRAP: Final = unless(
    lambda survey: survey.script.program.processes.wraps(), "no DistributedDataParallel here"
)
_GRAPHED: Final = frozenset({"reduce-overhead", "max-autotune"})
_SEQUENCES: Final = r"\w*tokeniz\w*|pad_sequence|pack_padded_sequence|input_ids|max_length"


_WITHOUT_SEQUENCES: Final = unless(
    lambda survey: survey.word(_SEQUENCES) or survey.framework,
    "no sequences of tokens in this file",
)


def _one_process(survey: Survey) -> Answer | None:
    if survey.script.program.processes.has_wraps or survey.called(r"torch\.distributed\.\w+"):
        return None
    return whole(survey) or _PERHAPS(survey) or not_applicable("this trains in one process")


def _spawned(survey: Survey) -> Answer | None:
    call = survey.called(r"torch\.multiprocessing\.(?:spawn|start_processes)")
    return not_applicable(f"{survey.quoted(call)} starts the processes") if call else None


def _used_alone(survey: Survey) -> Answer | None:
    wrap = survey.script.program.processes.wraps()[0]
    asked = survey.script.calls.at(wrap).argument("find_unused_parameters")
    if asked.state is State.ABSENT or survey.is_off(asked):
        return used(survey, wrap, " does not search for unused parameters")
    return None


def _by_plain_python(survey: Survey) -> Answer | None:
    if survey.script.program.devices.framework != "transformers":
        return None
    return cannot_tell(
        "whether torchrun or `accelerate launch` starts it: with plain python the Trainer takes "
        "nn.DataParallel where it sees several GPUs"
    )


def _collectives(survey: Survey) -> Answer | None:
    call = survey.called(
        r"torch\.distributed\.(?:all_reduce|reduce|all_gather\w*|gather\w*|barrier|broadcast\w*)"
    )
    if call is None:
        return not_applicable("no collective is called here")
    if survey.script.loops.each_step(call):
        return cannot_tell(f"whether each step needs {survey.placed(call)}")
    return used(survey, call, " is not called in every step")


DISTRIBUTED: Final = by_name(
    _by_plain_python,
    _one_process,
    _spawned,
    _used_alone,
    _collectives,
    no_wrap=_NO_WRAP,
    perhaps=_PERHAPS,
    accumulates=lambda survey: any(True for _ in survey.script.loops.gradient_accumulations.all()),
    reads_rank=lambda survey: used(survey, next(survey.strings("LOCAL_RANK"), None), " is read"),
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
