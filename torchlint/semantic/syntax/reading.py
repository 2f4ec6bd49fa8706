"""Reading: a file as LibCST nodes with their positions."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.syntax.cursor import UnusualError
from torchlint.semantic.syntax.statements import Statements
from torchlint.source import Source

_INDENTATION: Final = re.compile(r"(?:\A|(?<=[\r\n]))[ \t\f]*\f")


class Syntax(NamedTuple):
    """A file as LibCST nodes.

    `spans` are the known spans of nodes, `fragments` the offsets of nodes whose parts have no span
    yet. Without both, LibCST's parser has read the whole file.
    """

    module: cst.Module
    spans: Mapping[cst.CSTNode, tuple[int, int]] = MappingProxyType({})
    fragments: Mapping[cst.CSTNode, tuple[cst.BaseExpression, int]] = MappingProxyType({})


def read(source: Source, tree: ast.Module | None = None) -> Syntax:
    """Read a file, reusing CPython's tree if given; raises `libcst.ParserSyntaxError`."""
    if tree is None:
        tree = _parsed(source)
    if tree is not None:
        try:
            reader = Statements(source)
            module = reader.module(tree, source.newline)
            return Syntax(module, reader.spans, reader.fragments)
        except (UnusualError, cst.ParserSyntaxError):
            pass
    # LibCST leaves out form feeds before a statement, which would move all that follows.
    text = _INDENTATION.sub(lambda found: found[0].replace("\f", "\n"), source.text)
    return Syntax(cst.parse_module(text))


def _parsed(source: Source) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source.text)
        except (SyntaxError, ValueError):
            return None
