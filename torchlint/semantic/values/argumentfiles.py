"""Argument files: the dictionaries that code reads from YAML and JSON of the project."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.scope.scopes import How
from torchlint.semantic.view import COMPOSED, MADE, STARTED

_OF_STREAMS: Final = frozenset({
    "json.load", "json.loads", "yaml.load", "yaml.safe_load", "yaml.full_load", "yaml.unsafe_load",
})  # fmt: skip
_CONFIGURATION: Final = "omegaconf.OmegaConf.load"
_PATHS: Final = frozenset({"pathlib.Path", "os.path.abspath", "builtins.str", "os.fspath"})
_READS: Final = frozenset("read read_text open".split())
_WRITES: Final = ("w", "a", "x", "+")


class ArgumentFiles(Analysis):
    """Finds the dictionary behind a call that reads a file, or behind the name of one."""

    def __init__(
        self, functions: Functions, literal_of: Callable[[cst.BaseExpression], Any]
    ) -> None:
        super().__init__(functions)
        self._literal_of = literal_of

    def read_by(self, call: cst.Call) -> cst.Dict | None:
        """Return the dictionary that a call reads from a file of the project."""
        if not self.tree.view.files or not call.args:
            return None
        given = call.args[0].value
        if self.is_configuration(call):
            return self._opened(given) or self.named(given)
        return self._opened(given) if self.names.name(call.func) in _OF_STREAMS else None

    def is_configuration(self, node: cst.BaseExpression | None) -> bool:
        """Return whether a call reads a file whose entries are attributes as well."""
        return isinstance(node, cst.Call) and self.names.name(node.func) == _CONFIGURATION

    def named(self, path: cst.BaseExpression) -> cst.Dict | None:
        """Return the dictionary in the file of a path that the code spells out."""
        if not self.tree.view.files:
            return None
        while isinstance(path, cst.Call):
            if self.names.name(path.func) not in _PATHS or len(path.args) != 1:
                return None
            path = path.args[0].value
        name = self._literal_of(path)
        if not isinstance(name, str) or name in self._written:
            return None
        place = self.tree.view.files.get(name)
        return self._dictionaries.get(place) if place is not None else None

    def started(self) -> cst.Dict | None:
        """Return the dictionary in the only file with which shell scripts start the script."""
        place = self.tree.view.files.get(STARTED)
        return self._dictionaries.get(place) if place is not None else None

    def composed(self, name: str) -> cst.Dict | None:
        """Return the dictionary in a file that Hydra looks up beside the script, by its name."""
        place = self.tree.view.files.get(f"{COMPOSED}{name}")
        return self._dictionaries.get(place) if place is not None else None

    def made(self, owner: cst.ClassDef) -> tuple[str, cst.Dict | None]:
        """Return the file from which Hydra makes the objects of a class, with its dictionary."""
        place = self.tree.view.files.get(f"{MADE}{owner.name.value}", "")
        return place, self._dictionaries.get(place)

    def doubt(self, node: cst.CSTNode) -> str:
        """Return the words for a value that a command line can override, empty for others."""
        files = self.tree.view.files
        places = {at for name, at in files.items() if name.startswith((COMPOSED, STARTED))}
        found = (self._dictionaries[each] for each in places & self._dictionaries.keys())
        inside = any(self.tree.inside(node, each) for each in found)
        return ", unless the command line overrides it" if inside else ""

    def _opened(self, node: cst.BaseExpression) -> cst.Dict | None:
        """Return the dictionary in the file that an expression opens, or whose text it is."""
        if isinstance(node, cst.Name):
            binding = self.scopes.only(node)
            value = binding.value if binding.how in (How.ASSIGN, How.WITH) else None
            return self._opened(value) if isinstance(value, cst.Call) else None
        if not isinstance(node, cst.Call):
            return None
        if self.names.name(node.func) == "builtins.open" and node.args:
            return self.named(node.args[0].value)
        if isinstance(node.func, cst.Attribute) and node.func.attr.value in _READS:
            return self._opened(node.func.value) or self.named(node.func.value)
        return None

    @cached_property
    def _dictionaries(self) -> dict[str, cst.Dict]:
        """The dictionaries that stand for files, by path."""
        paths = set(self.tree.view.files.values())
        return {
            text.linked.path: found
            for text in self.tree.texts
            if text.linked.path in paths
            for line in text.module.body
            for found in self.tree.within(line, cst.Dict)
            if isinstance(self.tree.parent(found), cst.Expr)
        }

    @cached_property
    def _written(self) -> frozenset[str]:
        """The names of files that the code writes itself."""
        return frozenset(filter(None, self._written_names()))

    def _written_names(self) -> Iterator[str]:
        for call in self.tree.all(cst.Call):
            if self.names.name(call.func) != "builtins.open" or len(call.args) < 2:
                continue
            mode = self._literal_of(call.args[1].value)
            name = self._literal_of(call.args[0].value)
            if isinstance(name, str) and (
                not isinstance(mode, str) or any(letter in mode for letter in _WRITES)
            ):
                yield name
