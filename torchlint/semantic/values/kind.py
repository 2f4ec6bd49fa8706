"""Kind: the kinds of values that rules ask for, and those of torch's own names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from functools import cache
from typing import Final

import libcst as cst

from torchlint.semantic.scope.words import names_settings, words
from torchlint.semantic.syntax.methods import index_of, last_word, named_arguments, receiver_of

PASSED_ON: Final = frozenset({
    "torch.nn.DataParallel", "torch.nn.parallel.DistributedDataParallel", "torch.compile",
    "copy.deepcopy", "copy.copy", "torch.utils.data.Subset", "torch.nn.utils.weight_norm",
    "torch.nn.utils.spectral_norm", "torch.nn.utils.parametrizations.weight_norm",
    "torch.nn.utils.parametrizations.spectral_norm",
})  # fmt: skip
"""What returns the very object that it gets, or one that does the same."""


class Kind(Enum):
    """What a value is; UNKNOWN if the file does not show it."""

    TENSOR = auto()
    LOSS = auto()
    NDARRAY = auto()
    MODULE = auto()
    OPTIMIZER = auto()
    SCHEDULER = auto()
    SCALER = auto()
    LOADER = auto()
    DATASET = auto()
    SAMPLER = auto()
    CRITERION = auto()
    NUMBER = auto()
    STRING = auto()
    SEQUENCE = auto()
    MAPPING = auto()
    DEVICE = auto()
    NOTHING = auto()
    UNKNOWN = auto()
    DISTRIBUTION = auto()


TENSORS: Final = (Kind.TENSOR, Kind.LOSS)
"""The kinds of values that may be on a device."""
_CALLED: Final = {
    "torch.utils.data.DataLoader": Kind.LOADER,
    "ignite.distributed.auto_dataloader": Kind.LOADER,
    "ignite.distributed.auto.auto_dataloader": Kind.LOADER,
    "torch_geometric.loader.DataLoader": Kind.LOADER,
    "torch_geometric.data.DataLoader": Kind.LOADER,
    "torch.device": Kind.DEVICE,
    "torch.nn.DataParallel": Kind.MODULE,
    "torch.nn.parallel.DistributedDataParallel": Kind.MODULE,
    "torch.compile": Kind.MODULE,
    "torch.jit.script": Kind.MODULE,
    "torch.jit.trace": Kind.MODULE,
    "torch.hub.load": Kind.MODULE,
    "timm.create_model": Kind.MODULE,
    "timm.models.create_model": Kind.MODULE,
    "torch.cuda.amp.GradScaler": Kind.SCALER,
    "torch.amp.GradScaler": Kind.SCALER,
    "torch.autograd.Variable": Kind.TENSOR,
    "torch.nn.Parameter": Kind.TENSOR,
    "torch.autograd.grad": Kind.SEQUENCE,
    "torch.nn.utils.clip_grad_norm_": Kind.TENSOR,
    "torch.nn.utils.get_total_norm": Kind.TENSOR,
    "torch.nn.utils.rnn.pad_sequence": Kind.TENSOR,
    "torch.utils.data.random_split": Kind.SEQUENCE,
    "torchvision.datasets.ImageFolder": Kind.DATASET,
    "builtins.float": Kind.NUMBER,
    "builtins.int": Kind.NUMBER,
    "builtins.len": Kind.NUMBER,
    "builtins.round": Kind.NUMBER,
    "builtins.str": Kind.STRING,
    "builtins.repr": Kind.STRING,
    "builtins.list": Kind.SEQUENCE,
    "builtins.tuple": Kind.SEQUENCE,
    "builtins.sorted": Kind.SEQUENCE,
    "builtins.range": Kind.SEQUENCE,
    "builtins.dict": Kind.MAPPING,
    "collections.OrderedDict": Kind.MAPPING,
    "collections.defaultdict": Kind.MAPPING,
    "math.sqrt": Kind.NUMBER,
    "math.exp": Kind.NUMBER,
    "math.log": Kind.NUMBER,
    "math.ceil": Kind.NUMBER,
    "math.floor": Kind.NUMBER,
    "math.pow": Kind.NUMBER,
    "time.time": Kind.NUMBER,
    "time.perf_counter": Kind.NUMBER,
}
_DISTRIBUTION: Final = re.compile(r"torch\.distributions\.(?:\w+\.)*[A-Z]\w*")
_DRAWN: Final = frozenset(
    "sample rsample log_prob entropy cdf icdf perplexity enumerate_support mean mode stddev "
    "variance probs logits loc scale".split()
)
"""The methods and attributes of a distribution that are tensors."""
_NOT_TENSORS: Final = frozenset(
    "manual_seed seed initial_seed get_rng_state set_rng_state save load is_tensor is_storage "
    "numel set_default_dtype set_default_tensor_type set_num_threads get_num_threads no_grad "
    "enable_grad set_grad_enabled inference_mode is_grad_enabled typename set_printoptions "
    "compile finfo iinfo equal allclose is_floating_point is_complex device dtype Size "
    "Generator set_float32_matmul_precision get_default_dtype use_deterministic_algorithms "
    "split chunk unbind meshgrid tensor_split vsplit hsplit dsplit".split()
)
_SEQUENCES: Final = frozenset("split chunk unbind meshgrid tensor_split".split())
_DATASET_BASES: Final = re.compile(
    r"torch\.utils\.data\.(?:Dataset|IterableDataset|TensorDataset|ConcatDataset|Subset|"
    r"ChainDataset|StackDataset)|torchvision\.datasets\.\w+"
)
_SAMPLERS: Final = re.compile(r"torch\.utils\.data\.(?:[A-Za-z]*Sampler)")
_FUNCTIONAL_LOSSES: Final = re.compile(
    r"torch\.nn\.functional\.(?:\w*_loss|cross_entropy|binary_cross_entropy\w*|kl_div|"
    r"l1_loss|mse_loss|nll_loss)"
)
_MODULE_CLASS: Final = re.compile(
    r"torch\.nn\.(?:[A-Z]\w*|quantized\.\w+)|torchvision\.models\.(?:\w+\.)*\w+|"
    r"(?:lightning|pytorch_lightning|lightning\.pytorch)\.LightningModule|"
    r"segmentation_models_pytorch\.[A-Z]\w*|efficientnet_pytorch\.\w+|"
    r"(?:pytorch_)?transformers\.(?:PreTrainedModel|\w*Model|\w*For[A-Z]\w*)|"
    r"pytorch_pretrained_bert\.(?:modeling\.)?\w*(?:Model|For[A-Z]\w*)|"
    r"transformers\.(?:\w+\.)+from_pretrained|"
    r"diffusers\.(?:models\.(?:\w+\.)*)?(?:\w*Model|Autoencoder\w+)(?:\.from_[a-z_]+)?|"
    r"ema_pytorch\.(?:\w+\.)*\w*EMA"
)
_NOT_MODULES: Final = re.compile(
    r"torch\.nn\.(?:Parameter|ParameterList|ParameterDict|Buffer|UninitializedParameter)"
    r"|torchvision\.models\.(?:.*_Weights.*|get_weight|list_models)"
    r"|transformers\.(?:\w+\.)*\w*(?:Tokenizer|Config|Processor|FeatureExtractor)\w*\.from_pretrained"
)
_CRITERION: Final = re.compile(r"torch\.nn\.\w*Loss")
_OPTIMIZER: Final = re.compile(
    r"torch\.optim\.[A-Z]\w*|torch\.distributed\.optim\.[A-Z]\w*|apex\.optimizers\.\w+|"
    r"bitsandbytes\.optim\.\w+|transformers\.(?:optimization\.)?(?:AdamW|Adafactor)|"
    r"(?:lion_pytorch|torch_optimizer|pytorch_optimizer|schedulefree|prodigyopt|dadaptation|muon)\."
    r"[A-Z]\w*"
)
_SCHEDULER: Final = re.compile(
    r"torch\.optim\.lr_scheduler\.[A-Z]\w*|transformers\.get_\w*schedule\w*"
)
SIZES_OF_DRAWS: Final = {
    **dict.fromkeys("rand randn random random_sample standard_normal".split(), 0),
    **dict.fromkeys("choice poisson".split(), 1),
    **dict.fromkeys("randint integers uniform normal beta binomial".split(), 2),
}
"""The functions that draw one random number or many: how many arguments come before the size."""
_NUMPY_NUMBERS: Final = frozenset("int float bool int32 int64 float32 float64".split())
_NOT_ARRAYS: Final = frozenset(
    "save savez savez_compressed savetxt seterr set_printoptions load isscalar ndim size "
    "shape iinfo finfo dtype errstate".split()
)
_NUMPY_SCALARS: Final = frozenset("sum mean std var max min median prod argmax argmin dot".split())

_TENSOR_TO_NUMBER: Final = frozenset(
    "item size dim ndimension numel nelement element_size stride get_device storage_offset".split()
)
_TENSOR_TO_OTHER: Final = {
    "numpy": Kind.NDARRAY,
    "tolist": Kind.UNKNOWN,
    "size": Kind.UNKNOWN,
    "backward": Kind.NOTHING,
    "split": Kind.SEQUENCE,
    "chunk": Kind.SEQUENCE,
    "unbind": Kind.SEQUENCE,
    "topk": Kind.SEQUENCE,
    "sort": Kind.SEQUENCE,
    "data_ptr": Kind.NUMBER,
    "equal": Kind.UNKNOWN,
    "storage": Kind.UNKNOWN,
    "type": Kind.UNKNOWN,
    **dict.fromkeys("keys update setdefault append extend".split(), Kind.UNKNOWN),
    "max": Kind.TENSOR,
    "min": Kind.TENSOR,
}
_KEEPS_LOSS: Final = frozenset(
    "mean sum clone to cuda cpu float double half div mul add sub div_ mul_ squeeze view".split()
)
_MODULE_SAME: Final = frozenset(
    "to cuda cpu half float double bfloat16 train eval requires_grad_ xpu apply".split()
)

_NO_VERB: Final = (
    r"(?!_?(?:get|build|make|create|load|save|init|initiali[sz]e|define|setup|construct|print"
    r"|unwrap|wrap|compile|freeze|export|update|prepare|convert|reset)_)"
)
_CONVENTIONS: Final = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"(?:\w+_)?(?:data_?)?loaders?(?:_\w+)?|(?:train|test|val|valid|eval)_?dl", Kind.LOADER),
        (r"\w*data_?loader\w*|(?:train|test|val|valid|eval)loader", Kind.LOADER),
        (r"(?:train|test|val|valid|eval|data)_(?:iter(?:ator)?|queue)", Kind.LOADER),
        (
            rf"{_NO_VERB}(?:\w+_)?(?:model|net|network|generator|discriminator|encoder|decoder)",
            Kind.MODULE,
        ),
        (
            rf"{_NO_VERB}(?:\w+_)?(?:classifier|backbone|critic|actor)|(?:model|net)_?[A-Z0-9]{{1,2}}",
            Kind.MODULE,
        ),
        (r"net[DG](?:_[AB])?", Kind.MODULE),
        (r"(?:\w+_)?(?:optimizer|optimiser|optim)(?:_?[A-Za-z]{1,3})?", Kind.OPTIMIZER),
        (r"opt_\w{1,3}|\w+_opt", Kind.OPTIMIZER),
        (r"(?:\w+_)?(?:lr_)?scheduler", Kind.SCHEDULER),
        (r"(?:\w+_)?(?:grad_)?scaler", Kind.SCALER),
        (r"(?:\w+_)?(?:criterion|loss_fn|loss_func|loss_function|lossfn)", Kind.CRITERION),
        (r"(?:\w+_)?device", Kind.DEVICE),
    )
)
ENGINES: Final = frozenset(
    "trt tensorrt onnx onnxruntime openvino tflite coreml ncnn sklearn cuml xgboost lightgbm "
    "catboost".split()
)
"""Words of libraries whose models are no modules of torch, with neither mode nor gradients."""
_INPUTS: Final = frozenset("mask masks masking data batch rng random prompt anchor".split())
"""Words of what a generator makes that is no network."""
_BELONGING: Final = re.compile(r"(?<=[a-z0-9])_(?:of|for|from|by|per)_")
"""Words between what a thing is and what it belongs to: `scheduler_of_optimizer`."""


@cache
def conventional(name: str) -> Kind:
    """Return the kind that a conventional name suggests: the weakest evidence."""
    name = _BELONGING.split(name)[0]
    inputs = name.endswith("generator") and not _INPUTS.isdisjoint(words(name))
    if inputs or not ENGINES.isdisjoint(words(name)):
        return Kind.UNKNOWN
    for pattern, kind in _CONVENTIONS:
        if pattern.fullmatch(name):
            return kind
    return Kind.UNKNOWN


def conventional_attribute(node: cst.Attribute) -> Kind:
    """Return the kind that the name of an attribute suggests; settings hold no networks."""
    found = conventional(node.attr.value)
    is_plain = found in (Kind.DEVICE, Kind.NUMBER, Kind.STRING)
    return found if is_plain or not names_settings(last_word(node.value)) else Kind.UNKNOWN


def are_parameters(source: cst.BaseExpression, path: tuple[int | None, ...]) -> bool:
    """Return whether a loop over something draws parameters of a network, or parts of its pairs."""
    if path:
        return path == (1,) and receiver_of(source, "named_parameters") is not None
    return receiver_of(source, "parameters") is not None


@cache
def is_module_class(name: str) -> bool:
    """Return whether a qualified name is a class (or a factory) of modules."""
    return _MODULE_CLASS.fullmatch(name) is not None and _NOT_MODULES.fullmatch(name) is None


def derived(bases: list[str]) -> Kind:
    """Return the kind of an instance of a class with these bases."""
    for base in bases:
        last = base.rpartition(".")[2]
        if base.startswith("torch.optim.lr_scheduler") or last.endswith("LRScheduler"):
            return Kind.SCHEDULER
        if base.startswith("torch.optim.") or last == "Optimizer":
            return Kind.OPTIMIZER
        if _CRITERION.fullmatch(base):
            return Kind.CRITERION
        if is_module_class(base) or last in ("Module", "LightningModule"):
            return Kind.MODULE
        if _SAMPLERS.fullmatch(base):
            return Kind.SAMPLER
        if _DATASET_BASES.fullmatch(base) or last.endswith("Dataset"):
            return Kind.DATASET
        if base == "torch.utils.data.DataLoader":
            return Kind.LOADER
        if _DISTRIBUTION.fullmatch(base):
            return Kind.DISTRIBUTION
    return Kind.UNKNOWN


@cache
def called(name: str) -> Kind:
    """Return the kind of the result of calling a qualified name."""
    found = _CALLED.get(name)
    if found is not None:
        return found
    if name.startswith("torch."):
        return _called_torch(name)
    if name.startswith("numpy."):
        return _called_numpy(name)
    if is_module_class(name):
        return Kind.MODULE
    if _OPTIMIZER.fullmatch(name):
        return Kind.OPTIMIZER
    if _SCHEDULER.fullmatch(name):
        return Kind.SCHEDULER
    if name.startswith("torchvision.datasets."):
        return Kind.DATASET
    if name in ("cv2.imread", "cv2.cvtColor", "cv2.resize", "skimage.io.imread", "imageio.imread"):
        return Kind.NDARRAY
    return Kind.UNKNOWN


def _called_torch(name: str) -> Kind:
    if _FUNCTIONAL_LOSSES.fullmatch(name):
        return Kind.LOSS
    if name.startswith("torch.nn.functional."):
        return Kind.TENSOR
    if _CRITERION.fullmatch(name):
        return Kind.CRITERION
    if is_module_class(name):
        return Kind.MODULE
    if _SCHEDULER.fullmatch(name):
        return Kind.SCHEDULER
    if _OPTIMIZER.fullmatch(name):
        return Kind.OPTIMIZER
    if _SAMPLERS.fullmatch(name):
        return Kind.SAMPLER
    if _DATASET_BASES.fullmatch(name):
        return Kind.DATASET
    if _DISTRIBUTION.fullmatch(name):
        return Kind.DISTRIBUTION
    head, _, last = name.rpartition(".")
    if last == "kl_divergence":
        return Kind.TENSOR
    if head in ("torch", "torch.linalg", "torch.fft", "torch.special"):
        if last in _SEQUENCES:
            return Kind.SEQUENCE
        if last not in _NOT_TENSORS and not last.startswith(("is_", "are_", "get_", "set_")):
            return Kind.TENSOR
    return Kind.UNKNOWN


def draws_number(name: str, call: cst.Call) -> bool:
    """Return whether a function of `numpy.random` draws from numbers and gets no size."""
    head, _, last = name.rpartition(".")
    if head != "numpy.random" or last not in SIZES_OF_DRAWS:
        return False
    sized = named_arguments(call, "size") or any(arg.star for arg in call.args)
    return not sized and len(call.args) <= SIZES_OF_DRAWS[last]


def _called_numpy(name: str) -> Kind:
    head, _, last = name.rpartition(".")
    if head == "numpy.random" and last not in ("seed", "RandomState", "default_rng"):
        return Kind.NDARRAY
    if head == "numpy":
        if last in _NUMPY_NUMBERS:
            return Kind.NUMBER
        if last not in _NOT_ARRAYS and last not in _NUMPY_SCALARS:
            return Kind.NDARRAY
    return Kind.UNKNOWN


def method_result(kind: Kind, method: str) -> Kind:
    """Return the kind of the result of a method on a value of this kind."""
    if kind in (Kind.TENSOR, Kind.LOSS):
        if method in _TENSOR_TO_OTHER or method.startswith("is_"):
            return _TENSOR_TO_OTHER.get(method, Kind.UNKNOWN)
        if method in _TENSOR_TO_NUMBER:
            return Kind.NUMBER
        if kind is Kind.LOSS and method in _KEEPS_LOSS:
            return Kind.LOSS
        return Kind.TENSOR
    if kind in (Kind.MODULE, Kind.CRITERION):
        return kind if method in _MODULE_SAME else _MODULE_RESULTS.get(method, Kind.UNKNOWN)
    if kind is Kind.NDARRAY:
        if method in ("item", "tolist", "tobytes", "any", "all") or method in _NUMPY_SCALARS:
            return Kind.NUMBER if method == "item" else Kind.UNKNOWN
        return Kind.NDARRAY
    if kind is Kind.DISTRIBUTION:
        return Kind.TENSOR if method in _DRAWN else Kind.UNKNOWN
    if kind is Kind.SCALER and method == "scale":
        return Kind.LOSS
    if kind is Kind.STRING:
        return Kind.UNKNOWN if method in ("split", "encode") else Kind.STRING
    return Kind.UNKNOWN


_MODULE_RESULTS: Final = {
    "state_dict": Kind.MAPPING,
    "forward": Kind.TENSOR,
    "clip_grad_norm_": Kind.TENSOR,
}


def joined(kinds: Sequence[Kind], numbers_too: bool = False) -> Kind:
    """Combine the kinds that one value can have, ignoring None.

    `numbers_too` lets a sum that starts as a number and becomes a tensor count as a tensor.
    """
    if len(kinds) == 1:
        return kinds[0]
    given = set(kinds)
    found = given - {Kind.NOTHING}
    if not found:
        return Kind.NOTHING if given else Kind.UNKNOWN
    if len(found) == 1:
        return found.pop()
    if numbers_too:
        found.discard(Kind.NUMBER)
    if found <= {Kind.TENSOR, Kind.LOSS}:
        return Kind.TENSOR if Kind.TENSOR in found else Kind.LOSS
    return Kind.UNKNOWN


def combined(left: Kind, right: Kind) -> Kind:
    """Return the kind of an operation on two values."""
    both = (left, right)
    for kind in (Kind.LOSS, Kind.TENSOR, Kind.NDARRAY):
        if kind in both:
            return kind
    if Kind.NOTHING in both:
        return left if right is Kind.NOTHING else right
    if left is right and left in (Kind.NUMBER, Kind.STRING, Kind.SEQUENCE):
        return left
    return Kind.UNKNOWN


def dimension(call: cst.Call, bound: bool) -> cst.BaseExpression | None:
    """Return what may be the dimension of `max` and the like, which then return indices as well."""
    own = call.args if bound else call.args[1:]
    first = [arg for arg in own if arg.keyword is None or arg.keyword.value in ("dim", "axis")]
    computed = (cst.Call, cst.Attribute)
    return first[0].value if first and not isinstance(first[0].value, computed) else None


def literal_index(node: cst.Subscript) -> int | None:
    """Return the number that a subscript takes, None for any other."""
    value = index_of(node)
    return int(value.value) if isinstance(value, cst.Integer) and value.value.isdigit() else None


def takes_many(node: cst.Subscript) -> bool:
    """Return whether an index is a slice, so that an array stays an array."""
    return any(isinstance(element.slice, cst.Slice) for element in node.slice)


LITERALS: Final[dict[type[cst.CSTNode], Kind]] = {
    cst.Integer: Kind.NUMBER,
    cst.Float: Kind.NUMBER,
    cst.SimpleString: Kind.STRING,
    cst.FormattedString: Kind.STRING,
    cst.ConcatenatedString: Kind.STRING,
    cst.List: Kind.SEQUENCE,
    cst.Tuple: Kind.SEQUENCE,
    cst.ListComp: Kind.SEQUENCE,
    cst.Dict: Kind.MAPPING,
    cst.DictComp: Kind.MAPPING,
}
"""The kinds of what the syntax alone shows."""
