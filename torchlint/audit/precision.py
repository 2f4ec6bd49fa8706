"""Techniques of precision and kernels."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.audit.questions import (
    accelerated,
    argument,
    calls,
    keyword,
    layered,
    looped,
    named,
    owned,
    trained,
    trainer_option,
    unknown,
    unless,
    unseen,
)
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Answer, Technique, cannot_tell, in_use, not_applicable, used

_AUTOCAST: Final = r"torch\.(?:amp|cuda\.amp|cpu\.amp)\.autocast"
_CONVOLUTIONS: Final = r"Conv[23]d|ConvTranspose[23]d|conv[23]d|resnet\w*|vgg\w*|\w*CNN"
_POINTWISE: Final = (
    r"torch\.nn\.(?:functional\.)?(?:gelu|silu|mish|softplus|logsigmoid|GELU|SiLU|Mish|Softplus"
    r"|LogSigmoid|layer_norm|LayerNorm|rms_norm|RMSNorm|log_softmax|LogSoftmax|softmax|Softmax"
    r"|relu|ReLU|LeakyReLU|ELU|Tanh|Sigmoid)"
)
_WIDE: Final = unless(
    lambda survey: not survey.script.values.precision.is_wide,
    "complex numbers, float64 or matrix inverses need full precision",
)
_MODES: Final = frozenset({"reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"})
_ATTENTION: Final = r"(?:\w*_)?attn(?:_\w+)?|\w*Attention\w*|attention\w*|Transformer\w*"


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


PRECISION: Final = (
    Technique(
        "mixed precision",
        ("S0", "S1", "S2", "S3.4"),
        (calls(_AUTOCAST), trainer_option(r"precision|fp16|bf16|mixed_precision"),
         accelerated, owned, _WIDE, _other_low, trained,
         unknown("whether this training keeps its accuracy in low precision")),
        ("TL301", "TL319"),
        "measured x2.1 to x3.3 for a convolutional step on a CPU with bfloat16 units; cited: x2"
        " to x3 on GPUs",
    ),
    Technique(
        "autocast and scaler used correctly",
        ("S0", "S1", "S3.4"),
        (_autocast_in_order,),
        ("TL302", "TL303", "TL314", "TL320"),
    ),
    Technique(
        "cuDNN's autotuner",
        ("S3.6",),
        (_tuned, accelerated, looped, layered(_CONVOLUTIONS, "no convolution here"),
         _deterministic, trained, unknown("whether every batch has the same shape")),
        ("TL305",),
        "cited: 27 % more steps a second for one convolution",
    ),
    Technique(
        "TF32 matmuls",
        ("S2",),
        (_tf32, accelerated, looped, _WIDE,
         unless(lambda survey: not survey.called(_AUTOCAST), "autocast covers the matmuls"),
         trained,
         unknown("whether matmuls take a relevant share of the time")),
        ("TL306",),
        "no figure yet; for float32 matmuls on Ampere and later GPUs",
    ),
    Technique(
        "channels-last memory format",
        ("S2",),
        (named("torch.channels_last"), accelerated, looped,
         layered(_CONVOLUTIONS, "no convolution here"),
         unknown("whether every layer keeps this layout")),
        ("TL307",),
        "measured x1.10 to x1.23 for four convolutions on two CPU cores; cited: 22 % for a"
        " ResNet-50 with autocast",
    ),
    Technique(
        "compiled networks",
        ("S1", "S3.bonus"),
        (_compiled, trainer_option("torch_compile"), accelerated, looped, trained,
         unknown("whether the run is long enough to pay for the compilation")),
        ("TL308", "TL309", "TL313", "TL316", "TL317", "TL318"),
        "measured x2.5 for an activation written out, x0.7 for a tiny network, on a CPU",
    ),
    Technique(
        "the compiler's mode",
        (),
        (_mode, _NOT_COMPILED,
         unknown("whether the kernels are worth a search, or so short that starting them counts")),
        gain="no figure yet; for large products (`max-autotune`) and short kernels"
        " (`reduce-overhead`)",
    ),
    Technique(
        "equal blocks compiled one by one",
        (),
        (_block_by_block, _NOT_COMPILED, unknown("whether the network repeats equal blocks")),
        gain="saves the compilation of all blocks but one: 12 equal ones are compiled once",
    ),
    Technique(
        "fused attention",
        ("S2", "S3.bonus"),
        (calls(r"torch\.nn\.functional\.scaled_dot_product_attention|flash_attn\.\w+|"
               r"torch\.nn\.(?:Transformer\w*|MultiheadAttention)|xformers\.ops\.\w+|"
               r"torch\.nn\.attention\.(?:flex_attention|varlen)\.\w+"),
         argument("sdpa|flex_attention|flash_attention\\w*|kernels\\S*", "attn_implementation"),
         layered(_ATTENTION, "no attention here"),
         unknown("whether this attention is what the fused kernel computes")),
        ("TL310", "TL315", "TL331"),
        "measured x1.8 to x1.95 for a causal step, x0.7 to x0.8 for one without a mask, on two CPU"
        " cores",
    ),
    Technique(
        "no copies of keys, values and masks for attention",
        (),
        (keyword("enable_gqa|is_causal|block_mask"), layered(_ATTENTION, "no attention here"),
         unknown("what the attention is given")),
        ("TL321", "TL322"),
        "measured x1.5 to x1.6 a step with 16 heads and 4 of keys and values, on two CPU cores",
    ),
    Technique(
        "torch's own pointwise functions",
        ("S3.bonus",),
        (calls(_POINTWISE), layered("forward", "no network is written here"),
         unseen("no activation of torch's own is used here")),
        ("TL311",),
        "measured x13.7 to x16.6 for GELU, forward and backward, on a CPU",
    ),
    Technique(
        "layer sizes that suit tensor cores",
        ("S2",),
        (accelerated, layered("Linear|Conv[123]d|Embedding", "no layer is made here"),
         _aligned),
        ("TL312",),
        "measured x1.1 for a product of bfloat16 matrices on a CPU",
    ),
)  # fmt: skip
