"""Environments: the code that steps a simulation."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis

_PARTS: Final = 4
"""A step returns an observation, a reward, whether it ended, and more."""


class Environments(Analysis):
    """Finds the code of reinforcement learning that steps an environment."""

    def are_stepped_in(self, region: cst.CSTNode) -> bool:
        """Return whether the text of a region steps an environment."""
        return bool(self.tree.among(self._steps, region))

    @property
    def are_stepped(self) -> bool:
        """Whether any code in view steps an environment."""
        return bool(self._steps)

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
