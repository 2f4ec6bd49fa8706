"""Words inside identifiers: `valLoader2` says `val` and `loader`."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from torchlint.regex import regex

__all__ = ["says_evaluation", "says_training", "words"]

_WORD: Final = regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_EVALUATION: Final = frozenset(
    (
        "val vali valid validate validates validation validating validator test tests testing "
        "tester eval evals evaluate evaluates evaluation evaluating evaluator infer inference "
        "predict predicts prediction predictions accuracy acc scoring heldout holdout"
    ).split()
)
_RUN_TOGETHER: Final = regex(
    r"(?:test|val|valid|validation|eval|dev)(?:data)?(?:loaders?|dl|set|iter|data|ds|step|epoch)"
)
_REMEMBERED: Final = 20_000
_TRAINING: Final = regex(r"(?:pre|re)?train(?:s|ing|er|loader|iter|dl|set|step)?|fit|finetune")


@lru_cache(maxsize=_REMEMBERED)
def words(identifier: str) -> tuple[str, ...]:
    """Split identifiers, however they are written, into lower-case words."""
    return tuple(word.lower() for word in _WORD.findall(identifier))


def says_evaluation(identifier: str) -> bool:
    """Whether a name (or a few, `self.val_loader`) speaks of evaluation."""
    found = words(identifier)
    if any(word in _EVALUATION or _RUN_TOGETHER.fullmatch(word) for word in found):
        return True
    return "dev" in found and len(found) > 1 and not says_training(identifier)


def says_training(identifier: str) -> bool:
    """Whether a name speaks of training."""
    return any(_TRAINING.fullmatch(word) for word in words(identifier))
