"""Syntax: the nodes of a file and where they stand."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from types import MappingProxyType

import libcst as cst

from torchlint.record import Record
from torchlint.semantic.syntax.cursor import UnusualError
from torchlint.semantic.syntax.statements import Statements
from torchlint.source import Source

__all__ = ["Syntax", "read"]


class Syntax(Record):
    """A file as nodes of LibCST.

    `spans` are the characters of nodes, `fragments` where the text of those
    begins whose parts have no place yet. Without both, LibCST has read the file by itself.
    """

    module: cst.Module
    spans: Mapping[cst.CSTNode, tuple[int, int]] = MappingProxyType({})
    fragments: Mapping[cst.CSTNode, tuple[cst.BaseExpression, int]] = MappingProxyType({})


def read(source: Source, tree: ast.Module | None = None) -> Syntax:
    """Read a file, of which CPython's tree may be at hand; raises `libcst.ParserSyntaxError`."""
    if tree is None:
        tree = _parsed(source)
    if tree is not None:
        try:
            reader = Statements(source)
            module = reader.module(tree, source.newline)
            return Syntax(module, reader.spans, reader.fragments)
        except (UnusualError, cst.ParserSyntaxError):
            pass
    return Syntax(cst.parse_module(source.text))


def _parsed(source: Source) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source.text)
        except (SyntaxError, ValueError):
            return None
