"""Links: the bindings behind the imports of names that other modules in view define."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import libcst as cst

from torchlint.semantic.scope.bindings import Binding, How, Scope
from torchlint.semantic.scope.scopes import Scopes
from torchlint.semantic.view import Symbol


class _Home(NamedTuple):
    """A module in view, and what its imports refer to in the project."""

    scope: Scope
    names: Mapping[str, Symbol]
    stars: Mapping[str, Symbol]
    unseen: frozenset[str] = frozenset()


class Links:
    """Follows imports to the modules in view.

    An import of a name that is in view is replaced by the bindings that the name has at the end of
    its module. One of the project that is not in view gets a qualified name like that of a relative
    import, which no library has.
    """

    def __init__(self, scopes: Scopes) -> None:
        self.scopes = scopes
        self.tree = scopes.tree
        view = self.tree.view
        own = _Home(scopes.module, view.names, view.stars, view.unseen)
        self._homes: dict[cst.CSTNode, _Home] = {self.tree.module: own}
        self._by_path = {view.path: own}
        for text, scope in zip(self.tree.texts, scopes.modules[1:], strict=True):
            home = _Home(scope, text.linked.names, text.linked.stars)
            self._homes[text.module] = self._by_path[text.linked.path] = home
        self._targets: dict[Symbol, tuple[Binding, ...]] = {}
        self.words = frozenset(
            name.rpartition(".")[2] for home in self._homes.values() for name in home.names
        )
        """The last words of the names that imports of the project give to things."""
        scopes.add_stars(list(self._star_imports()))
        scopes.replace(dict(self._replacements()))

    def name(self, node: cst.CSTNode, qualified: str) -> str | None:
        """Return a qualified name of the module of a node, None if it is that of a thing in view.

        The name of a thing of the project that is not in view begins with a dot.
        """
        home = self._homes[self.tree.module_of(node)]
        symbol = home.names.get(qualified)
        if symbol is None and qualified not in home.unseen:
            return qualified
        return None if symbol is not None and self._target(symbol) else _unseen(qualified)

    def named(self, node: cst.CSTNode, qualified: str) -> tuple[Binding, ...]:
        """Return the bindings of a qualified name as the module of a node has it."""
        symbol = self._homes[self.tree.module_of(node)].names.get(qualified)
        return self._target(symbol) if symbol is not None else ()

    def _replacements(self) -> Iterator[tuple[Binding, dict[Binding, Binding | None]]]:
        """Yield the imports to replace, with the bindings that they make and their origins."""
        for scope in self.scopes.opened():
            for bindings in scope.bindings.values():
                for binding in bindings:
                    behind = self._behind(binding) if binding.how is How.IMPORT else None
                    if behind is None:
                        continue
                    made = {
                        each._replace(name=binding.name, at=binding.at): each for each in behind
                    }
                    yield (
                        binding,
                        {**made} or {binding._replace(qualified=_unseen(binding.qualified)): None},
                    )

    def _star_imports(self) -> Iterator[tuple[Scope, Binding]]:
        """Yield an import, with its scope, for each name that a star import binds."""
        for module, home in self._homes.items():
            line = self.scopes.first_star(module) if home.stars else None
            if line is not None:
                for word in home.stars:
                    at = self.tree.end(line) - 1
                    yield home.scope, Binding(word, How.IMPORT, line, at, qualified=f"*{word}")

    def _behind(self, binding: Binding) -> tuple[Binding, ...] | None:
        """Return the bindings that an import refers to, None for one of another package."""
        home = self._homes[self.tree.module_of(binding.node)]
        if binding.qualified.startswith("*"):
            return self._target(home.stars[binding.name])
        symbol = home.names.get(binding.qualified)
        if symbol is not None:
            return self._target(symbol)
        return () if binding.qualified in home.unseen else None

    def _target(self, symbol: Symbol) -> tuple[Binding, ...]:
        """Return the bindings of a symbol at the end of its module, following its own imports."""
        found = self._targets.get(symbol)
        if found is None:
            self._targets[symbol] = ()
            found = self._targets[symbol] = tuple(self._at_end(symbol))
        return found

    def _at_end(self, symbol: Symbol) -> Iterator[Binding]:
        home = self._by_path.get(symbol.path)
        if home is None or symbol.name not in home.scope.bindings:
            return
        for binding in self.scopes.at_end(home.scope, symbol.name):
            behind = self._behind(binding) if binding.how is How.IMPORT else None
            yield from (binding,) if behind is None else behind


def _unseen(qualified: str) -> str:
    """Return the qualified name of a thing of the project that is not in view."""
    return f".{qualified.lstrip('*.')}"
