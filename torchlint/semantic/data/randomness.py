"""Randomness: which library calls draw random numbers and which transforms never do."""

from __future__ import annotations

import re
from typing import Final

RANDOM_METHODS: Final = frozenset(
    "uniform_ normal_ bernoulli_ random_ exponential_ cauchy_ log_normal_ geometric_".split()
)
"""Methods of tensors that draw from the global generator."""

_PURE: Final = frozenset(
    "seed getstate setstate Random SystemRandom default_rng RandomState".split()
)
_DRAWING: Final = re.compile(
    r"torch\.(?:rand\w*|normal|bernoulli|multinomial|poisson)|"
    r"torch\.nn\.functional\.(?:\w*dropout\w*|gumbel_softmax)|"
    r"torchvision\.transforms\.(?:v2\.)?(?:Random\w*|RandAugment|AutoAugment|TrivialAugmentWide|"
    r"AugMix|ColorJitter|ElasticTransform|GaussianBlur|GaussianNoise|ScaleJitter|MixUp|CutMix|"
    r"JPEG)|"
    r"(?:albumentations|imgaug|kornia\.augmentation|imgaug\.augmenters|audiomentations|"
    r"torch_audiomentations|randaugment|autoaugment|torchio)\..+|"
    r"monai\.transforms\.Rand\w+|torchaudio\.transforms\.(?:TimeMasking|FrequencyMasking)|"
    r"timm\.data\.create_transform|secrets\.\w+|uuid\.uuid4|scipy\.stats\..+\.rvs"
)
_TRANSFORMS: Final = re.compile(r"torchvision\.transforms\.(?:v2\.)?[A-Z]\w*|torchaudio\..+")


def random_name(name: str) -> str:
    """Return the last word of a qualified name that draws random numbers, else ""."""
    head, _, last = name.rpartition(".")
    if head in ("random", "numpy.random"):
        return "" if last in _PURE else f"{head}.{last}"
    return last if _DRAWING.fullmatch(name) else ""


def is_deterministic_transform(name: str) -> bool:
    """Return whether a name makes a transform whose result is always the same."""
    return _TRANSFORMS.fullmatch(name) is not None and not random_name(name)
