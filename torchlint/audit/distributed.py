"""Techniques of training on several GPUs."""

from __future__ import annotations

from typing import Final

from torchlint.audit.questions import (
    accelerated,
    calls,
    keyword,
    mentions,
    method,
    owned,
    trained,
    unknown,
    unless,
    unseen,
    whole,
    words,
)
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Answer, Technique, cannot_tell, not_applicable, used
from torchlint.semantic.values.values import State

_PERHAPS: Final = mentions(
    r"\w*distributed|ddp|\w*world_size|\w*local_rank", "does with several GPUs"
)
_NO_WRAP: Final = unless(
    lambda survey: survey.script.program.processes.wraps(), "no DistributedDataParallel here"
)
_WRAPS: Final = (
    r"torch\.nn\.parallel\.DistributedDataParallel|torch\.distributed\.fsdp\.\w+|"
    r"(?:deepspeed\.initialize|horovod\.torch\.init)|apex\.parallel\.DistributedDataParallel"
)


def _one_process(survey: Survey) -> Answer | None:
    if survey.script.program.processes.has_wraps or survey.called(r"torch\.distributed\.\w+"):
        return None
    return whole(survey) or _PERHAPS(survey) or not_applicable("this trains in one process")


def _spawned(survey: Survey) -> Answer | None:
    call = survey.called(r"torch\.multiprocessing\.(?:spawn|start_processes)")
    return not_applicable(f"{survey.quoted(call)} starts the processes") if call else None


def _accumulates(survey: Survey) -> bool:
    return any(True for _ in survey.script.loops.gradient_accumulations.all())


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


def _reads_rank(survey: Survey) -> Answer | None:
    return used(survey, next(survey.strings("LOCAL_RANK"), None), " is read")


DISTRIBUTED: Final = (
    Technique(
        "DistributedDataParallel on several GPUs",
        ("S0", "S1", "S2", "S3.10"),
        (calls(_WRAPS), owned, accelerated, trained,
         _PERHAPS,
         unseen("how many GPUs there are: one is used here")),
        ("TL701",),
        "cited, without a figure: DataParallel copies the network again in every step",
    ),
    Technique(
        "torchrun starts the processes",
        ("S1",),
        (_reads_rank, _by_plain_python, owned, _one_process, _spawned,
         unseen("how the processes are started")),
        ("TL703",),
    ),
    Technique(
        "data sharded by process and reshuffled every epoch",
        ("S1",),
        (method("set_epoch"), calls(r"torch\.utils\.data\.DistributedSampler"), owned,
         _one_process, unknown("how the data is split between the processes")),
        ("TL702", "TL706"),
    ),
    Technique(
        "gradients synchronized once per accumulation",
        ("S3.9",),
        (method("no_sync"), words("require_backward_grad_sync"), owned, _one_process,
         unless(_accumulates, "no gradients are accumulated here"),
         unknown("whether gradients are synchronized in every pass")),
        ("TL704",),
        "measured x1.47 for two processes on a CPU that accumulate four batches",
    ),
    Technique(
        "no search for unused parameters",
        ("S1",),
        (owned, _NO_WRAP, _used_alone, unknown("whether a parameter goes unused in some step")),
        ("TL705",),
        "measured x1.04 on two CPU cores",
    ),
    Technique(
        "gradients reduced in place, in suitable buckets",
        (),
        (keyword(r"gradient_as_bucket_view|static_graph|bucket_cap_mb(?:_list)?|batched_grad_copy"),
         _NO_WRAP, unknown("whether a copy of all gradients is worth the saving")),
        ("TL708",),
        "saves the memory of one copy of all gradients (`gradient_as_bucket_view=True`)",
    ),
    Technique(
        "no collective in every step",
        ("S1",),
        (owned, _one_process, _collectives),
        ("TL707",),
    ),
)  # fmt: skip
