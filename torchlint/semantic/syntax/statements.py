"""Statements: converts `ast` statements to LibCST nodes, with their positions."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import libcst as cst

from torchlint.semantic.syntax.cursor import UnusualError
from torchlint.semantic.syntax.expressions import Expressions
from torchlint.semantic.syntax.makers import ASYNC, CLOSE, COMMA, NONE, OPEN, maker, plain

_line = maker(cst.SimpleStatementLine, "body")
_suite = maker(cst.SimpleStatementSuite, "body")
_block = maker(cst.IndentedBlock, "body")
_expr = maker(cst.Expr, "value")
_pass = maker(cst.Pass)
_break = maker(cst.Break)
_continue = maker(cst.Continue)
_assign = maker(cst.Assign, "targets", "value")
_assign_target = maker(cst.AssignTarget, "target")
_aug_assign = maker(cst.AugAssign, "target", "operator", "value")
_ann_assign = maker(cst.AnnAssign, "target", "annotation", "value")
_return = maker(cst.Return, "value")
_raise = maker(cst.Raise, "exc", "cause")
_from = maker(cst.From, "item")
_assert = maker(cst.Assert, "test", "msg")
_del = maker(cst.Del, "target")
_tuple = maker(cst.Tuple, "elements", "lpar", "rpar")
_global = maker(cst.Global, "names")
_nonlocal = maker(cst.Nonlocal, "names")
_name_item = maker(cst.NameItem, "name", "comma")
_name = maker(cst.Name, "value")
_attribute = maker(cst.Attribute, "value", "attr")
_import = maker(cst.Import, "names")
_import_from = maker(cst.ImportFrom, "module", "names", "relative", "lpar", "rpar")
_import_star = maker(cst.ImportStar)
_import_alias = maker(cst.ImportAlias, "name", "asname", "comma")
_as_name = maker(cst.AsName, "name")
_with = maker(cst.With, "items", "body", "asynchronous", "lpar", "rpar")
_with_item = maker(cst.WithItem, "item", "asname", "comma")
_for = maker(cst.For, "target", "iter", "body", "orelse", "asynchronous")
_while = maker(cst.While, "test", "body", "orelse")
_if = maker(cst.If, "test", "body", "orelse")
_else = maker(cst.Else, "body")
_try = maker(cst.Try, "body", "handlers", "orelse", "finalbody")
_except_handler = maker(cst.ExceptHandler, "body", "type", "name")
_finally = maker(cst.Finally, "body")
_function = maker(
    cst.FunctionDef, "name", "params", "body", "decorators", "returns", "asynchronous"
)
_class = maker(cst.ClassDef, "name", "body", "bases", "keywords", "decorators")
_decorator = maker(cst.Decorator, "decorator")
_module = maker(cst.Module, "body", "default_indent", "default_newline")

_DOT: Final = plain(cst.Dot)
_AUGMENTED: Final = {
    ast.Add: plain(cst.AddAssign),
    ast.Sub: plain(cst.SubtractAssign),
    ast.Mult: plain(cst.MultiplyAssign),
    ast.Div: plain(cst.DivideAssign),
    ast.FloorDiv: plain(cst.FloorDivideAssign),
    ast.Mod: plain(cst.ModuloAssign),
    ast.Pow: plain(cst.PowerAssign),
    ast.MatMult: plain(cst.MatrixMultiplyAssign),
    ast.LShift: plain(cst.LeftShiftAssign),
    ast.RShift: plain(cst.RightShiftAssign),
    ast.BitOr: plain(cst.BitOrAssign),
    ast.BitAnd: plain(cst.BitAndAssign),
    ast.BitXor: plain(cst.BitXorAssign),
}
_FROM: Final = re.compile(r"from[ \t]*([. \t]*)([\w.]*)[ \t]+import\b")
_AS: Final = re.compile(r"(?:[ \t\f\r\n]|\\\r?\n|#[^\r\n]*(?![^\r\n]))+as[ \t]+(\w+)")
_DEF: Final = re.compile(r"(?:async[ \t]+)?def[ \t]+(\w+)[ \t]*\(")
_CLASS: Final = re.compile(r"class[ \t]+(\w+)[ \t]*(\(?)")


class Statements(Expressions):
    """Reads the statements of a file, from first to last."""

    def module(self, tree: ast.Module, newline: str) -> cst.Module:
        """Return the whole file."""
        body = self._statements(tree.body)
        indent = next(self._indents(body), "    ")
        made: cst.Module = _module(body, indent, newline)
        return made

    def _indents(self, body: Sequence[Any]) -> Any:
        """Yield the white space before the statements of the first block, if there is one."""
        for statement in body:
            for part in (statement, getattr(statement, "orelse", None)):
                block = getattr(part, "body", None)
                if isinstance(block, cst.IndentedBlock):
                    first = self.spans[block][0]
                    line = self.text[:first].rpartition("\n")[2].rpartition("\r")[2]
                    yield line[: len(line) - len(line.lstrip(" \t\f"))]

    def _statements(self, nodes: Sequence[ast.stmt]) -> list[Any]:
        """Read statements, grouping those on one line."""
        found: list[Any] = []
        line: list[Any] = []
        for node in nodes:
            start = self.start(node)
            compound = _COMPOUND.get(type(node))
            if line and (compound or not self.joined(self.at, start)):
                found.append(self._lined(line))
                line = []
            if compound:
                found.append(self._compound(compound, node, start))
            else:
                line.append(self._small(node, start))
        if line:
            found.append(self._lined(line))
        return found

    def _lined(self, body: list[Any]) -> Any:
        found = _line(body)
        first, last = self.spans[body[0]], self.spans[body[-1]]
        self.spans[found] = first if first is last else (first[0], last[1])
        return found

    def _small(self, node: ast.stmt, start: int) -> Any:
        made = _SMALL.get(type(node))
        if made is None:
            raise UnusualError(type(node).__name__)
        self.at = start
        found = made(self, node)
        end = self.at = self.end(node)
        return self.placed(found, start, end)

    def _compound(self, made: Callable[..., Any], node: ast.stmt, start: int) -> Any:
        if not getattr(node, "decorator_list", None):
            self.at = start
        return self.placed(made(self, node), start, self.at)

    def _body(self, nodes: Sequence[ast.stmt]) -> Any:
        """Read the body behind the colon of a compound statement."""
        first = nodes[0]
        start = self.start(first)
        decorated = bool(getattr(first, "decorator_list", None))
        body = self._statements(nodes)
        if not decorated and self.in_line(first):
            if len(body) != 1:
                raise UnusualError("a suite of several lines behind a colon")
            start, end = self.spans.pop(body[0])
            return self.placed(_suite(body[0].body), start, end)
        if decorated:
            start = self.spans[body[0]][0]
        return self.placed(_block(body), start, self.at)

    # -- small statements -----------------------------------------------------

    def _of_expr(self, node: ast.Expr) -> Any:
        return _expr(self.expression(node.value))

    def _of_assign(self, node: ast.Assign) -> Any:
        targets = []
        for each in node.targets:
            target = self.expression(each)
            targets.append(self.around(_assign_target(target), target))
        return _assign(targets, self.expression(node.value))

    def _of_aug_assign(self, node: ast.AugAssign) -> Any:
        target = self.expression(node.target)
        return _aug_assign(target, _AUGMENTED[type(node.op)], self.expression(node.value))

    def _of_ann_assign(self, node: ast.AnnAssign) -> Any:
        target = self.expression(node.target)
        annotation = self.annotation(node.annotation)
        value = self.expression(node.value) if node.value is not None else None
        return _ann_assign(target, annotation, value)

    def _of_return(self, node: ast.Return) -> Any:
        return _return(self.expression(node.value) if node.value is not None else None)

    def _of_raise(self, node: ast.Raise) -> Any:
        exc = self.expression(node.exc) if node.exc is not None else None
        if node.cause is None:
            return _raise(exc, None)
        cause = self.expression(node.cause)
        return _raise(exc, self.around(_from(cause), cause))

    def _of_assert(self, node: ast.Assert) -> Any:
        test = self.expression(node.test)
        return _assert(test, self.expression(node.msg) if node.msg is not None else None)

    def _of_delete(self, node: ast.Delete) -> Any:
        if len(node.targets) == 1:
            target = self.expression(node.targets[0])
            if self.comma(self.at) is not NONE:
                raise UnusualError("a comma behind the one thing to delete")
            return _del(target)
        elements = self.elements(node.targets)
        start, end = self.spans[elements[0]][0], self.at
        return _del(self.placed(_tuple(elements, (), ()), start, end))

    # -- imports --------------------------------------------------------------

    def _of_import(self, node: ast.Import) -> Any:
        return _import([self._alias(each) for each in node.names])

    def _of_import_from(self, node: ast.ImportFrom) -> Any:
        found = _FROM.match(self.text, self.start(node))
        if found is None or found.group(2) != (node.module or ""):
            raise UnusualError("an import that is not written as usual")
        if len(re.sub(r"\s", "", found.group(1))) != node.level:
            raise UnusualError("an import that is not written as usual")
        module = self._dotted(node.module, found.start(2)) if node.module else None
        if node.names[0].name == "*":
            return _import_from(module, _import_star(), (_DOT,) * node.level, None, None)
        names = [self._alias(each) for each in node.names]
        enclosed = self.text.startswith("(", self.skipped(found.end()))
        lpar, rpar = (OPEN, CLOSE) if enclosed else (None, None)
        return _import_from(module, names, (_DOT,) * node.level, lpar, rpar)

    def _alias(self, node: ast.alias) -> Any:
        start, end = self.start(node), self.end(node)
        name = self._dotted(node.name, start)
        asname = None
        if node.asname is not None:
            word = self.identifier(node.asname, end - len(node.asname))
            asname = self.around(_as_name(word), word)
        return self.placed(_import_alias(name, asname, self.comma(end)), start, end)

    def _dotted(self, written: str, start: int) -> Any:
        if not self.text.startswith(written, start):
            raise UnusualError("a dotted name that is not written as it is meant")
        first, *rest = written.split(".")
        found = self.identifier(first, start)
        at = start + len(first)
        for word in rest:
            found = _attribute(found, self.identifier(word, at + 1))
            at += 1 + len(word)
            self.placed(found, start, at)
        return found

    # -- compound statements --------------------------------------------------

    def _of_if(self, node: ast.If) -> Any:
        test = self.expression(node.test)
        body = self._body(node.body)
        orelse = None
        if node.orelse:
            inner = node.orelse[0]
            start = self.start(inner)
            if isinstance(inner, ast.If) and self.text.startswith("elif", start):
                self.at = start
                orelse = self.placed(self._of_if(inner), start, self.at)
            else:
                orelse = self._else(node.orelse)
        return _if(test, body, orelse)

    def _else(self, nodes: Sequence[ast.stmt]) -> Any:
        if not nodes:
            return None
        start = self.keyword("else")
        return self.placed(_else(self._body(nodes)), start, self.at)

    def _of_for(self, node: ast.For | ast.AsyncFor) -> Any:
        target, iterable = self.expression(node.target), self.expression(node.iter)
        body = self._body(node.body)
        asynchronous = ASYNC if isinstance(node, ast.AsyncFor) else None
        return _for(target, iterable, body, self._else(node.orelse), asynchronous)

    def _of_while(self, node: ast.While) -> Any:
        test = self.expression(node.test)
        body = self._body(node.body)
        return _while(test, body, self._else(node.orelse))

    def _of_with(self, node: ast.With | ast.AsyncWith) -> Any:
        items = []
        opened = self._opened_for_all(node.items)
        for each in node.items:
            item = self.expression(each.context_expr)
            start, asname = self.spans[item][0], None
            if each.optional_vars is not None:
                word = self.expression(each.optional_vars)
                asname = self.around(_as_name(word), word)
            found = _with_item(item, asname, self.comma(self.at))
            items.append(self.placed(found, start, self.at))
        body = self._body(node.body)
        lpar, rpar = (OPEN, CLOSE) if opened else (NONE, NONE)
        asynchronous = ASYNC if isinstance(node, ast.AsyncWith) else None
        return _with(items, body, asynchronous, lpar, rpar)

    def _opened_for_all(self, items: Sequence[ast.withitem]) -> bool:
        """Return whether parentheses enclose all items of a `with`, and enter them."""
        first = items[0]
        start, end = self.start(first.context_expr), self.end(first.context_expr)
        count = self.opened(start)
        if not count:
            return False
        if self.closing(end, count) == count:
            after = self.skipped(self.closed(end, count))
            if len(items) > 1 or self.text[after] != ":":
                return False
        self.at = self.first_opened(start) + 1
        return True

    def _of_try(self, node: ast.Try) -> Any:
        body = self._body(node.body)
        handlers = [self._handler(each) for each in node.handlers]
        orelse = self._else(node.orelse)
        finalbody = None
        if node.finalbody:
            start = self.keyword("finally")
            finalbody = self.placed(_finally(self._body(node.finalbody)), start, self.at)
        return _try(body, handlers, orelse, finalbody)

    def _handler(self, node: ast.ExceptHandler) -> Any:
        start = self.keyword("except")
        kind = self.expression(node.type) if node.type is not None else None
        name = None
        if node.name is not None:
            found = _AS.match(self.text, self.at)
            if found is None or found.group(1) != node.name:
                raise UnusualError("a name that is not written as it is meant")
            word = self.identifier(node.name, found.start(1))
            name = self.around(_as_name(word), word)
            self.at = found.end()
        return self.placed(_except_handler(self._body(node.body), kind, name), start, self.at)

    def _decorators(self, nodes: Sequence[ast.expr]) -> list[Any]:
        found = []
        for node in nodes:
            start = len(self.text[: self.start(node)].rstrip(" \t\f(")) - 1
            if self.text[start] != "@":
                raise UnusualError("a decorator that is not written as usual")
            self.at = start + 1
            made = self.expression(node)
            found.append(self.placed(_decorator(made), start, self.at))
        return found

    def _of_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Any:
        decorators = self._decorators(node.decorator_list)
        head = _DEF.match(self.text, self.start(node))
        if head is None or head.group(1) != node.name:
            raise UnusualError("a function that is not written as usual")
        name = self.identifier(node.name, head.start(1))
        self.at = head.end()
        params = self.parameters(node.args)
        returns = self.annotation(node.returns) if node.returns is not None else None
        body = self._body(node.body)
        asynchronous = ASYNC if isinstance(node, ast.AsyncFunctionDef) else None
        return _function(name, params, body, decorators, returns, asynchronous)

    def _of_class(self, node: ast.ClassDef) -> Any:
        decorators = self._decorators(node.decorator_list)
        head = _CLASS.match(self.text, self.start(node))
        if head is None or head.group(1) != node.name:
            raise UnusualError("a class that is not written as usual")
        name = self.identifier(node.name, head.start(1))
        self.at = head.end()
        given = self.arguments(node.bases, node.keywords)
        split = sum(not each.keyword and each.star != "**" for each in given)
        body = self._body(node.body)
        return _class(name, body, given[:split], given[split:], decorators)


def _listed(names: Sequence[str]) -> list[Any]:
    commas = [COMMA] * (len(names) - 1) + [NONE]
    return [_name_item(_name(name), comma) for name, comma in zip(names, commas, strict=True)]


_SMALL: Final[dict[type[ast.stmt], Callable[..., Any]]] = {
    ast.Expr: Statements._of_expr,
    ast.Pass: lambda reader, node: _pass(),
    ast.Break: lambda reader, node: _break(),
    ast.Continue: lambda reader, node: _continue(),
    ast.Assign: Statements._of_assign,
    ast.AugAssign: Statements._of_aug_assign,
    ast.AnnAssign: Statements._of_ann_assign,
    ast.Return: Statements._of_return,
    ast.Raise: Statements._of_raise,
    ast.Assert: Statements._of_assert,
    ast.Delete: Statements._of_delete,
    ast.Global: lambda reader, node: _global(_listed(node.names)),
    ast.Nonlocal: lambda reader, node: _nonlocal(_listed(node.names)),
    ast.Import: Statements._of_import,
    ast.ImportFrom: Statements._of_import_from,
}
_COMPOUND: Final[dict[type[ast.stmt], Callable[..., Any]]] = {
    ast.If: Statements._of_if,
    ast.For: Statements._of_for,
    ast.AsyncFor: Statements._of_for,
    ast.While: Statements._of_while,
    ast.With: Statements._of_with,
    ast.AsyncWith: Statements._of_with,
    ast.Try: Statements._of_try,
    ast.FunctionDef: Statements._of_function,
    ast.AsyncFunctionDef: Statements._of_function,
    ast.ClassDef: Statements._of_class,
}
