"""The names that torch warns about, and what is written instead."""

from __future__ import annotations

from typing import Final, NamedTuple

_Version = tuple[int, int]
_ALWAYS: Final = (2, 0)


class Deprecated(NamedTuple):
    """A function that warns at every call."""

    new: str
    """The qualified name of the function that does the same, or what to write, as a sentence."""
    since: _Version = _ALWAYS
    """The version from which torch has it."""
    added: tuple[str, str] | None = None
    """A keyword that the new function needs, with its value."""
    only: bool = False
    """Whether both do the same with a single argument only."""
    unlike: str = ""
    """Why the results, or what is stored, can differ."""
    report: bool = False
    """Whether there is no fix."""
    breaks: tuple[str, ...] = ()
    """Words of code that fails with the new function: no fix beside them."""


def _renamed(module: str, new: str, *old: str) -> dict[str, Deprecated]:
    """Return the entries of functions of a module; `{}` in the new name is the old one."""
    return {f"{module}.{name}": Deprecated(new.format(name)) for name in old}


_QUANTIZED: Final = Deprecated("use `torchao`, to which it moved", report=True)
_HF_ADAMW: Final = Deprecated(
    "Transformers has removed it, and it steps one parameter after the other; use "
    "`torch.optim.AdamW`, whose `weight_decay` is 0.01 and whose `eps` is 1e-8 if not given",
    report=True,
)
_QUANTIZING: Final = "quantize quantize_dynamic quantize_qat prepare prepare_qat convert".split()
_FUNCTORCH: Final = "vmap grad grad_and_value vjp jvp jacrev jacfwd hessian functionalize".split()
_INITIALIZERS: Final = (
    "uniform normal constant eye dirac xavier_uniform xavier_normal kaiming_uniform kaiming_normal "
    "orthogonal sparse"
).split()

NAMES: Final[dict[str, Deprecated]] = {
    **_renamed("torch.nn.init", "torch.nn.init.{}_", *_INITIALIZERS),
    **_renamed("functorch", "torch.func.{}", *_FUNCTORCH),
    **_renamed("torch.cuda", "torch.cuda.memory_reserved", "memory_cached"),
    **_renamed("torch.cuda", "torch.cuda.max_memory_reserved", "max_memory_cached"),
    **_renamed(
        "torch.cuda",
        "torch.cuda.reset_peak_memory_stats",
        "reset_max_memory_cached",
        "reset_max_memory_allocated",
    ),
    **_renamed("torch.nn.utils.stateless", "torch.func.{}", "functional_call"),
    **_renamed("torch.nn", "torch.nn.NLLLoss", "NLLLoss2d"),
    **{
        f"{module}.{name}": _QUANTIZED
        for module in ("torch.ao.quantization", "torch.quantization")
        for name in _QUANTIZING
    },
    "torch.nn.functional.upsample": Deprecated("torch.nn.functional.interpolate"),
    "torch.nn.functional.upsample_nearest": Deprecated(
        "torch.nn.functional.interpolate", added=("mode", '"nearest"')
    ),
    "torch.nn.functional.upsample_bilinear": Deprecated(
        "torch.nn.functional.interpolate", added=("mode", '"bilinear", align_corners=True')
    ),
    "torch.cholesky": Deprecated("torch.linalg.cholesky", only=True),
    "torch.qr": Deprecated("torch.linalg.qr", only=True),
    "torch.nn.utils.weight_norm": Deprecated(
        "torch.nn.utils.parametrizations.weight_norm",
        since=(2, 1),
        unlike="the parameters have other names in checkpoints written from now on, and code that "
        "reads `weight_g` or `weight_v` fails",
        breaks=("weight_g", "weight_v", "remove_weight_norm"),
    ),
    "transformers.AdamW": _HF_ADAMW,
    "transformers.optimization.AdamW": _HF_ADAMW,
    "torch.chain_matmul": Deprecated("write `torch.linalg.multi_dot([...])`", report=True),
    "torch.range": Deprecated("`torch.arange` stops before its end, by one step", report=True),
    "torch.testing.assert_allclose": Deprecated(
        "`assert_close` has other tolerances, and compares dtypes", report=True
    ),
    "torch.set_default_tensor_type": Deprecated(
        "`set_default_dtype` and `set_default_device` set one each", report=True
    ),
    "torch.backends.cuda.sdp_kernel": Deprecated(
        "list the allowed kernels in `torch.nn.attention.sdpa_kernel([...])`; cuDNN's is allowed "
        "as well where `enable_cudnn=False` is missing",
        since=(2, 3),
        report=True,
    ),
    "functorch.make_functional": Deprecated(
        "call the network by `torch.func.functional_call`", report=True
    ),
    "functorch.make_functional_with_buffers": Deprecated(
        "call the network by `torch.func.functional_call`", report=True
    ),
    "functorch.combine_state_for_ensemble": Deprecated(
        "use `torch.func.stack_module_state`", report=True
    ),
}
"""What to write for each function that warns."""

_GUESSED: Final = "it warns and takes dimension 0 of one or three dimensions, else 1: pass `dim`"
NEEDED: Final[dict[str, tuple[str, int, str, str]]] = {
    "torch.meshgrid": ("indexing", 99, '"ij"', "it warns, because its default will change"),
    "torch.nn.functional.softmax": ("dim", 1, "", _GUESSED),
    "torch.nn.functional.log_softmax": ("dim", 1, "", _GUESSED),
    "torch.nn.functional.softmin": ("dim", 1, "", _GUESSED),
    "torch.nn.Softmax": ("dim", 0, "", _GUESSED),
    "torch.nn.LogSoftmax": ("dim", 0, "", _GUESSED),
    "torch.nn.Softmin": ("dim", 0, "", _GUESSED),
    "torch.cross": ("dim", 2, "", "it warns and takes the first dimension of size 3: pass `dim`"),
}
"""Arguments that are to be passed: name, position, the default if it is fixed, the message."""

_KINDS: Final = (
    "L1Loss l1_loss MSELoss mse_loss CrossEntropyLoss cross_entropy NLLLoss nll_loss BCELoss "
    "binary_cross_entropy BCEWithLogitsLoss binary_cross_entropy_with_logits KLDivLoss kl_div "
    "SmoothL1Loss smooth_l1_loss PoissonNLLLoss poisson_nll_loss HingeEmbeddingLoss "
    "hinge_embedding_loss MultiLabelMarginLoss multilabel_margin_loss SoftMarginLoss "
    "soft_margin_loss MultiLabelSoftMarginLoss multilabel_soft_margin_loss CosineEmbeddingLoss "
    "cosine_embedding_loss MultiMarginLoss multi_margin_loss MarginRankingLoss "
    "margin_ranking_loss TripletMarginLoss triplet_margin_loss"
).split()
LOSSES: Final = tuple(
    f"torch.nn.{name}" if name[0].isupper() else f"torch.nn.functional.{name}" for name in _KINDS
)
"""Losses that take `size_average` and `reduce`."""

OVERLOADS: Final = {
    "add_": (2, "alpha"),
    "sub_": (2, "alpha"),
    "addcmul": (3, "value"),
    "addcmul_": (3, "value"),
    "addcdiv": (3, "value"),
    "addcdiv_": (3, "value"),
}
"""Methods of tensors that take a factor first no more: their old length, and its keyword."""
FACTORS_LAST: Final = (1, 5)
"""The torch that deprecates a factor that stands first."""
