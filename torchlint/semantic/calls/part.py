"""Part: the base of what answers one kind of question about the call graph of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import libcst as cst

from torchlint.semantic.scope.names import Names
from torchlint.semantic.scope.scopes import Binding, Scopes
from torchlint.semantic.syntax.tree import Tree


class _Whole(Protocol):
    """What the parts of a call graph ask of the whole."""

    tree: Tree
    scopes: Scopes
    names: Names

    def definition(self, node: cst.CSTNode, /) -> cst.FunctionDef | cst.ClassDef | None: ...
    def instance_of(self, node: cst.CSTNode, /) -> cst.ClassDef | None: ...
    def lineage(self, owner: cst.ClassDef, /) -> list[cst.ClassDef]: ...
    def method(self, owner: cst.ClassDef, name: str, /) -> cst.FunctionDef | None: ...
    def called_object(self, owner: cst.ClassDef, /) -> cst.FunctionDef | None: ...
    def callers(self, function: cst.FunctionDef, /) -> tuple[cst.Call, ...]: ...
    def makings(self, owner: cst.ClassDef, /) -> Iterator[cst.Call]: ...
    def mentions(self, name: str, /) -> list[cst.CSTNode]: ...
    def attributes(self, word: str, /) -> Sequence[cst.Attribute]: ...
    def owner_of_self(self, parameter: cst.Param, /) -> cst.ClassDef | None: ...
    def is_self(self, node: cst.CSTNode, /) -> bool: ...
    def bindings(self, node: cst.CSTNode | None, /) -> tuple[Binding, ...]: ...
    def held(self, binding: Binding, /) -> list[cst.BaseExpression]: ...


class Part:
    """A part of the call graph, with the whole that it asks."""

    def __init__(self, functions: _Whole) -> None:
        self.functions = functions
        self.tree = functions.tree
        self.scopes = functions.scopes
        self.names = functions.names
