"""Questions about techniques of precision and kernels."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.audit.questions import (
    calls,
    unless,
)
from torchlint.audit.survey import Survey
from torchlint.audit.technique import (
    Answer,
    by_name,
    cannot_tell,
    in_use,
    not_applicable,
    used,
)

_AUTOCAST: Final = r"torch\.(?:amp|cuda\.amp|cpu\.amp)\.autocast"
_WIDE: Final = unless(
    lambda survey: not survey.script.values.precision.is_wide,
    "complex numbers, float64 or matrix inverses need full precision",
)
_MODES: Final = frozenset({"reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"})


def _other_low(survey: Survey) -> Answer | None:
    if survey.script.values.precision.mentions_low_precision:
        return cannot_tell("whether this trains in the low precision that it mentions")
    return None


def _autocast_in_order(survey: Survey) -> Answer:
    call = survey.called(_AUTOCAST) or survey.called(r"torch\.(?:cuda\.)?amp\.GradScaler")
    if call is None:
        return not_applicable("no autocast and no scaler of torch's own here")
    return in_use(survey.line(call), "autocast and scaler are used correctly")


def _tuned(survey: Survey) -> Answer | None:
    for line in survey.assigned("torch.backends.cudnn.benchmark"):
        value = survey.script.values.value_of(line.value)
        if value.equals(True):
            return used(survey, line)
        if not value.is_literal:
            return cannot_tell(f"{survey.quoted(line)} is only known at run time")
    return None


def _deterministic(survey: Survey) -> Answer | None:
    setting = next(survey.script.program.determinism.settings(), None)
    if setting is None:
        return None
    return not_applicable(f"line {survey.line(setting.node)} asks for deterministic kernels")


def _tf32(survey: Survey) -> Answer | None:
    call = survey.called(r"torch\.set_float32_matmul_precision")
    if call is not None:
        full = survey.script.calls.at(call).argument("precision", 0).equals("highest")
        if full:
            return not_applicable("full precision is set explicitly")
        return used(survey, call)
    for name in (
        "torch.backends.cuda.matmul.allow_tf32",
        "torch.backends.cuda.matmul.fp32_precision",
    ):
        for line in survey.assigned(name):
            value = survey.script.values.value_of(line.value)
            if value.equals(False) or value.equals("ieee"):
                return not_applicable("full precision is set explicitly")
            return used(survey, line)
    return None


def _compiled(survey: Survey) -> Answer | None:
    found = survey.named("torch.compile")
    if found is not None:
        return used(survey, found)
    for site in survey.script.calls.of_methods("compile"):
        if site.name is None:
            return used(survey, site.node)
    return None


_NOT_COMPILED: Final = unless(
    lambda survey: _compiled(survey) or survey.keyword("torch_compile"), "nothing is compiled here"
)


def _mode(survey: Survey) -> Answer | None:
    for name in ("mode", "torch_compile_mode"):
        arg = survey.keyword(name)
        given = survey.script.values.value_of(arg.value).literal if arg is not None else None
        if arg is not None and given in _MODES:
            return used(survey, arg)
    return None


def _block_by_block(survey: Survey) -> Answer | None:
    blocks = survey.word("compile_repeated_blocks|use_regional_compilation|compile_regions")
    if blocks is not None:
        return used(survey, blocks)
    calls = survey.script.calls
    for site in (*calls.of("torch.compile"), *calls.of_methods("compile")):
        if any(isinstance(each.node, cst.For) for each in survey.script.loops.around(site.node)):
            return used(survey, site.node, " in a loop over the blocks")
    return None


def _aligned(survey: Survey) -> Answer | None:
    sizes = [
        (call, int(arg.value.value))
        for name, call in survey.named_calls
        if re.fullmatch(r"torch\.nn\.(?:Linear|Conv[123]d|Embedding)", name)
        for arg in call.args[:2]
        if isinstance(arg.value, cst.Integer) and arg.value.value.isdigit()
    ]
    large = [(call, size) for call, size in sizes if size >= 64]
    if not large:
        return cannot_tell("the sizes of the layers are not literals here")
    call, size = large[0]
    if all(each % 8 == 0 for _, each in large):
        return in_use(survey.line(call), f"{size} and the like are multiples of 8")
    odd = next(each for _, each in large if each % 8)
    return cannot_tell(f"whether a layer of {odd} could be padded to a multiple of 8")


PRECISION: Final = by_name(
    _other_low,
    _autocast_in_order,
    _tuned,
    _deterministic,
    _tf32,
    _compiled,
    _mode,
    _block_by_block,
    _aligned,
    not_compiled=_NOT_COMPILED,
    wide=_WIDE,
    autocast=calls(_AUTOCAST),
    no_autocast=lambda survey: not survey.called(_AUTOCAST),
)
