"""Dataset fields: what the data sets of torchvision keep in memory."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.scope.names import Names
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.origins import Origins

_OF_TENSORS: Final = frozenset("MNIST FashionMNIST KMNIST EMNIST QMNIST".split())
_OF_ARRAYS: Final = frozenset("CIFAR10 CIFAR100 SVHN STL10".split())
_IMAGES: Final = ("data", "train_data", "test_data")
_LABELS: Final = ("targets", "train_labels", "test_labels")


def kind_of_field(names: Names, origins: Origins, node: cst.Attribute) -> Kind:
    """Return the kind of an attribute of a data set: images and labels in memory."""
    if node.attr.value not in (*_IMAGES, *_LABELS):
        return Kind.UNKNOWN
    made = origins.of(node.value).known
    called = [names.name(each.func) if isinstance(each, cst.Call) else None for each in made]
    found = {each.rpartition(".")[2] if each is not None else "" for each in called}
    if found and found <= _OF_TENSORS:
        return Kind.TENSOR
    images = node.attr.value in _IMAGES
    return Kind.NDARRAY if images and found and found <= _OF_ARRAYS else Kind.UNKNOWN
