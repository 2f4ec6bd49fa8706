"""Expressions: converts `ast` expressions to LibCST nodes, with their positions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, Final

import libcst as cst

from torchlint.semantic.syntax.cursor import Strings, UnusualError
from torchlint.semantic.syntax.makers import ASYNC, CLOSE, COMMA, EQUAL, NONE, OPEN, maker, plain

_name = maker(cst.Name, "value", "lpar", "rpar")
_attribute = maker(cst.Attribute, "value", "attr", "lpar", "rpar")
_call = maker(cst.Call, "func", "args", "lpar", "rpar")
_arg = maker(cst.Arg, "value", "keyword", "star", "comma", "equal")
_subscript = maker(cst.Subscript, "value", "slice", "lpar", "rpar")
_subscript_element = maker(cst.SubscriptElement, "slice", "comma")
_index = maker(cst.Index, "value")
_slice = maker(cst.Slice, "lower", "upper", "step", "second_colon")
_integer = maker(cst.Integer, "value", "lpar", "rpar")
_float = maker(cst.Float, "value", "lpar", "rpar")
_imaginary = maker(cst.Imaginary, "value", "lpar", "rpar")
_ellipsis = maker(cst.Ellipsis, "lpar", "rpar")
_binary = maker(cst.BinaryOperation, "left", "operator", "right", "lpar", "rpar")
_boolean = maker(cst.BooleanOperation, "left", "operator", "right", "lpar", "rpar")
_unary = maker(cst.UnaryOperation, "operator", "expression", "lpar", "rpar")
_comparison = maker(cst.Comparison, "left", "comparisons", "lpar", "rpar")
_comparison_target = maker(cst.ComparisonTarget, "operator", "comparator")
_if_exp = maker(cst.IfExp, "test", "body", "orelse", "lpar", "rpar")
_tuple = maker(cst.Tuple, "elements", "lpar", "rpar")
_list = maker(cst.List, "elements", "lpar", "rpar")
_set = maker(cst.Set, "elements", "lpar", "rpar")
_element = maker(cst.Element, "value", "comma")
_starred = maker(cst.StarredElement, "value", "comma")
_dict = maker(cst.Dict, "elements", "lpar", "rpar")
_dict_element = maker(cst.DictElement, "key", "value", "comma")
_starred_dict_element = maker(cst.StarredDictElement, "value", "comma")
_list_comp = maker(cst.ListComp, "elt", "for_in", "lpar", "rpar")
_set_comp = maker(cst.SetComp, "elt", "for_in", "lpar", "rpar")
_dict_comp = maker(cst.DictComp, "key", "value", "for_in", "lpar", "rpar")
_generator = maker(cst.GeneratorExp, "elt", "for_in", "lpar", "rpar")
_comp_for = maker(cst.CompFor, "target", "iter", "ifs", "inner_for_in", "asynchronous")
_comp_if = maker(cst.CompIf, "test")
_named = maker(cst.NamedExpr, "target", "value", "lpar", "rpar")
_await = maker(cst.Await, "expression", "lpar", "rpar")
_yield = maker(cst.Yield, "value", "lpar", "rpar")
_from = maker(cst.From, "item")
_lambda = maker(cst.Lambda, "params", "body", "lpar", "rpar")
_parameters = maker(
    cst.Parameters,
    "params",
    "star_arg",
    "kwonly_params",
    "star_kwarg",
    "posonly_params",
    "posonly_ind",
)
_param = maker(cst.Param, "name", "annotation", "equal", "default", "comma", "star")
_annotation = maker(cst.Annotation, "annotation")

_COLON: Final = plain(cst.Colon)
_param_star = maker(cst.ParamStar)
_SLASH: Final = plain(cst.ParamSlash)
_OPERATORS: Final = {
    ast.Add: plain(cst.Add),
    ast.Sub: plain(cst.Subtract),
    ast.Mult: plain(cst.Multiply),
    ast.Div: plain(cst.Divide),
    ast.FloorDiv: plain(cst.FloorDivide),
    ast.Mod: plain(cst.Modulo),
    ast.Pow: plain(cst.Power),
    ast.MatMult: plain(cst.MatrixMultiply),
    ast.LShift: plain(cst.LeftShift),
    ast.RShift: plain(cst.RightShift),
    ast.BitOr: plain(cst.BitOr),
    ast.BitAnd: plain(cst.BitAnd),
    ast.BitXor: plain(cst.BitXor),
    ast.And: plain(cst.And),
    ast.Or: plain(cst.Or),
    ast.Not: plain(cst.Not),
    ast.UAdd: plain(cst.Plus),
    ast.USub: plain(cst.Minus),
    ast.Invert: plain(cst.BitInvert),
    ast.Eq: plain(cst.Equal),
    ast.NotEq: plain(cst.NotEqual),
    ast.Gt: plain(cst.GreaterThan),
    ast.GtE: plain(cst.GreaterThanEqual),
    ast.Lt: plain(cst.LessThan),
    ast.LtE: plain(cst.LessThanEqual),
    ast.Is: plain(cst.Is),
    ast.IsNot: plain(cst.IsNot),
    ast.In: plain(cst.In),
    ast.NotIn: plain(cst.NotIn),
}
_Read = tuple[Any, int]
_Reader = Callable[..., _Read]


class Expressions(Strings):
    """Reads expressions; each method leaves the cursor behind the expression it read."""

    def expression(self, node: ast.expr) -> Any:
        """Return the LibCST node of an expression, parentheses included."""
        row = node.lineno
        start = self.starts[row - 1] + node.col_offset if row not in self.wide else self.start(node)
        read: _Reader = _READERS.get(type(node), _refused)
        if start > self.at and self.text.find("(", self.at, start) >= 0:
            count = self.opened(start)
            if count:
                opening, self.at = self.first_opened(start), start
                lpar, rpar = (OPEN,) * count, (CLOSE,) * count
                found, end = read(self, node, start, lpar, rpar)
                self.at = end = self.closed(end, count)
                self.spans[found] = opening, end
                return found
        self.at = start
        found, end = read(self, node, start, (), ())
        self.at = end
        self.spans[found] = start, end
        return found

    def around(self, found: Any, inner: Any, start: int | None = None) -> Any:
        """Record that a node has the position of the expression inside it."""
        span = self.spans[inner]
        self.spans[found] = span if start is None else (start, span[1])
        return found

    def identifier(self, value: str, start: int) -> Any:
        """Return the name at an offset."""
        end = start + len(value)
        if self.text[start:end] != value:
            raise UnusualError("a name that is not written as it is meant")
        found = _name(value, (), ())
        self.spans[found] = start, end
        return found

    def comma(self, end: int) -> Any:
        """Return the comma that follows an offset, if there is one."""
        after = self.text[end : end + 1]
        if after == ",":
            return COMMA
        if after not in " \t\f\r\n\\#":
            return NONE
        return COMMA if self.text.startswith(",", self.skipped(end)) else NONE

    # -- atoms ----------------------------------------------------------------

    def _of_name(self, node: ast.Name, start: int, lpar: Any, rpar: Any) -> _Read:
        word = node.id
        if not self.text.startswith(word, start):
            raise UnusualError("a name that is not written as it is meant")
        return _name(word, lpar, rpar), start + len(word)

    def _of_constant(self, node: ast.Constant, start: int, lpar: Any, rpar: Any) -> _Read:
        end, value = self.end(node), node.value
        kind = type(value)
        if kind is str or kind is bytes:
            return self.string(node, start, lpar, rpar), end
        written = self.text[start:end]
        if value is ...:
            return _ellipsis(lpar, rpar), end
        if value is None or kind is bool:
            return _name(written, lpar, rpar), end
        if kind is int:
            return _integer(written, lpar, rpar), end
        return (_float if kind is float else _imaginary)(written, lpar, rpar), end

    def _of_joined(self, node: ast.JoinedStr, start: int, lpar: Any, rpar: Any) -> _Read:
        return self.string(node, start, lpar, rpar), self.end(node)

    # -- calls, attributes, subscripts ----------------------------------------

    def _of_attribute(self, node: ast.Attribute, start: int, lpar: Any, rpar: Any) -> _Read:
        value = self.expression(node.value)
        end = self.end(node)
        attr = self.identifier(node.attr, end - len(node.attr))
        return _attribute(value, attr, lpar, rpar), end

    def _of_call(self, node: ast.Call, start: int, lpar: Any, rpar: Any) -> _Read:
        func = self.expression(node.func)
        end = self.end(node)
        self.before(end, "(")
        args = self.arguments(node.args, node.keywords)
        return _call(func, args, lpar, rpar), end

    def arguments(self, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> list[Any]:
        """Return the arguments of a call or a class, in source order."""
        if not keywords:
            if len(args) == 1 and type(args[0]) is ast.GeneratorExp:
                return [self._only_generator(args[0])]
            return [self._argument(each) for each in args]
        given: list[ast.expr | ast.keyword] = [*args, *keywords]
        if args and type(args[-1]) is ast.Starred:
            given.sort(key=lambda each: (each.lineno, each.col_offset))
        return [self._argument(each) for each in given]

    def _argument(self, node: Any) -> Any:
        keyword, star, start = None, "", None
        equal: Any = NONE
        if type(node) is ast.keyword:
            start = self.start(node)
            if node.arg is None:
                star = "**"
                self.at = start + 2
            else:
                keyword = self.identifier(node.arg, start)
                equal = EQUAL
                self.at = start + len(node.arg)
            value = self.expression(node.value)
        elif type(node) is ast.Starred:
            start, star = self.start(node), "*"
            self.at = start + 1
            value = self.expression(node.value)
        else:
            value = self.expression(node)
        found = _arg(value, keyword, star, self.comma(self.at), equal)
        return self.around(found, value, start)

    def _only_generator(self, node: ast.GeneratorExp) -> Any:
        """Return a generator argument, whose parentheses may be those of the call."""
        if self.start(node) != self.at - 1:
            return self._argument(node)
        elt = self.expression(node.elt)
        for_in = self.comprehension(node.generators)
        start, end = self.spans[elt][0], self.at
        value = self.placed(_generator(elt, for_in, (), ()), start, end)
        return self.around(_arg(value, None, "", NONE, NONE), value)

    def _of_subscript(self, node: ast.Subscript, start: int, lpar: Any, rpar: Any) -> _Read:
        value = self.expression(node.value)
        end = self.end(node)
        self.before(end, "[")
        inner = node.slice
        if isinstance(inner, ast.Tuple) and not self._is_enclosed(inner):
            elements = [self._part(each) for each in inner.elts]
        else:
            elements = [self._part(inner)]
        return _subscript(value, elements, lpar, rpar), end

    def _part(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Starred):
            raise UnusualError("a star in a subscript")
        if not isinstance(node, ast.Slice):
            value = self.expression(node)
            part = self.around(_index(value), value)
            return self.around(_subscript_element(part, self.comma(self.at)), part)
        start, end = self.start(node), self.end(node)
        self.at = start
        bounds = [
            self.expression(each) if each is not None else None
            for each in (node.lower, node.upper, node.step)
        ]
        colons = self.text.count(":", self.at, end) + (node.upper is not None)
        second = _COLON if node.step is not None or colons == 2 else NONE
        part = self.placed(_slice(*bounds, second), start, end)
        self.at = end
        return self.around(_subscript_element(part, self.comma(end)), part)

    # -- operations -----------------------------------------------------------

    def _of_binary(self, node: ast.BinOp, start: int, lpar: Any, rpar: Any) -> _Read:
        left = self.expression(node.left)
        right = self.expression(node.right)
        return _binary(left, _OPERATORS[type(node.op)], right, lpar, rpar), self.at

    def _of_boolean(self, node: ast.BoolOp, start: int, lpar: Any, rpar: Any) -> _Read:
        operator = _OPERATORS[type(node.op)]
        found = self.expression(node.values[0])
        last = len(node.values) - 1
        for number, each in enumerate(node.values[1:], 1):
            right = self.expression(each)
            if number == last:
                return _boolean(found, operator, right, lpar, rpar), self.at
            found = self.placed(_boolean(found, operator, right, (), ()), start, self.at)
        raise UnusualError("an operation without operands")

    def _of_unary(self, node: ast.UnaryOp, start: int, lpar: Any, rpar: Any) -> _Read:
        operand = self.expression(node.operand)
        return _unary(_OPERATORS[type(node.op)], operand, lpar, rpar), self.at

    def _of_compare(self, node: ast.Compare, start: int, lpar: Any, rpar: Any) -> _Read:
        left = self.expression(node.left)
        targets = []
        for op, each in zip(node.ops, node.comparators, strict=True):
            right = self.expression(each)
            targets.append(self.around(_comparison_target(_OPERATORS[type(op)], right), right))
        return _comparison(left, targets, lpar, rpar), self.at

    def _of_if_exp(self, node: ast.IfExp, start: int, lpar: Any, rpar: Any) -> _Read:
        body = self.expression(node.body)
        test = self.expression(node.test)
        orelse = self.expression(node.orelse)
        return _if_exp(test, body, orelse, lpar, rpar), self.at

    def _of_named(self, node: ast.NamedExpr, start: int, lpar: Any, rpar: Any) -> _Read:
        target = self.expression(node.target)
        value = self.expression(node.value)
        return _named(target, value, lpar, rpar), self.at

    def _of_await(self, node: ast.Await, start: int, lpar: Any, rpar: Any) -> _Read:
        return _await(self.expression(node.value), lpar, rpar), self.at

    def _of_yield(self, node: ast.Yield, start: int, lpar: Any, rpar: Any) -> _Read:
        value = self.expression(node.value) if node.value is not None else None
        return _yield(value, lpar, rpar), self.end(node) if value is None else self.at

    def _of_yield_from(self, node: ast.YieldFrom, start: int, lpar: Any, rpar: Any) -> _Read:
        value = self.expression(node.value)
        return _yield(self.around(_from(value), value), lpar, rpar), self.at

    # -- displays -------------------------------------------------------------

    def elements(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """Return the elements of a list, a set or a tuple."""
        found = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                start = self.start(node)
                if self.opened(start):
                    raise UnusualError("parentheses around a star")
                self.at = start + 1
                value = self.expression(node.value)
                found.append(self.around(_starred(value, self.comma(self.at)), value, start))
            else:
                value = self.expression(node)
                found.append(self.around(_element(value, self.comma(self.at)), value))
        return found

    def _of_tuple(self, node: ast.Tuple, start: int, lpar: Any, rpar: Any) -> _Read:
        if self._is_enclosed(node):
            lpar, rpar = (*lpar, OPEN), (*rpar, CLOSE)
            self.at = start + 1
        return _tuple(self.elements(node.elts), lpar, rpar), self.end(node)

    def _is_enclosed(self, node: ast.Tuple) -> bool:
        """Return whether a tuple has its own parentheses."""
        start = self.start(node)
        if self.text[start] != "(":
            return False
        if not node.elts:
            return True
        first = node.elts[0]
        before, self.at = self.at, start
        count = self.opened(self.start(first))
        self.at = before
        if not count:
            return False
        if isinstance(first, ast.Tuple) or not isinstance(first, ast.Starred):
            return self.closing(self.end(first), count) < count
        return True

    def _of_list(self, node: ast.List, start: int, lpar: Any, rpar: Any) -> _Read:
        self.at = start + 1
        return _list(self.elements(node.elts), lpar, rpar), self.end(node)

    def _of_set(self, node: ast.Set, start: int, lpar: Any, rpar: Any) -> _Read:
        self.at = start + 1
        return _set(self.elements(node.elts), lpar, rpar), self.end(node)

    def _of_dict(self, node: ast.Dict, start: int, lpar: Any, rpar: Any) -> _Read:
        self.at = start + 1
        elements = []
        for key, each in zip(node.keys, node.values, strict=True):
            made = self.expression(key) if key is not None else None
            value = self.expression(each)
            if made is None:
                found = self.around(_starred_dict_element(value, self.comma(self.at)), value)
            else:
                found = _dict_element(made, value, self.comma(self.at))
                self.placed(found, self.spans[made][0], self.at)
            elements.append(found)
        return _dict(elements, lpar, rpar), self.end(node)

    def _of_list_comp(self, node: ast.ListComp, start: int, lpar: Any, rpar: Any) -> _Read:
        self.at = start + 1
        elt = self.expression(node.elt)
        return _list_comp(elt, self.comprehension(node.generators), lpar, rpar), self.end(node)

    def _of_set_comp(self, node: ast.SetComp, start: int, lpar: Any, rpar: Any) -> _Read:
        self.at = start + 1
        elt = self.expression(node.elt)
        return _set_comp(elt, self.comprehension(node.generators), lpar, rpar), self.end(node)

    def _of_dict_comp(self, node: ast.DictComp, start: int, lpar: Any, rpar: Any) -> _Read:
        self.at = start + 1
        key, value = self.expression(node.key), self.expression(node.value)
        for_in = self.comprehension(node.generators)
        return _dict_comp(key, value, for_in, lpar, rpar), self.end(node)

    def _of_generator(self, node: ast.GeneratorExp, start: int, lpar: Any, rpar: Any) -> _Read:
        self.at = start + 1
        elt = self.expression(node.elt)
        for_in = self.comprehension(node.generators)
        return _generator(elt, for_in, (*lpar, OPEN), (*rpar, CLOSE)), self.end(node)

    def comprehension(self, nodes: Sequence[ast.comprehension]) -> Any:
        """Return the `for` clauses of a comprehension, each nested in the one before."""
        read = []
        for node in nodes:
            start = self.skipped(self.at)
            target, iterable = self.expression(node.target), self.expression(node.iter)
            ifs = []
            for each in node.ifs:
                test = self.expression(each)
                ifs.append(self.around(_comp_if(test), test))
            read.append((start, target, iterable, ifs, ASYNC if node.is_async else None))
        inner = None
        for start, target, iterable, ifs, asynchronous in reversed(read):
            inner = _comp_for(target, iterable, ifs, inner, asynchronous)
            self.placed(inner, start, self.at)
        return inner

    # -- functions ------------------------------------------------------------

    def _of_lambda(self, node: ast.Lambda, start: int, lpar: Any, rpar: Any) -> _Read:
        self.at = start + len("lambda")
        params = self.parameters(node.args)
        return _lambda(params, self.expression(node.body), lpar, rpar), self.at

    def parameters(self, node: ast.arguments) -> Any:
        """Return the parameters of a function or of a lambda."""
        plain = [*node.posonlyargs, *node.args]
        values: list[ast.expr | None] = [None] * (len(plain) - len(node.defaults))
        values += node.defaults
        start = self.at
        read = [self._param(arg, each) for arg, each in zip(plain, values, strict=True)]
        split = len(node.posonlyargs)
        star_arg: Any = NONE
        if node.vararg is not None:
            star_arg = self._param(node.vararg, None, "*")
        elif node.kwonlyargs:
            star_arg = _param_star()
        named = [
            self._param(arg, each)
            for arg, each in zip(node.kwonlyargs, node.kw_defaults, strict=True)
        ]
        rest = self._param(node.kwarg, None, "**") if node.kwarg is not None else None
        slash = _SLASH if split else NONE
        found = _parameters(read[split:], star_arg, named, rest, read[:split], slash)
        return self.placed(found, start, self.at)

    def _param(self, node: ast.arg, value: ast.expr | None, star: str = "") -> Any:
        start = self.start(node)
        name = self.identifier(node.arg, start)
        if star:
            start = self.text.rindex(star, self.at, start)
        self.at = self.spans[name][1]
        annotation = self.annotation(node.annotation) if node.annotation is not None else None
        default = self.expression(value) if value is not None else None
        equal = EQUAL if value is not None else NONE
        found = _param(name, annotation, equal, default, self.comma(self.at), star)
        return self.placed(found, start, self.spans[name][1])

    def annotation(self, node: ast.expr) -> Any:
        """Return an annotation; its position is that of its expression."""
        value = self.expression(node)
        return self.around(_annotation(value), value)


def _refused(self: Expressions, node: ast.expr, *_: Any) -> _Read:
    raise UnusualError(type(node).__name__)


_READERS: Final[dict[type[ast.expr], _Reader]] = {
    ast.Name: Expressions._of_name,
    ast.Constant: Expressions._of_constant,
    ast.JoinedStr: Expressions._of_joined,
    ast.Attribute: Expressions._of_attribute,
    ast.Call: Expressions._of_call,
    ast.Subscript: Expressions._of_subscript,
    ast.BinOp: Expressions._of_binary,
    ast.BoolOp: Expressions._of_boolean,
    ast.UnaryOp: Expressions._of_unary,
    ast.Compare: Expressions._of_compare,
    ast.IfExp: Expressions._of_if_exp,
    ast.NamedExpr: Expressions._of_named,
    ast.Await: Expressions._of_await,
    ast.Yield: Expressions._of_yield,
    ast.YieldFrom: Expressions._of_yield_from,
    ast.Tuple: Expressions._of_tuple,
    ast.List: Expressions._of_list,
    ast.Set: Expressions._of_set,
    ast.Dict: Expressions._of_dict,
    ast.ListComp: Expressions._of_list_comp,
    ast.SetComp: Expressions._of_set_comp,
    ast.DictComp: Expressions._of_dict_comp,
    ast.GeneratorExp: Expressions._of_generator,
    ast.Lambda: Expressions._of_lambda,
}
