"""Saved weights: the classes into whose networks weights from an earlier run are loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import container_of
from torchlint.semantic.training.making import Code, Making
from torchlint.semantic.training.networks import Root
from torchlint.semantic.values.kind import Kind, derived

_LOADS: Final = frozenset("load restore resume pretrained".split())
_MAKES: Final = frozenset("from_pretrained load_from_checkpoint".split())
_OTHERS: Final = frozenset({Kind.OPTIMIZER, Kind.SCHEDULER, Kind.SCALER})
_OF_THIS_RUN: Final = ".state_dict("
_RESUME: Final = re.compile("resum", re.IGNORECASE)
_FILE: Final = re.compile(r"[^'\"]*\.\w+(?=['\"])")
"""A text that ends like the name of a file."""
_FILLED: Final = re.compile(r"\{[^{}]*\}|%\w")
"""What is written into a text: `{epoch}`."""


class SavedWeights(Analysis):
    """Finds which networks get weights that were saved before."""

    def __init__(self, making: Making) -> None:
        super().__init__(making.functions)
        self.networks = making.networks
        self.making = making

    def may_enter(self, node: cst.CSTNode) -> bool:
        """Return whether weights may be loaded into the network that the code at a node makes.

        They may where nothing in view makes it: the code that does may load its weights.
        """
        if self.making.may_be_in(node, self._loaded):
            return True
        around = [*self.tree.ancestors(node)]
        defined = any(isinstance(outer, (cst.ClassDef, cst.FunctionDef)) for outer in around)
        return defined and not any(outer in self._made for outer in around)

    @cached_property
    def _made(self) -> frozenset[cst.CSTNode]:
        """The definitions that code outside networks calls, and what they mention."""
        made = (
            self.functions.definition(call.func)
            for call in self.tree.all(cst.Call)
            if not self._is_in_network(call)
        )
        return self.making.reach.closure(each for each in made if each is not None)

    def _is_in_network(self, call: cst.Call) -> bool:
        owner = self.scopes.class_of(call)
        return owner is not None and derived(self.functions.bases(owner)) is Kind.MODULE

    @cached_property
    def _loaded(self) -> Code:
        """The code that makes the networks with loaded weights."""
        return self.making.code(self._receivers())

    def _receivers(self) -> Iterator[Root]:
        for call in self.tree.all(cst.Call):
            func = call.func
            word = func.value if isinstance(func, cst.Name) else ""
            if isinstance(func, cst.Attribute):
                word, owner = func.attr.value, func.value
                if word == "load_state_dict" and not self._is_from_this_run(call):
                    yield from self.networks.roots(owner)
                if word in _MAKES:
                    yield self.functions.definition(owner) or owner
            if word != "load_state_dict" and not _LOADS.isdisjoint(words(word)):
                yield from self._given(call)

    def _is_from_this_run(self, call: cst.Call) -> bool:
        """Return whether a state is that of an optimizer, or was saved by the program itself.

        A checkpoint that has the state of an optimizer, too, resumes a run, and so does one that
        is read only where a run goes on.
        """
        func = cst.ensure_type(call.func, cst.Attribute)
        if self.networks.kinds.kind(func.value) in _OTHERS:
            return True
        given = call.args[0].value if call.args else None
        if given is None:
            return False
        if _OF_THIS_RUN in self.networks.origins.values.code_of(given):
            return True
        tests = map(self.tree.code, self.tree.tests_around(call))
        if self._saves and any(map(_RESUME.search, tests)):
            return True
        held: cst.BaseExpression | None = container_of(given)
        if isinstance(held, cst.Name):
            if (id(self.scopes.home(call)), held.value) in self._resumed:
                return True
            bindings = self.scopes.reaching(held)
            held = bindings[0].value if len(bindings) == 1 else None
        if not isinstance(held, cst.Call) or self.names.name(held.func) != "torch.load":
            return False
        return not self._saved.isdisjoint(self._path(held, 0))

    @cached_property
    def _resumed(self) -> frozenset[tuple[int, str]]:
        """Where checkpoints give an optimizer its state, and the names of these checkpoints."""
        found = set[tuple[int, str]]()
        for call in self.tree.all(cst.Call):
            func = call.func
            if isinstance(func, cst.Attribute) and func.attr.value == "load_state_dict":
                held = container_of(call.args[0].value) if call.args else None
                if isinstance(held, cst.Name) and self.networks.kinds.kind(func.value) in _OTHERS:
                    found.add((id(self.scopes.home(call)), held.value))
        return frozenset(found)

    @cached_property
    def _saves(self) -> list[cst.Call]:
        """The calls that save anything."""
        calls = self.tree.all(cst.Call)
        return [call for call in calls if self.names.name(call.func) == "torch.save"]

    @cached_property
    def _saved(self) -> frozenset[Binding | str]:
        """What holds the paths to which the program saves."""
        return frozenset(path for call in self._saves for path in self._path(call, 1))

    def _path(self, call: cst.Call, position: int) -> frozenset[Binding | str]:
        """Return what holds the path that a call gets, and the names of the files it may be.

        A path is in local bindings, else in a name of the program: modules import each other's
        constants under the same name.
        """
        given = [arg.value for arg in call.args if arg.keyword is None]
        if position >= len(given):
            return frozenset()
        path = given[position]
        files = map(self._file, self.networks.origins.of(path).values)
        local = [
            each
            for each in self.functions.bindings(path)
            if each.how is not How.IMPORT and self.scopes.function(each.node) is not None
        ]
        held = (*(local or (dotted(path),)), *files)
        return frozenset(each for each in held if each != "")

    def _file(self, path: cst.BaseExpression) -> str:
        """Return the end of a path that is written out, with gaps for what is not."""
        found = _FILE.findall(self.tree.code(path))
        name = _FILLED.sub("{}", found[-1]).lstrip("{}./") if found else ""
        return name if any(map(str.isalpha, name.rpartition(".")[0])) else ""

    def _given(self, call: cst.Call) -> Iterator[Root]:
        """Yield the networks that a function out of sight gets to load weights into."""
        if self.functions.callee(call) is not None or self.names.name(call.func) == "torch.load":
            return
        owner = [call.func.value] if isinstance(call.func, cst.Attribute) else []
        for value in (*owner, *(arg.value for arg in call.args)):
            if self.networks.kinds.kind(value) is Kind.MODULE:
                yield from self.networks.roots(value)
