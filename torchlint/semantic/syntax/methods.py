"""Methods: the attribute that a call calls, and the object whose attribute it is."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst


def method_of(node: cst.CSTNode | None) -> str:
    """Return the name of the attribute that a node calls, "" if it calls none."""
    if type(node) is cst.Call and type(node.func) is cst.Attribute:
        return node.func.attr.value
    return ""


def receiver_of(node: cst.CSTNode | None, *methods: str) -> cst.BaseExpression | None:
    """Return the object whose attribute a node calls: one of these methods, if any are named."""
    if type(node) is not cst.Call or type(node.func) is not cst.Attribute:
        return None
    return node.func.value if not methods or node.func.attr.value in methods else None


def named_arguments(call: cst.Call, *names: str) -> list[cst.BaseExpression]:
    """Return the values of the arguments that a call spells by one of these names."""
    return [arg.value for arg in call.args if arg.keyword and arg.keyword.value in names]


def last_word(node: cst.CSTNode | None) -> str:
    """Return the last word of a name or an attribute: `f` of `f` and `a.f`, "" of others."""
    last = node.attr if type(node) is cst.Attribute else node
    return last.value if type(last) is cst.Name else ""


def choices_of(node: cst.CSTNode) -> tuple[cst.BaseExpression, ...]:
    """Return what the value of `a if test else b`, or of `a or b`, is one of; else nothing."""
    if type(node) is cst.IfExp:
        return (node.body, node.orelse)
    return (node.left, node.right) if type(node) is cst.BooleanOperation else ()


def operands_of(test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the operands of `and`, `or` and `not` in a condition."""
    if isinstance(test, cst.BooleanOperation):
        yield from operands_of(test.left)
        yield from operands_of(test.right)
    elif isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        yield from operands_of(test.expression)
    else:
        yield test


def root_of(node: cst.CSTNode, *, items: bool = False) -> cst.CSTNode:
    """Return what attributes are read from, `a` of `a.b.c`; with `items` also of `a[0].b`."""
    while type(node) is cst.Attribute or (items and type(node) is cst.Subscript):
        node = node.value
    return node


def container_of(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return what entries are taken from: `c` of `c["model"]["net"]`."""
    while isinstance(node, cst.Subscript):
        node = node.value
    return node


def is_none(node: cst.CSTNode | None) -> bool:
    """Return whether an expression is `None`."""
    return isinstance(node, cst.Name) and node.value == "None"


def index_of(node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return the one index of an item, `i` of `x[i]`; None for slices, and for no item."""
    parts = node.slice if isinstance(node, cst.Subscript) else ()
    index = parts[0].slice if len(parts) == 1 else None
    return index.value if isinstance(index, cst.Index) else None


def word_of(call: cst.Call) -> str:
    """Return the last word of what a call calls: `f` of `f()` and `a.f()`, "" of others."""
    return last_word(call.func)


def replaces_itself(call: cst.Call, line: cst.CSTNode | None) -> bool:
    """Return whether a line assigns the result of a call to what is called: `net = net(10)`.

    `q = self.q(x)` only names what the layer gives.
    """
    called = last_word(call.func)
    plain = isinstance(call.func, cst.Name)
    return (
        isinstance(line, cst.Assign)
        and called != ""
        and any(
            last_word(each.target) == called and (plain or isinstance(each.target, cst.Attribute))
            for each in line.targets
        )
    )


def lines_of(body: cst.BaseSuite) -> tuple[cst.CSTNode, ...]:
    """Return the statements of a block, those that share a line one by one."""
    lines = body.body if isinstance(body, cst.IndentedBlock) else (body,)
    small = (cst.SimpleStatementLine, cst.SimpleStatementSuite)
    return tuple(
        each for line in lines for each in (line.body if isinstance(line, small) else (line,))
    )


def last_line(body: cst.BaseSuite) -> cst.CSTNode:
    """Return the last small statement of a block, or the compound one at its end."""
    return lines_of(body)[-1]


def entered(manager: cst.BaseExpression) -> cst.BaseExpression:
    """Return the context manager that a `with` enters: `b` of `a and b`, `a` of `a or b`."""
    while isinstance(manager, cst.BooleanOperation):
        both = isinstance(manager.operator, cst.And)
        manager = manager.right if both else manager.left
    return manager
