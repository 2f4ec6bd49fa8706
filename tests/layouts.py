"""One script in several layouts: what it does stays, where its brackets and lines are does not."""

from __future__ import annotations

import libcst as cst

__all__ = ["LAYOUTS"]

_BREAK = cst.ParenthesizedWhitespace(
    first_line=cst.TrailingWhitespace(newline=cst.Newline()),
    indent=True,
    last_line=cst.SimpleWhitespace("    "),
)


def _wrapped(node: cst.BaseExpression) -> cst.BaseExpression:
    """Put an expression between parentheses on lines of their own."""
    opening = cst.LeftParen(whitespace_after=_BREAK)
    closing = cst.RightParen(whitespace_before=_BREAK)
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
            return updated_node
        inner = func.value.with_changes(lpar=func.value.lpar[1:], rpar=func.value.rpar[:-1])
        dotted = func.with_changes(value=inner, dot=cst.Dot(whitespace_before=_BREAK))
        return _wrapped(updated_node.with_changes(func=dotted))


class _Arguments(_NoDecorators):
    """Every argument on a line of its own with a comma behind it, as Black breaks a long call."""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        args = updated_node.args
        if not args or isinstance(args[0].value, cst.GeneratorExp):
            return updated_node
        lines = [arg.with_changes(comma=cst.Comma(whitespace_after=_BREAK)) for arg in args]
        return updated_node.with_changes(whitespace_before_args=_BREAK, args=lines)


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


LAYOUTS: dict[str, type[cst.CSTTransformer]] = {
    "calls": _Calls,
    "chains": _Chains,
    "arguments": _Arguments,
    "attributes": _Attributes,
    "values": _Values,
}
