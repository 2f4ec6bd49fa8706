"""Places of nodes, held against LibCST's own positions."""

from __future__ import annotations

import ast
from pathlib import Path

import libcst as cst
import pytest
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from torchlint.semantic.syntax import Syntax
from torchlint.semantic.syntax.tree import Tree
from torchlint.source import Position, Source, SourceError

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "fixtures").rglob("*.py"))


def parsed(path: Path) -> tuple[Source, cst.Module]:
    try:
        source = Source.from_bytes(path.read_bytes(), str(path))
        ast.parse(source.text)
        return source, cst.parse_module(source.text)
    except (SourceError, SyntaxError, MemoryError, RecursionError, cst.ParserSyntaxError) as error:
        pytest.skip(f"not Python that both parsers read: {type(error).__name__}")


def corners(source: Source, tree: Tree, node: cst.CSTNode) -> tuple[Position, Position]:
    span = tree.span(node)
    return source.position(span.start), source.position(span.end)


def theirs(found: CodeRange) -> tuple[Position, Position]:
    return (
        Position(found.start.line, found.start.column + 1),
        Position(found.end.line, found.end.column + 1),
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_places_are_those_of_libcst(path: Path) -> None:
    source, module = parsed(path)
    try:
        positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    except RecursionError:
        pytest.skip("LibCST's own provider recurses too deeply here")
    tree = Tree(source, Syntax(module))
    for kind in (cst.Call, cst.Name, cst.SimpleStatementLine, cst.For, cst.FunctionDef, cst.Arg):
        for node in tree.all(kind):
            if getattr(node, "lpar", ()):
                continue
            assert corners(source, tree, node) == theirs(positions[node]), tree.text(node)


def test_an_expression_is_placed_with_its_own_parentheses() -> None:
    source = Source("example.py", "if x:\n    total = ((a + b)).item()  # sum\n")
    tree = Tree(source, Syntax(cst.parse_module(source.text)))
    (operation,) = tree.all(cst.BinaryOperation)
    span = tree.span(operation)
    assert source.text[span.start : span.end] == "((a + b))"
