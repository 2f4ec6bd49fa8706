"""LibCST's nodes are what they are without the part that is left out of their import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

FIXTURES: Final = Path(__file__).parents[2] / "fixtures" / "scripts"
SHOWN: Final = """
import abc, dataclasses, sys
if sys.argv[1] == "lean":
    from torchlint.cli.lean import expect_libcst
    expect_libcst()
real = dataclasses.dataclass, abc.ABC
import libcst as cst
assert (dataclasses.dataclass, abc.ABC) == real
print("libcst.metadata" in sys.modules, file=sys.stderr)
print(cst.metadata.__name__, cst.MetadataWrapper.__module__, cst.ensure_type.__module__)
print(hasattr(cst, "nothing"), cst.PartialParserConfig().default_newline)
from libcst.metadata import CodePosition

METHODS = ("__eq__", "__hash__", "__repr__")

tree = cst.parse_module(sys.stdin.read())
again = tree.deep_clone()
name, other = cst.Name("loss"), cst.Name("loss")
print("__setattr__" in vars(cst.Name), type(cst.Name).__name__, file=sys.stderr)
print(repr(again), again.code == tree.code, again.deep_equals(tree), again == tree)
print(repr(name), name == name, name == other, len({name, other}), name.deep_equals(other))
print(name.with_changes(value="total").value, [field.name for field in dataclasses.fields(name)])
print(CodePosition(1, 2) == CodePosition(1, 2), hash(CodePosition(1, 2)) == hash((1, 2)))
kinds = [kind for kind in vars(cst).values() if isinstance(kind, type)]
for kind in (kind for kind in kinds if issubclass(kind, cst.CSTNode)):
    own = [getattr(kind, part) is getattr(cst.CSTNode, part) for part in METHODS]
    print(kind.__name__, own, [field.name for field in dataclasses.fields(kind)])
print(isinstance(name, (cst.BaseExpression, cst.Attribute)), isinstance(tree, cst.BaseExpression))
class Renamed(cst.CSTTransformer):
    def visit_Call(self, node):
        return super().visit_Call(node)
    def leave_Name(self, original_node, updated_node):
        return super().leave_Name(original_node, updated_node).with_changes(value="x")
class Counted(cst.BatchableCSTVisitor):
    found = 0
    def visit_Name(self, node):
        self.found += 1
print(tree.visit(Renamed()).code, hasattr(cst.CSTVisitor, "leave_Name"))
cst.visit_batched(tree, [counted := Counted()])
print(counted.found, sorted(counted.get_visitors()), hasattr(Counted, "leave_Add_whitespace_after"))
try:
    cst.Name("")
except cst.CSTValidationError as error:
    print(error)
for arguments, fields in (((), {}), (("loss", (), (), None), {}), (("loss",), {"no": 1})):
    try:
        cst.Name(*arguments, **fields)
    except TypeError as error:
        print(error)
"""
ASSIGNED: Final = """
import libcst as cst
from torchlint.cli.lean import expect_libcst

expect_libcst()
import libcst

try:
    cst.Name("loss").value = "total"
except AttributeError as error:
    print(type(error).__name__)
"""


def _run(code: str, *arguments: str, text: str = "") -> tuple[str, str]:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


def test_nodes_print_compare_copy_and_validate_as_they_do() -> None:
    script = next(FIXTURES.glob("*/before.py")).read_text()
    (lean, frozen), (whole, as_ever) = (
        _run(SHOWN, kind, text=script) for kind in ("lean", "whole")
    )
    assert (frozen, as_ever) == ("False\nFalse type\n", "True\nTrue ABCMeta\n")
    assert lean == whole
    assert "Module(" in lean


def test_classes_that_somebody_has_imported_stay_as_they_are() -> None:
    assert _run(ASSIGNED)[0] == "FrozenInstanceError\n"
