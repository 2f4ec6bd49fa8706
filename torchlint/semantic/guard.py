"""Guard: what a file does when it is imported, and what only when it is run."""

from __future__ import annotations

import libcst as cst

from torchlint.semantic.functions import Functions

__all__ = ["Guard"]


class Guard:
    """Tells whether code runs at import, which every spawned worker process does again."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.tree = functions.tree
        self.scopes = functions.scopes
        self._known: dict[int, bool] = {}

    def guards(self) -> list[cst.If]:
        """Give the `if __name__ == "__main__":` statements of the module."""
        return [
            line
            for line in self.tree.module.body
            if isinstance(line, cst.If) and "__name__" in self.tree.text(line.test)
        ]

    def at_import(self, node: cst.CSTNode) -> bool:
        """Whether importing the file runs a node, itself or through calls."""
        function = self.scopes.function(node)
        if function is None:
            return not any(self.tree.inside(node, guard) for guard in self.guards())
        found = self._known.get(id(function))
        if found is None:
            self._known[id(function)] = False
            found = self._known[id(function)] = any(
                self.at_import(call) for call in self.functions.callers(function)
            )
        return found
