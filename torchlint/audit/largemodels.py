"""Techniques of large models and of modern pre-training."""

from __future__ import annotations

from typing import Final

from torchlint.audit.questions import (
    accelerated,
    argument,
    calls,
    keyword,
    layered,
    looped,
    trained,
    unknown,
    unless,
    words,
)
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Answer, Technique, used

_GRAPHED: Final = frozenset({"reduce-overhead", "max-autotune"})
_FLOAT8: Final = r"fp8|float8|transformer-engine(?:-float16)?"
_SHARDING: Final = r"(?:fsdp|deepspeed)\w*"
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


def _freezes(survey: Survey) -> object:
    return survey.method("requires_grad_") or survey.assigned_attribute("requires_grad")


def _saves(survey: Survey) -> object:
    return survey.calling(r"save\w*|\w+_save") or survey.framework


LARGE_MODELS: Final = (
    Technique(
        "CUDA graphs",
        (),
        (calls(r"torch\.(?:cuda|accelerator)\.(?:graphs\.)?"
               r"(?:graph|make_graphed_callables|CUDAGraph|Graph)"),
         _graphed_by_compiler, accelerated, looped, trained,
         unknown("whether kernels are so short that starting them takes the time")),
        gain="no figure yet; for steps of many short kernels on a GPU",
    ),
    Technique(
        "float8 matrix products",
        (),
        (calls(r"torchao\.float8\.\w+|transformer_engine\.(?:\w+\.)*fp8_autocast"),
         argument(_FLOAT8, "precision", "mixed_precision"), accelerated,
         layered("Linear", "no linear layer is made in this file"),
         unknown("whether the GPU has float8 units and the products are large")),
        gain="no figure yet; for large products on GPUs of 2022 and later",
    ),
    Technique(
        "sequences packed, or grouped by length",
        ("S1",),
        (calls(r"torch\.nn\.attention\.(?:flex_attention|varlen)\.\w+|flash_attn\.\w*varlen\w*"),
         keyword(r"packing|group_by_length|padding_free|train_sampling_strategy"),
         words(r"cu_seqlens\w*|\w*pack(?:ed|ing)?_?(?:sequences?|dataset|tokens)|group_texts|"
               r"BucketBatchSampler|LengthGroupedSampler"),
         _WITHOUT_SEQUENCES, unknown("how much of a batch is padding")),
        ("TL113",),
        "measured x3.7 for a step of 64 tokens against one padded to 256 on two CPU cores",
    ),
    Technique(
        "parameters and optimizer state sharded",
        (),
        (calls(r"torch\.distributed\.(?:_composable\.)?fsdp\.(?:\w+\.)*(?:fully_shard|"
               r"FullyShardedDataParallel)|torch\.distributed\.optim\.ZeroRedundancyOptimizer|"
               r"deepspeed\.initialize|\w+(?:\.\w+)*\.(?:FSDP|DeepSpeed|ModelParallel)Strategy"),
         keyword(r"fsdp|deepspeed|fsdp_plugin|deepspeed_plugins?"),
         argument(_SHARDING, "strategy"), accelerated,
         unknown("whether one device is too small for parameters, gradients and their moments")),
        gain="saves memory: each process keeps its share",
    ),
    Technique(
        "checkpoints written while training goes on",
        (),
        (calls(r"torch\.distributed\.checkpoint\.(?:\w+\.)*async_save"),
         words(r"async_save\w*|AsyncCheckpointIO|save_async\w*"),
         unless(_saves, "nothing is saved in this file"),
         unknown("how long the steps wait for a checkpoint")),
        ("TL904",),
        "saves the time that a step waits for the disk",
    ),
    Technique(
        "losses without the logits of a whole vocabulary",
        (),
        (calls(r"torch\.nn\.functional\.linear_cross_entropy|(?:liger_kernel|cut_cross_entropy)\..+"),
         keyword(r"use_liger(?:_kernel|_loss)?"), _WITHOUT_SEQUENCES,
         unknown("whether the logits take much of the memory")),
        ("TL409",),
        "saves memory: 117 MiB for 745 with 2,048 tokens and 32,000 words",
    ),
    Technique(
        "outputs of frozen networks kept",
        (),
        (words(r"(?:\w+_)?(?:cached?|precomputed?|stored)_(?:\w+_)?(?:latents?|embed\w*|features?)|"
               r"(?:latents?|embed\w*|features?)_caches?|vae_cache\w*"),
         unless(_freezes, "nothing is frozen in this file"), trained,
         unknown("whether a frozen network sees the same data in every epoch")),
        ("TL410",),
        "saves the forward pass of the frozen network in every epoch but the first",
    ),
    Technique(
        "averaged weights",
        (),
        (calls(r"torch\.optim\.swa_utils\.\w+|torch_ema\.\w+|ema_pytorch\.\w+|timm\.utils\.\w*Ema\w*"),
         words(r"(?:\w+_)?ema(?:_\w+)?|\w*EMA|ModelEma\w*|\w*WeightAveraging"), trained,
         unknown("whether averaged weights would evaluate better")),
        gain="no gain in speed: fewer steps to the same accuracy for many models",
    ),
    Technique(
        "orthogonal updates for matrices (Muon)",
        (),
        (calls(r"(?:\w+\.)*(?:\w*Muon\w*)"), argument(r"\w*muon\w*", "optim", "optimizer"),
         looped, trained, layered("Linear", "no linear layer is made in this file"),
         unknown("whether Muon would need fewer steps for the matrices of hidden layers")),
        gain="no gain in speed: fewer steps to the same loss for many language models",
    ),
)  # fmt: skip
