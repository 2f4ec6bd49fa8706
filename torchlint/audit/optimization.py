"""Questions about techniques of the optimization step."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.audit.survey import Survey
from torchlint.audit.technique import (
    Answer,
    by_name,
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


def _batch_size(survey: Survey) -> Answer | None:
    sizes = (_size_of(survey, site) for site in survey.loaders)
    return next(filter(None, sizes), None)


def _size_of(survey: Survey, site: CallSite) -> Answer | None:
    given = site.expression("batch_size", 1)
    value = site.argument("batch_size", 1)
    if given is None or value.equals(None):
        return None
    size = value.literal if isinstance(value.literal, int) else survey.default(given)
    written = f"`{survey.script.code(given)}`"
    if not isinstance(size, int):
        return cannot_tell(f"the batch size {written} is only known at run time")
    if size > _SMALL:
        return in_use(survey.line(given), f"batches of {size}")
    if not value.is_literal:
        return cannot_tell(f"the batch size {written} defaults to {size}")
    if not survey.can_use_accelerator:
        return cannot_tell(f"whether this CPU trains faster with larger batches than {size}")
    why = f"batches of {size}: try doubling them, and scale the learning rate"
    return missing(survey.line(given), why)


OPTIMIZATION: Final = by_name(
    _fused,
    _not_fusable,
    _freezes,
    _accumulates,
    _by_accelerate,
    _seldom_clipped,
    _scheduled,
    _by_hand,
    _second_order,
    _constant_rate,
    _batch_size,
    chosen=lambda survey: used(survey, survey.optimizers[0].node),
    made_once=lambda survey: used(survey, survey.optimizers[0].node, " is created once"),
)
