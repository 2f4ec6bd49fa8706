"""Libraries: the modules, functions and methods that are known, and what their code runs."""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

_CONCURRENT: Final = frozenset(
    "asyncio concurrent ctypes importlib mmap multiprocessing queue runpy socket subprocess "
    "threading".split()
)
"""Modules of Python that run or share what one file does not show."""
_HOST: Final = (sys.stdlib_module_names - _CONCURRENT) | frozenset(
    "builtins torch torchvision torchaudio numpy PIL cv2 skimage scipy imageio pandas sklearn "
    "h5py lmdb yaml librosa soundfile nibabel pydicom SimpleITK tifffile rasterio matplotlib "
    "albumentations nltk msgpack pyarrow networkx av decord blosc zarr".split()
)
"""Packages that read and change data in host memory, with known random functions."""
_OTHER: Final = sys.stdlib_module_names | frozenset(
    "torchtext torchmetrics torchinfo seaborn tqdm wandb mlflow tensorboardX tensorboard "
    "visdom rich transformers timm sacrebleu tabulate termcolor colorama kornia "
    "segmentation_models_pytorch efficientnet_pytorch torch_geometric accelerate loguru absl "
    "einops".split()
)
"""More packages that run no code of a script but what they are given."""
_COMMON_NAMES: Final = frozenset({
    "datasets.load_dataset", "datasets.load_from_disk", "datasets.Dataset",
    "datasets.Dataset.from_dict", "datasets.DatasetDict", "datasets.concatenate_datasets",
    "evaluate.load", "evaluate.combine",
})  # fmt: skip
"""Functions of packages that share their names with modules that many projects have."""

DICTIONARIES: Final = ("builtins.dict", "collections.OrderedDict")
"""Functions that make a dictionary of their keywords."""
RUNNING: Final = frozenset({
    "builtins.map", "builtins.filter", "functools.reduce", "itertools.starmap",
    "torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential",
})  # fmt: skip
"""Library functions that call their first argument."""
INSTANTIATES: Final = ("hydra.utils.instantiate", "hydra.utils.call")
"""Library functions that make what a configuration names."""
OPAQUE: Final = frozenset({
    "builtins.eval", "builtins.exec", "builtins.globals", "builtins.locals", "builtins.vars",
    "builtins.__import__", "importlib.import_module",
})  # fmt: skip
"""Functions that may run, or return, anything."""
VIEWS: Final = frozenset(
    "view reshape unsqueeze squeeze permute transpose t flatten narrow expand unflatten "
    "view_as detach requires_grad_ swapaxes movedim".split()
)
"""Methods of a tensor that return it, or another view of its memory."""
COLLATORS: Final = frozenset({
    "torch.utils.data.default_collate", "torch.utils.data._utils.collate.default_collate",
    "transformers.default_data_collator", "transformers.DefaultDataCollator",
    "transformers.DataCollatorWithPadding", "transformers.DataCollatorForLanguageModeling",
    "transformers.DataCollatorForSeq2Seq", "transformers.DataCollatorForTokenClassification",
})  # fmt: skip
"""Collate functions that create batches in host memory."""
DATA_PACKAGES: Final = ("torchvision.datasets.", "torchaudio.datasets.")
"""The start of the names of datasets that read files."""
OBJECTS: Final = ("builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol")
"""Base classes without behavior of their own."""
TRANSFORM_ARGUMENTS: Final = ("transform", "target_transform", "transforms", "loader")
"""Keywords of library datasets whose values run for every item."""
_SECOND_IS_DATA: Final = frozenset(
    "MNIST FashionMNIST KMNIST QMNIST EMNIST CIFAR10 CIFAR100 SVHN STL10 ImageNet "
    "VOCDetection VOCSegmentation Cityscapes CelebA Places365 Flowers102 OxfordIIITPet DTD "
    "Food101 GTSRB StanfordCars FGVCAircraft LSUN CocoDetection CocoCaptions".split()
)
"""Datasets of torchvision whose second argument is a split, an option or a file."""

FILLED: Final = frozenset("zeros ones full empty arange linspace logspace eye".split())
"""Functions of torch that create tensors from numbers."""
DRAWN: Final = frozenset("rand randn randint randperm normal".split())
"""Functions of torch that create tensors of random numbers."""
_LIKE: Final = frozenset(
    f"{name}_like" for name in "zeros ones full empty rand randn randint".split()
)
FACTORIES: Final = (
    FILLED
    | DRAWN
    | frozenset(
        "Generator manual_seed device frombuffer identity tri default_rng load memmap fromfile "
        "loadtxt genfromtxt open_memmap fromstring".split()
    )
)
"""Functions of torch and NumPy that create tensors and arrays from numbers, or read a file."""
HOST_CONSTRUCTORS: Final = frozenset(
    "from_numpy FloatTensor LongTensor IntTensor DoubleTensor BoolTensor ByteTensor".split()
)
"""Functions of torch whose tensors lie in host memory."""
PLAIN_RESULTS: Final = frozenset(
    "int float str len bool range isinstance repr ord chr round hash open bytes type print".split()
)
"""Built-in functions whose result holds none of their arguments."""

TO_HOST: Final = frozenset("cpu numpy tolist item".split())
"""Methods of tensors whose result lies in host memory."""
TENSOR_METHODS: Final = frozenset(
    "to cuda size dim unsqueeze permute contiguous detach float long half eq ne expand "
    "masked_fill topk cpu softmax view_as type_as".split()
)
"""Methods of tensors that NumPy arrays lack."""
NETWORK_METHODS: Final = frozenset(
    "train eval to cuda cpu half float double parameters named_parameters modules "
    "named_modules children buffers state_dict load_state_dict zero_grad requires_grad_".split()
)
"""Methods of networks that do not run their forward pass."""
CONTAINER_AND_TENSOR_METHODS: Final = frozenset(
    "item to cuda cpu detach data numpy tolist size dim numel view reshape permute transpose t "
    "squeeze unsqueeze flatten expand expand_as repeat contiguous clone float double half long "
    "int bool byte type type_as argmax argmin max min sum mean std var eq ne gt ge lt le add "
    "sub mul div pow abs sqrt exp log softmax log_softmax sigmoid tanh relu topk sort gather "
    "index_select masked_fill masked_select scatter_ fill_ zero_ add_ sub_ mul_ div_ copy_ "
    "norm cumsum prod any all where round clamp clamp_ chunk split unbind matmul mm bmm "
    "nonzero astype find rfind decode encode append extend insert pop items keys values get "
    "setdefault format join strip startswith endswith replace lower upper copy index count".split()
)
"""Methods of tensors and Python containers that run no code of their arguments."""
LOGGING_METHODS: Final = frozenset(
    "info debug warning error set_postfix set_postfix_str set_description add_scalar "
    "add_scalars add_image write flush".split()
)
"""Methods of loggers, progress bars and files."""


class Factory(NamedTuple):
    """A function of torch that creates a tensor."""

    word: str
    """Its name, such as `zeros`."""
    draws: bool
    """Whether the values are random."""
    like: bool
    """Whether it takes a tensor whose shape and device the new one has."""


OTHER_ARRAYS: Final = ("mlx.", "jax.", "flax.", "paddle.", "mindspore.")
"""Prefixes of what computes with arrays of its own, not with tensors of torch."""
EXITS: Final = frozenset({"sys.exit", "builtins.exit", "builtins.quit", "os._exit"})
"""Functions that end the program."""


def factory(name: str | None) -> Factory | None:
    """Return the function of torch that creates a tensor under a qualified name."""
    module, _, word = (name or "").rpartition(".")
    if module != "torch" or word not in FILLED | DRAWN | _LIKE:
        return None
    like = word in _LIKE
    return Factory(word, word.removesuffix("_like") in DRAWN, like)


def is_library(name: str) -> bool:
    """Return whether a qualified name belongs to a library that only runs what it is given."""
    package = name.partition(".")[0]
    return package in _HOST or package in _OTHER or name in _COMMON_NAMES


def is_data_library(name: str) -> bool:
    """Return whether a qualified name belongs to a library that handles data in host memory."""
    return name.partition(".")[0] in _HOST


def takes_transform(dataset: str, keyword: str | None, position: int) -> bool:
    """Return whether an argument of a library dataset may be code that runs for every item."""
    if keyword is not None:
        return keyword in TRANSFORM_ARGUMENTS
    return position > 1 or (position == 1 and dataset.rpartition(".")[2] not in _SECOND_IS_DATA)
