"""Compares what is read of a file with what LibCST's own parser makes of it."""

from __future__ import annotations

import ast
import functools
from dataclasses import fields
from typing import Any

import libcst as cst

from torchlint.semantic.syntax import Syntax, read
from torchlint.semantic.syntax.tree import Tree
from torchlint.source import Source

LAYOUT = frozenset(
    "leading_lines trailing_whitespace semicolon equal dot header footer indent "
    "lines_after_decorators colon lbrace rbrace lbracket rbracket first_colon newline "
    "leading_whitespace encoding has_trailing_newline".split()
)
LAYOUT_OF = {cst.Assert: {"comma"}, cst.ClassDef: {"lpar", "rpar"}}
ELSEWHERE = (
    cst.CompFor,
    cst.CompIf,
    cst.ParamStar,
    cst.ComparisonTarget,
    cst.Parameters,
    cst.AsName,
    cst.From,
    cst.Module,
    cst.Slice,
    cst.StarredDictElement,
    cst.StarredElement,
    cst.SubscriptElement,
)
"""Nodes whose place has, for LibCST, white space, a comma or a word at one of its ends."""


@functools.cache
def _told(kind: type[cst.CSTNode]) -> list[str]:
    """Return the fields of a kind of node that are no layout."""
    layout = LAYOUT | LAYOUT_OF.get(kind, set())
    names = [field.name for field in fields(kind)]
    return [name for name in names if not name.startswith("whitespace") and name not in layout]


def pair(mine: Any, theirs: Any, path: str, found: list[tuple[cst.CSTNode, cst.CSTNode]]) -> None:
    """Add the nodes that stand for one another; fails at the first that differ."""
    if isinstance(theirs, cst.CSTNode):
        assert type(mine) is type(theirs), path
        found.append((mine, theirs))
        for name in _told(type(theirs)):
            inner, other = getattr(mine, name), getattr(theirs, name)
            if name in ("comma", "second_colon", "operator", "asynchronous", "posonly_ind"):
                assert type(inner) is type(other), f"{path}.{name}"
            elif name in ("lpar", "rpar", "relative") and isinstance(other, (tuple, list)):
                assert len(inner) == len(other), f"{path}.{name}"
            else:
                pair(inner, other, f"{path}.{name}", found)
    elif isinstance(theirs, (tuple, list)):
        assert len(mine) == len(theirs), path
        for number, (inner, other) in enumerate(zip(mine, theirs, strict=True)):
            pair(inner, other, f"{path}[{number}]", found)
    else:
        assert mine == theirs or not (mine or theirs), path


def compare(source: Source, tree: ast.Module, module: cst.Module) -> Syntax:
    """Compare what is read of a file with what LibCST's parser makes of it."""
    syntax = read(source, tree)
    mine, theirs = Tree(source, syntax), Tree(source, Syntax(module))
    pairs: list[tuple[cst.CSTNode, cst.CSTNode]] = []
    pair(syntax.module, module, "", pairs)
    for ours, other in pairs:
        if other in theirs.ranks:
            assert mine.order(ours) == theirs.order(other)
            assert mine.end(ours) == theirs.end(other)
            if not isinstance(other, ELSEWHERE):
                assert mine.span(ours) == theirs.span(other), mine.text(ours)
    assert ast.dump(ast.parse(syntax.module.code)) == ast.dump(tree)
    return syntax
