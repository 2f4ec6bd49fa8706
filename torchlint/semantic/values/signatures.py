"""Signatures: the places of parameters among the positional arguments of known functions."""

from __future__ import annotations

from functools import cache
from typing import Final

_OPTIMIZER: Final = "params lr betas eps weight_decay amsgrad"
_RECURRENT: Final = "input_size hidden_size"
_CONVOLUTION: Final = (
    "in_channels out_channels kernel_size stride padding dilation groups bias padding_mode"
)
_TRANSPOSED: Final = (
    "in_channels out_channels kernel_size stride padding output_padding groups bias dilation"
)
_LAZY: Final = "out_channels kernel_size stride padding dilation groups bias padding_mode"
_DATA: Final = "data dtype device"

_FUNCTIONS: Final = {
    "ignite.engine.create_supervised_trainer": (
        "model optimizer loss_fn device non_blocking prepare_batch output_transform"
    ),
    "numpy.random.normal": "loc scale size",
    "numpy.random.randint": "low high size",
    "numpy.random.random": "size",
    "numpy.random.random_sample": "size",
    "numpy.random.uniform": "low high size",
    "os.environ.setdefault": "key value",
    "os.putenv": "key value",
    "torch.as_tensor": _DATA,
    "torch.autograd.Variable": "data requires_grad volatile",
    "torch.autograd.grad": "outputs inputs grad_outputs retain_graph create_graph",
    "torch.autograd.profiler.emit_nvtx": "enabled record_shapes",
    "torch.autograd.profiler.profile": "enabled",
    "torch.bincount": "input weights minlength",
    "torch.autograd.set_detect_anomaly": "mode check_nan",
    "torch.cuda.memory._record_memory_history": "enabled",
    "torch.distributed.init_process_group": "backend init_method timeout world_size rank store",
    "torch.jit.script": "obj",
    "torch.jit.trace": "func example_inputs",
    "torch.load": "f map_location pickle_module",
    "torch.nn.Bilinear": "in1_features in2_features out_features bias",
    "torch.nn.Conv1d": _CONVOLUTION,
    "torch.nn.Conv2d": _CONVOLUTION,
    "torch.nn.Conv3d": _CONVOLUTION,
    "torch.nn.ConvTranspose1d": _TRANSPOSED,
    "torch.nn.ConvTranspose2d": _TRANSPOSED,
    "torch.nn.ConvTranspose3d": _TRANSPOSED,
    "torch.nn.DataParallel": "module device_ids output_device dim",
    "torch.nn.Dropout": "p inplace",
    "torch.nn.Embedding": "num_embeddings embedding_dim padding_idx",
    "torch.nn.GRU": _RECURRENT,
    "torch.nn.GRUCell": _RECURRENT,
    "torch.nn.LSTM": _RECURRENT,
    "torch.nn.LSTMCell": _RECURRENT,
    "torch.nn.LazyConv1d": _LAZY,
    "torch.nn.LazyConv2d": _LAZY,
    "torch.nn.LazyConv3d": _LAZY,
    "torch.nn.LazyLinear": "out_features bias",
    "torch.nn.Linear": "in_features out_features bias",
    "torch.nn.MultiheadAttention": "embed_dim num_heads dropout bias",
    "torch.nn.RNN": _RECURRENT,
    "torch.nn.RNNCell": _RECURRENT,
    "torch.nn.functional.cross_entropy": "input target weight",
    "torch.nn.functional.dropout": "input p training inplace",
    "torch.nn.functional.interpolate": "input size scale_factor mode align_corners",
    "torch.nn.functional.linear": "input weight bias",
    "torch.nn.functional.one_hot": "tensor num_classes",
    "torch.nn.functional.scaled_dot_product_attention": (
        "query key value attn_mask dropout_p is_causal"
    ),
    "torch.nn.parallel.DistributedDataParallel": (
        "module device_ids output_device dim broadcast_buffers"
    ),
    "torch.nn.utils.clip_grad_norm_": "parameters max_norm norm_type error_if_nonfinite foreach",
    "torch.nn.utils.rnn.pack_padded_sequence": "input lengths batch_first enforce_sorted",
    "torch.optim.Adam": _OPTIMIZER,
    "torch.optim.AdamW": _OPTIMIZER,
    "torch.optim.SGD": "params lr momentum dampening weight_decay nesterov",
    "torch.optim.lr_scheduler.CosineAnnealingLR": "optimizer T_max eta_min last_epoch",
    "torch.optim.lr_scheduler.CyclicLR": "optimizer base_lr max_lr step_size_up step_size_down",
    "torch.optim.lr_scheduler.ExponentialLR": "optimizer gamma last_epoch",
    "torch.optim.lr_scheduler.LinearLR": "optimizer start_factor end_factor total_iters",
    "torch.optim.lr_scheduler.MultiStepLR": "optimizer milestones gamma last_epoch",
    "torch.optim.lr_scheduler.OneCycleLR": "optimizer max_lr total_steps epochs steps_per_epoch",
    "torch.optim.lr_scheduler.PolynomialLR": "optimizer total_iters power last_epoch",
    "torch.optim.lr_scheduler.StepLR": "optimizer step_size gamma last_epoch",
    "torch.repeat_interleave": "input repeats dim output_size",
    "torch.save": "obj f pickle_module",
    "torch.tensor": _DATA,
    "torch.utils.data.BatchSampler": "sampler batch_size drop_last",
    "torch.utils.data.DataLoader": (
        "dataset batch_size shuffle sampler batch_sampler num_workers collate_fn pin_memory "
        "drop_last timeout worker_init_fn multiprocessing_context generator"
    ),
    "torch.utils.data.DistributedSampler": "dataset num_replicas rank shuffle seed drop_last",
    "torch_geometric.loader.DataLoader": "dataset batch_size shuffle follow_batch exclude_keys",
    **dict.fromkeys(
        (
            f"transformers.{module}get_{name}_schedule_with_warmup"
            for module in ("", "optimization.")
            for name in ("linear", "cosine", "polynomial_decay")
        ),
        "optimizer num_warmup_steps num_training_steps",
    ),
    **dict.fromkeys(
        ("transformers.get_scheduler", "transformers.optimization.get_scheduler"),
        "name optimizer num_warmup_steps num_training_steps",
    ),
}
_METHODS: Final = {
    "add_event_handler": "event_name handler",
    "backward": "gradient retain_graph create_graph inputs",
    "bincount": "weights minlength",
    "cuda": "device non_blocking",
    "map": "function",
    "repeat_interleave": "repeats dim output_size",
    "set_transform": "transform",
    "to": "device dtype non_blocking",
    "with_transform": "transform",
    "zero_grad": "set_to_none",
}


def place(function: str | None, method: str, parameter: str) -> int | None:
    """Return the place of a parameter among positional arguments, None if it has or shows none."""
    names = _FUNCTIONS.get(function or "") or _METHODS.get(method)
    return _places(names).get(parameter) if names is not None else None


@cache
def _places(names: str) -> dict[str, int]:
    return {name: at for at, name in enumerate(names.split())}
