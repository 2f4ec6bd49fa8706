"""Words: the words inside identifiers, such as `val` and `loader` in `valLoader2`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_EVALUATION: Final = frozenset(
    "val vali valid validate validates validation validating validator test tests testing "
    "tester eval evals evaluate evaluates evaluation evaluating evaluator infer inference "
    "predict predicts prediction predictions accuracy acc scoring heldout holdout".split()
)
_RUN_TOGETHER: Final = re.compile(
    r"(?:test|val|valid|validation|eval|dev)(?:data)?(?:loaders?|dl|set|iter|data|ds|step|epoch)"
)
_SETTINGS: Final = frozenset(
    "args opt opts cfg config conf hparams params options flags settings".split()
)
_OWNERS: Final = frozenset("self cls accelerator fabric trainer".split())
_REMEMBERED: Final = 20_000
_TRAINING: Final = re.compile(r"(?:pre|re)?train(?:s|ing|er|loader|iter|dl|set|step)?|fit|finetune")


@lru_cache(maxsize=_REMEMBERED)
def words(identifier: str) -> tuple[str, ...]:
    """Split identifiers in any style into lower-case words."""
    return tuple(word.lower() for word in _WORD.findall(identifier))


def says_evaluation(identifier: str) -> bool:
    """Return whether a name (or several, `self.val_loader`) contains a word for evaluation."""
    found = words(identifier)
    if any(word in _EVALUATION or _RUN_TOGETHER.fullmatch(word) for word in found):
        return True
    return "dev" in found and len(found) > 1 and not says_training(identifier)


def says_training(identifier: str) -> bool:
    """Return whether a name contains a word for training."""
    return any(_TRAINING.fullmatch(word) for word in words(identifier))


def names_settings(identifier: str) -> bool:
    """Return whether a name is one for an object that holds what a run is configured with."""
    return not _SETTINGS.isdisjoint(words(identifier))


def names_run(identifier: str) -> bool:
    """Return whether a name is one for what a run is configured or driven with, so no tensor."""
    return names_settings(identifier) or not _OWNERS.isdisjoint(words(identifier))
