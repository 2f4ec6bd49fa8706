"""What most questions about values rest on, and the base of the analyses that ask it."""

from __future__ import annotations

from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.calls.hooks import Hooks
from torchlint.semantic.values.gradient import Gradients
from torchlint.semantic.values.iteration import Iteration
from torchlint.semantic.values.kinds import Kinds
from torchlint.semantic.values.losses import Losses
from torchlint.semantic.values.origins import Origins
from torchlint.semantic.values.values import Values
from torchlint.semantic.values.writes import Writes


class KnownValues(Values):
    """The values of expressions, with their kinds, origins and gradients."""

    def __init__(self, functions: Functions) -> None:
        super().__init__(functions)
        self.iteration = Iteration(functions.names, functions.scopes)
        self.origins = Origins(functions, self, self.iteration)
        self.hooks = Hooks(functions)
        self.losses = Losses(functions, self.hooks, self.iteration)
        self.kinds = Kinds(functions, self.iteration, self.origins, self.losses)
        self.kind = self.kinds.kind
        """Return the kind of an expression."""
        self.gradients = Gradients(functions, self)
        self.writes = Writes(functions)


class ValueAnalysis(Analysis):
    """What most analyses ask: what expressions are, and what they are made of."""

    def __init__(self, values: KnownValues) -> None:
        super().__init__(values.functions)
        self.values = values
        self.kinds = values.kinds
        self.origins = values.origins
        self.iteration = values.iteration
        self.gradients = values.gradients
