"""Constructs that end a graph of torch's compiler, with the name that torch has for the break."""

from __future__ import annotations

from typing import Final, NamedTuple

NAMES: Final = {
    "GB0007": "Attempted to call function marked as skipped",
    "GB0014": "Attempted to wrap RNN, GRU, or LSTM",
    "GB0033": "Data dependent operator",
    "GB0036": "Dynamic shape operator",
    "GB0059": "Failed to trace builtin operator",
    "GB0109": "Tensor.tolist() with non-integer tensor",
    "GB0123": "Unsupported Tensor.backward() call",
    "GB0124": "Unsupported Tensor.item() call with capture_scalar_outputs=False",
    "GB0156": "Unsupported method call",
    "GB0170": "Data-dependent branching",
    "GB0208": "torch.* op returned non-Tensor",
    "GB0246": "Attempted to use `torch.nn.functional.one_hot` with data-dependent output shape",
    "GB0277": "Attempted to wrap sparse Tensor with VariableTracker",
    "GB0291": "logging.Logger method not supported for non-export cases",
    "GB0294": "attempted to trace numpy function unsupported by PyTorch",
    "GB0569": "repr() on tensor",
    "GB4198": "Attempted to copy.deepcopy a tensor",
    "GB4841": "Unsupported python_type() call",
    "GB6215": "Unresolved GetAttrVariable comparison",
    "GB9186": ("using `torch.autograd.grad` with `torch._dynamo.config.trace_autograd_ops=False`"),
}
"""Torch's names of its graph breaks."""

_OUT: Final = "remove it, or put it under `if not torch.compiler.is_compiling():`"
_BEFORE: Final = "call it before, and pass the result"
_DRAWN: Final = "draw with `torch.rand(())` and choose with `torch.where`"
_CHOOSE: Final = "choose with `torch.where` or `torch.cond`"
_STAY: Final = "stay on tensors"
_APART: Final = "compile the forward and the optimizer's step apart"
_SHAPED: Final = "keep the shape: multiply by the mask, or use `torch.where(mask, a, b)`"


_WAITING: Final = frozenset("GB0033 GB0036 GB0109 GB0124 GB0170 GB0246".split())
"""The breaks for which the host needs the values of a tensor."""


class Construct(NamedTuple):
    """What torch calls a graph break, and what to do about it."""

    name: str
    cure: str

    @property
    def waits(self) -> bool:
        """Whether the host waits for the device here, too: not for what it draws itself."""
        return self.name in _WAITING and self.cure != _DRAWN


def _constructs(name: str, cure: str, keys: str) -> dict[str, Construct]:
    return dict.fromkeys(keys.split(), Construct(name, cure))


CONSTRUCTS: Final = {
    **_constructs("GB0059", _OUT, "builtins.print builtins.open builtins.str"),
    **_constructs("GB0059", "keep the number on the host too", "builtins.range"),
    **_constructs("GB0569", _OUT, "builtins.repr"),
    **_constructs("GB4841", _OUT, "logging.debug logging.info logging.warning"),
    **_constructs("GB0291", _OUT, "logger"),
    **_constructs("GB6215", "make it once, at the top of the module", "logging.getLogger"),
    **_constructs(
        "GB0007",
        _OUT,
        "warnings.warn time.time time.time_ns time.perf_counter time.perf_counter_ns "
        "time.process_time time.monotonic time.sleep gc.collect torch.save os.makedirs os.getpid",
    ),
    **_constructs(
        "GB0007",
        _BEFORE,
        "torch.manual_seed torch.get_rng_state random.seed uuid.uuid4 os.listdir os.path.exists "
        "os.path.isfile os.path.isdir torch.nn.utils.rnn.pack_padded_sequence",
    ),
    **_constructs(
        "GB0007",
        _DRAWN,
        "random.random random.choice random.choices random.shuffle random.sample random.gauss "
        "random.normalvariate random.betavariate",
    ),
    **_constructs(
        "GB0033",
        _DRAWN,
        "numpy.random.rand numpy.random.random numpy.random.random_sample numpy.random.normal "
        "numpy.random.uniform numpy.random.randint numpy.random.choice",
    ),
    **_constructs("GB0294", "use `torch.randperm`", "numpy.random.permutation"),
    **_constructs(
        "GB0294",
        "draw with `torch.distributions`",
        "numpy.random.beta numpy.random.binomial numpy.random.standard_normal "
        "numpy.random.exponential numpy.random.poisson",
    ),
    **_constructs("GB0294", _OUT, "numpy.save numpy.savez"),
    **_constructs("GB0156", _OUT, "sys.stdout.write datetime.datetime.now"),
    **_constructs(
        "GB0208",
        _OUT,
        "torch.cuda.memory_allocated torch.cuda.max_memory_allocated torch.cuda.memory_reserved",
    ),
    **_constructs("GB0208", "use `.clone()`, or `.view_as(x)` for the same memory", "copy.copy"),
    **_constructs("GB4198", "use `.clone()`", "copy.deepcopy"),
    **_constructs("GB9186", "compile only the forward", "torch.autograd.grad"),
    **_constructs("GB0123", _APART, "backward"),
    **_constructs("GB0007", _APART, "torch.autograd.backward"),
    **_constructs("GB0033", _CHOOSE, "torch.allclose torch.equal torch.is_nonzero"),
    **_constructs("GB0033", "use the function of torch", "math"),
    **_constructs("GB0170", _CHOOSE, "branch builtins.any builtins.all"),
    **_constructs("GB0246", "pass `num_classes`", "torch.nn.functional.one_hot"),
    **_constructs("GB0277", "make it before, or use a dense mask", "to_sparse"),
    **_constructs("GB0014", "compile the parts before and after it", "recurrent"),
    **_constructs("GB0124", _STAY, "item builtins.float builtins.int builtins.bool"),
    **_constructs("GB0109", _STAY, "tolist"),
    **_constructs("GB0036", _SHAPED, "mask nonzero argwhere masked_select torch.where"),
    **_constructs("GB0036", "count before, outside the compiled code", "unique unique_consecutive"),
    **_constructs("GB0036", "add up with `scatter_add`", "torch.bincount"),
    **_constructs("GB0036", "pass `output_size`", "repeat_interleave"),
}
"""The constructs by the qualified name of a call, or by a word for the others."""
