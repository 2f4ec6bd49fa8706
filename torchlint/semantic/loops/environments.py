"""Environments: the code that steps a simulation, or that learns from the rewards of one."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis
from torchlint.semantic.scope.vocabulary import Vocabulary

_PARTS: Final = 4
"""A step returns an observation, a reward, whether it ended, and more."""
_REWARDS: Final = ("reward", "advantage")
_PLAYED: Final = tuple(
    re.compile(rf"(?:\b|_)(?:{words})(?:\b|_)")
    for words in (
        "rewards?|advantages?",
        "dones?|terminated|truncated|episodes?",
        "gamma|gae|returns|td_?(?:errors?|targets?)",
        r"next_(?:\w+_)?(?:obs|states?|observations?|actions?)",
        "critics?|actors?|polic(?:y|ies)|q_?(?:nets?|networks?|values?)",
    )
)
"""Words of learning from rewards: rewards, ends, discounts, what follows and who acts."""
_FEW: Final = 3
_LARGE: Final = re.compile(
    r"(?:\b|_)(?:input_?ids?|prompts?|tokeniz\w+|tokens?|completions?|attention_mask|vocab\w*|"
    r"\w*transformers?|di(?:t|ffusion)\w*|world_?model\w*|images?|pixels?|\w*conv\w*|\w*unet\w*)"
    r"(?:\b|_)"
)
"""Words of networks that write, imagine or see, which may learn from rewards as well."""


class Environments(Analysis):
    """Finds the code of reinforcement learning: what steps an environment, or learns from one."""

    def are_stepped_in(self, region: cst.CSTNode) -> bool:
        """Return whether the text of a region steps an environment."""
        return bool(self.tree.among(self._steps, region))

    @property
    def are_stepped(self) -> bool:
        """Whether any code in view steps an environment."""
        return bool(self._steps)

    @cached_property
    def are_learned_from(self) -> bool:
        """Whether code in view learns from rewards, and runs no network that may be large."""
        if not self.tree.mentions(*_REWARDS):
            return False
        words = Vocabulary(self.tree)
        played = sum(map(words.has_lowered, _PLAYED))
        return played >= _FEW and not words.has_lowered(_LARGE)

    @cached_property
    def _steps(self) -> list[cst.Call]:
        return [call for call in self.tree.all(cst.Call) if self._is_step(call)]

    def _is_step(self, call: cst.Call) -> bool:
        """Return whether a call steps something named for it, or gives what such a step gives."""
        func = call.func
        if not isinstance(func, cst.Attribute) or func.attr.value != "step":
            return False
        if "env" in self.tree.code(func.value).lower():
            return True
        holder = self.tree.parent(call)
        return isinstance(holder, cst.Assign) and any(
            isinstance(each.target, cst.Tuple) and self._are_answers(each.target)
            for each in holder.targets
        )

    def _are_answers(self, target: cst.Tuple) -> bool:
        """Return whether a tuple takes what an environment returns, a reward among it."""
        named = (self.tree.code(each.value) for each in target.elements)
        return len(target.elements) >= _PARTS or any("reward" in each.lower() for each in named)
