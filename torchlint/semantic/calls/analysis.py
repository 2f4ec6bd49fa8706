"""Analysis: the base of whatever asks about the functions of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchlint.semantic.calls.functions import Functions


class Analysis:
    """What most analyses of a file ask: its functions, nodes, scopes and names."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.tree = functions.tree
        self.scopes = functions.scopes
        self.names = functions.names
