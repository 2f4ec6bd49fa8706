"""Techniques of the optimization step."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.audit.questions import (
    argument,
    calls,
    looped,
    mentions,
    method,
    missing_at_training,
    optimized,
    trained,
    trainer_option,
    unknown,
    unseen,
    words,
)
from torchlint.audit.survey import Survey
from torchlint.audit.technique import (
    Answer,
    Technique,
    cannot_tell,
    elsewhere,
    in_use,
    missing,
    not_applicable,
    used,
)
from torchlint.semantic.values.calls import CallSite

_FUSABLE: Final = frozenset(f"torch.optim.{name}" for name in ("Adam", "AdamW", "SGD", "Adagrad"))
_RECURRENT: Final = (
    r"torch\.nn\.(?:RNN|LSTM|GRU|RNNCell|LSTMCell|GRUCell|Transformer\w*|MultiheadAttention|"
    r"functional\.scaled_dot_product_attention)"
)
_SMALL: Final = 16


def _fused(survey: Survey) -> Answer | None:
    for site in survey.optimizers:
        for name in ("fused", "foreach"):
            given = site.given(name)
            if given is not None and not site.argument(name).equals(False):
                return used(survey, given)
    return None


def _not_fusable(survey: Survey) -> Answer | None:
    if any(site.name in _FUSABLE for site in survey.optimizers):
        return None
    return not_applicable(f"{survey.quoted(survey.optimizers[0].node)} has no fused form")


def _chosen(survey: Survey) -> Answer | None:
    return used(survey, survey.optimizers[0].node)


def _accumulates(survey: Survey) -> Answer | None:
    window = next(iter(survey.script.loops.gradient_accumulations.all()), None)
    return used(survey, window and window.backwards[0], " accumulates over several batches")


def _by_accelerate(survey: Survey) -> Answer | None:
    ours = survey.script.program.devices.framework == "accelerate"
    return used(survey, survey.method("accumulate")) if ours else None


def _by_hand(survey: Survey) -> Answer | None:
    for each in survey.script.tree.all(cst.AssignTarget):
        if isinstance(each.target, cst.Subscript):
            key = survey.script.code(each.target).rpartition("[")[2]
            if key.strip("]'\" ") == "lr":
                return used(survey, each.target, " is set")
    return None


def _scheduled(survey: Survey) -> Answer | None:
    made = survey.script.optimizers.schedulers.made
    if not made:
        return None
    warm = "" if survey.word(r"\w*warm_?up\w*|OneCycleLR") else "; no warm-up found"
    return used(survey, made[0].call, warm)


def _second_order(survey: Survey) -> Answer | None:
    if all((site.name or "").endswith("LBFGS") for site in survey.optimizers):
        return not_applicable("LBFGS chooses its step size itself")
    return None


def _constant_rate(survey: Survey) -> Answer | None:
    site = survey.optimizers[0]
    return missing(survey.line(site.node), f"{survey.quoted(site.node)} keeps one learning rate")


def _seldom_clipped(survey: Survey) -> Answer | None:
    if survey.called(_RECURRENT) or survey.word(r"\w*attn\w*|\w*Attention"):
        return None
    if survey.networks:
        return not_applicable("no recurrent layer and no attention here")
    return elsewhere("the network is not here")


def _freezes(survey: Survey) -> Answer | None:
    places = [each for each in survey.script.modules.freezing.all if each.learns is not True]
    if not places:
        return not_applicable("no parameter is frozen here")
    for site in survey.optimizers:
        given = site.given("params", 0)
        if given is not None and "requires_grad" in survey.script.values.code_of(given.value):
            return used(survey, site.node, " gets trainable parameters only")
    return cannot_tell(f"which optimized parameters line {survey.line(places[0].node)} freezes")


def _made_once(survey: Survey) -> Answer | None:
    return used(survey, survey.optimizers[0].node, " is created once")


def _batch_size(survey: Survey) -> Answer | None:
    sizes = (_size_of(survey, site) for site in survey.loaders)
    return next(filter(None, sizes), None)


def _size_of(survey: Survey, site: CallSite) -> Answer | None:
    given = site.given("batch_size", 1)
    value = site.argument("batch_size", 1)
    if given is None or value.equals(None):
        return None
    size = value.literal if isinstance(value.literal, int) else survey.default(given.value)
    written = f"`{survey.script.code(given.value)}`"
    if not isinstance(size, int):
        return cannot_tell(f"the batch size {written} is only known at run time")
    if size > _SMALL:
        return in_use(survey.line(given.value), f"batches of {size}")
    if not value.is_literal:
        return cannot_tell(f"the batch size {written} defaults to {size}")
    if not survey.can_use_accelerator:
        return cannot_tell(f"whether this CPU trains faster with larger batches than {size}")
    why = f"batches of {size}: try doubling them, and scale the learning rate"
    return missing(survey.line(given.value), why)


OPTIMIZATION: Final = (
    Technique(
        "fused optimizer",
        ("S3.5",),
        (_fused, argument(r"\w*fused\w*", "optim"), looped, optimized, _not_fusable,
         unknown("whether this optimizer can be fused as it is used here")),
        ("TL501", "TL509"),
        "measured x2.8 to x5.2 for the step of AdamW on two CPU cores; cited: 5 % of a run on GPUs",
    ),
    Technique(
        "gradients set to None in every step",
        ("S3.11",),
        (method("zero_grad"), looped, trained, unknown("what clears the gradients of this loop")),
        ("TL502", "TL507"),
        "measured x1.12 to x1.13 a step of 20 small tensors on two CPU cores",
    ),
    Technique(
        "choice of optimizer",
        ("S2", "S3.5"),
        (trainer_option("optim"), optimized, _chosen),
        ("TL503",),
        "no gain in speed: decoupled weight decay generalizes better",
    ),
    Technique(
        "optimizer, scheduler and loss created once",
        ("S2",),
        (looped, optimized, _made_once),
        ("TL510",),
    ),
    Technique(
        "frozen parameters left out",
        ("S2",),
        (_freezes,),
        ("TL508",),
        "measured x1.03 to x1.17 on two CPU cores",
    ),
    Technique(
        "gradient accumulation",
        ("S0", "S1", "S2", "S3.9"),
        (_accumulates, trainer_option("gradient_accumulation_steps|accumulate_grad_batches"),
         _by_accelerate, looped, trained,
         mentions(r"\w*accum\w*", "accumulates"),
         unknown("whether a larger batch would help that does not fit into memory")),
        ("TL504",),
    ),
    Technique(
        "gradient clipping",
        ("S3.14",),
        (calls(r"torch\.nn\.utils\.clip_grad_\w+|torch\.nn\.utils\.get_total_norm"),
         method("clip_grad_norm_", "clip_grad_value_", "clip_gradients"),
         trainer_option("gradient_clip_val|max_grad_norm|clip_grad"), looped, trained,
         mentions(r"(?:\w+_)?(?:clip_grad|grad_clip|max_grad_norm|clip_norm)\w*", "clips"),
         _seldom_clipped,
         missing_at_training("recurrent layers or attention train without clipping")),
        ("TL304", "TL506"),
        "cited: steadier training, no speed-up by itself",
    ),
    Technique(
        "learning-rate schedule and warm-up",
        ("S1", "S2", "S3.1"),
        (_scheduled, calls(r"transformers\.(?:\w+\.)*get_\w*schedule\w*|timm\.scheduler\.\w+"),
         trainer_option(r"warmup_(?:steps|ratio)|lr_scheduler_type"),
         _by_hand, words(r"lr_?scheduler(?:_type)?|\w*adjust_learning_rate|create_scheduler"),
         looped, trained, optimized, _second_order,
         mentions(r"\w*(?:schedul|warm_?up|anneal|lr_decay|decay_lr)\w*",
                   "does to the learning rate"),
         _constant_rate),
        ("TL505",),
        "cited: a tenth of the iterations with OneCycleLR",
    ),
    Technique(
        "batch size",
        ("S3.3",),
        (_batch_size, trainer_option("per_device_train_batch_size|train_batch_size"), trained,
         unseen("the batch size is not set at a DataLoader here")),
        gain="measured x4.3 to x9.5 an epoch from 16 to 256 on two CPU cores; cited: x4 from 64"
        " to 512",
    ),
)  # fmt: skip
