"""One script in several layouts: what it does stays, where its brackets and lines are does not."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

import libcst as cst

__all__ = ["LAYOUTS"]

Layout = Callable[[str], str]

_DEFAULT = cst.MaybeSentinel.DEFAULT
_BREAK = cst.ParenthesizedWhitespace(
    first_line=cst.TrailingWhitespace(newline=cst.Newline()),
    indent=True,
    last_line=cst.SimpleWhitespace("    "),
)
_REMARK = _BREAK.with_changes(
    first_line=cst.TrailingWhitespace(cst.SimpleWhitespace("  "), cst.Comment("# (why"))
)


def _wrapped(
    node: cst.BaseExpression, white: cst.ParenthesizedWhitespace = _BREAK
) -> cst.BaseExpression:
    """Put an expression between parentheses on lines of their own."""
    opening = cst.LeftParen(whitespace_after=white)
    closing = cst.RightParen(whitespace_before=white)
    return node.with_changes(lpar=[opening, *node.lpar], rpar=[*node.rpar, closing])


class _NoDecorators(cst.CSTTransformer):
    """Leaves decorators as they are: a suppression or an order of theirs is no layout."""

    def visit_Decorator(self, node: cst.Decorator) -> bool:
        return False


class _Calls(_NoDecorators):
    """Every call between parentheses."""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        return _wrapped(updated_node)


class _Chains(_NoDecorators):
    """Every chain of methods with a line for each, as Black breaks a long one."""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        func = updated_node.func
        if not isinstance(func, cst.Attribute) or not isinstance(func.value, cst.Call):
            return _around_chain(updated_node)
        inner = func.value.with_changes(lpar=func.value.lpar[1:], rpar=func.value.rpar[:-1])
        dotted = func.with_changes(value=inner, dot=cst.Dot(whitespace_before=_BREAK))
        return _wrapped(updated_node.with_changes(func=dotted))


def _around_chain(call: cst.Call) -> cst.Call:
    """Let the parentheses of a call be those of the chain that it is given, as Black does."""
    value = call.args[0].value if len(call.args) == 1 else None
    if not isinstance(value, cst.Call) or not value.lpar:
        return call
    bare = value.with_changes(lpar=value.lpar[1:], rpar=value.rpar[:-1])
    given = call.args[0].with_changes(value=bare, whitespace_after_arg=_BREAK)
    return call.with_changes(whitespace_before_args=_BREAK, args=[given])


def _apart(call: cst.Call, white: cst.ParenthesizedWhitespace) -> cst.Call:
    """Put every argument of a call on a line of its own."""
    args = call.args
    if not args or isinstance(args[0].value, cst.GeneratorExp):
        return call
    lines = [arg.with_changes(comma=cst.Comma(whitespace_after=white)) for arg in args]
    return call.with_changes(whitespace_before_args=white, args=lines)


class _Arguments(_NoDecorators):
    """Every argument on a line of its own with a comma behind it, as Black breaks a long call."""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        return _apart(updated_node, _BREAK)


class _Attributes(_NoDecorators):
    """Every attribute that is read between parentheses."""

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def visit_Del(self, node: cst.Del) -> bool:
        return False

    def visit_AssignTarget(self, node: cst.AssignTarget) -> bool:
        return False

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        return _wrapped(updated_node)


class _Values(_NoDecorators):
    """Everything that is given, assigned, returned or looped over between parentheses."""

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        if isinstance(updated_node.value, cst.GeneratorExp):
            return updated_node
        return updated_node.with_changes(value=_wrapped(updated_node.value))

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        return updated_node.with_changes(value=_wrapped(updated_node.value))

    def leave_AugAssign(
        self, original_node: cst.AugAssign, updated_node: cst.AugAssign
    ) -> cst.AugAssign:
        return updated_node.with_changes(value=_wrapped(updated_node.value))

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return:
        if updated_node.value is None:
            return updated_node
        return updated_node.with_changes(value=_wrapped(updated_node.value))

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        return updated_node.with_changes(iter=_wrapped(updated_node.iter))

    def leave_With(self, original_node: cst.With, updated_node: cst.With) -> cst.With:
        items = [item.with_changes(item=_wrapped(item.item)) for item in updated_node.items]
        return updated_node.with_changes(items=items)

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If:
        return updated_node.with_changes(test=_wrapped(updated_node.test))


class _Remarks(_NoDecorators):
    """Every argument and every value with a comment behind it."""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        return _apart(updated_node, _REMARK)

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        return updated_node.with_changes(value=_wrapped(updated_node.value, _REMARK))

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> cst.Expr:
        if not isinstance(updated_node.value, cst.Call):
            return updated_node
        return updated_node.with_changes(value=_wrapped(updated_node.value, _REMARK))


class _Semicolons(cst.CSTTransformer):
    """Every simple statement on the line of the one before."""

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        return updated_node.with_changes(body=_on_one_line(updated_node.body))

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        return updated_node.with_changes(body=_on_one_line(updated_node.body))


def _on_one_line(body: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
    made: list[cst.BaseStatement] = []
    for line in body:
        last = made[-1] if made else None
        if _is_plain(line) and isinstance(last, cst.SimpleStatementLine) and _is_plain(last):
            assert isinstance(line, cst.SimpleStatementLine)
            tail = line.trailing_whitespace
            made[-1] = last.with_changes(body=[*last.body, *line.body], trailing_whitespace=tail)
        else:
            made.append(line)
    return made


def _is_plain(line: cst.BaseStatement) -> bool:
    """Return whether a line is of simple statements, with no comment and no import."""
    return (
        isinstance(line, cst.SimpleStatementLine)
        and not line.leading_lines
        and line.trailing_whitespace.comment is None
        and not any(isinstance(small, cst.ImportFrom) for small in line.body)
    )


class _Suites(cst.CSTTransformer):
    """Every block of simple statements behind the colon."""

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        return updated_node.with_changes(body=_behind_colon(updated_node.body))

    def leave_With(self, original_node: cst.With, updated_node: cst.With) -> cst.With:
        return updated_node.with_changes(body=_behind_colon(updated_node.body))

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If:
        return updated_node.with_changes(body=_behind_colon(updated_node.body))


def _behind_colon(block: cst.BaseSuite) -> cst.BaseSuite:
    if not isinstance(block, cst.IndentedBlock) or not all(map(_is_plain, block.body)):
        return block
    lines = [line for line in block.body if isinstance(line, cst.SimpleStatementLine)]
    smalls = [small.with_changes(semicolon=_DEFAULT) for line in lines for small in line.body]
    return cst.SimpleStatementSuite(smalls)


def _by(transformer: type[cst.CSTTransformer]) -> Layout:
    return lambda text: _parsed(text).visit(transformer()).code


@functools.lru_cache(maxsize=2)
def _parsed(text: str) -> cst.Module:
    """Parse a script, which is then written in one layout after the other, some on another."""
    return cst.parse_module(text)


def _of_windows(text: str) -> str:
    """Indent with tabs and end lines as Windows does."""
    tabs = re.sub(r"(?m)^(?: {4})+", lambda match: "\t" * (len(match[0]) // 4), text)
    return tabs.replace("\n", "\r\n")


def _of_macs(text: str) -> str:
    """End lines as old Macs did, with blank ones in between and without an end of the last."""
    return text.rstrip("\n").replace("\n", "\r\r")


LAYOUTS: dict[str, Layout] = {
    "calls": _by(_Calls),
    "chains": _by(_Chains),
    "arguments": _by(_Arguments),
    "values": _by(_Values),
    "windows": _of_windows,
    "attributes": _by(_Attributes),
    "remarks": _by(_Remarks),
    "semicolons": _by(_Semicolons),
    "suites": _by(_Suites),
    "macs": _of_macs,
}
