"""Scores: the scale and the masks of an attention, and the causal triangle."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.scope.limits import ASSIGNED
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.syntax.methods import method_of
from torchlint.semantic.values.attention import Attention, ScoreMask
from torchlint.semantic.values.known import KnownValues, ValueAnalysis
from torchlint.semantic.values.plain_numbers import PlainNumbers

_PADDING: Final = -1e4
_SHAPED: Final = frozenset(
    "view reshape unsqueeze bool to cuda byte type expand repeat contiguous float long int".split()
)
_NUMBERS: Final = frozenset("byte float long int".split())
_BOUNDED: Final = ("tril", "triu")


class Scores(ValueAnalysis):
    """Interprets the scale and the masks of an attention."""

    def __init__(self, values: KnownValues, numbers: PlainNumbers) -> None:
        super().__init__(values)
        self.numbers = numbers

    # -- scale ----------------------------------------------------------------

    def is_usual(self, attention: Attention) -> bool:
        """Return whether products are divided by the square root of the head dimension."""
        factor, divides = attention.factor, attention.divides
        if factor is None:
            return False
        if not divides and isinstance(factor, cst.BinaryOperation):
            one = self.values.value_of(factor.left).literal in (1, 1.0)
            if one and isinstance(factor.operator, cst.Divide):
                factor, divides = factor.right, True
        root = 0.5 if divides else -0.5
        width: cst.BaseExpression | None = None
        if isinstance(factor, cst.Call) and divides and len(factor.args) == 1:
            if self.names.name(factor.func) in ("math.sqrt", "numpy.sqrt"):
                width = factor.args[0].value
        elif isinstance(factor, cst.BinaryOperation) and isinstance(factor.operator, cst.Power):
            exponent = self.values.value_of(factor.right).literal
            width = factor.left if exponent == root else None
        return width is not None and self._is_width(width, attention)

    def _is_width(self, node: cst.BaseExpression, attention: Attention) -> bool:
        found = self.values.value_of(node).node or node
        whose: cst.BaseExpression | None = None
        index: object = None
        if isinstance(found, cst.Call) and isinstance(found.func, cst.Attribute):
            if found.func.attr.value == "size" and len(found.args) == 1:
                whose, index = found.func.value, self.values.value_of(found.args[0].value).literal
        elif isinstance(found, cst.Subscript) and isinstance(found.value, cst.Attribute):
            if found.value.attr.value == "shape":
                whose, index = found.value.value, self.values.key(found)
        sides = {self.tree.code(attention.query), self.tree.code(attention.key)}
        return whose is not None and index == -1 and self.tree.code(whose) in sides

    # -- masks ----------------------------------------------------------------

    def lowest(self, mask: ScoreMask) -> float | None:
        """Return the fill value of a mask if it reduces scores to zero, else None."""
        found = self.numbers.value(mask.fill) if mask.fill is not None else None
        return found if found is not None and found <= _PADDING else None

    def leaves_past(self, mask: ScoreMask) -> bool:
        """Return whether a mask is causal: it keeps exactly the lower triangle."""
        node, keeps = mask.condition, mask.keeps
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            part = node.comparisons[0]
            right = self.values.value_of(part.comparator).literal
            equal = isinstance(part.operator, cst.Equal)
            if not equal and not isinstance(part.operator, cst.NotEqual):
                return False
            if right not in (0, 1):
                return False
            node, keeps = node.left, keeps == (equal == (right == 1))
        elif isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert):
            node, keeps = node.expression, not keeps
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            if node.func.attr.value == "logical_not":
                node, keeps = node.func.value, not keeps
        return self._triangle(node) == ("tril" if keeps else "triu")

    def is_causal(self, mask: cst.BaseExpression) -> bool:
        """Return whether an `attn_mask`, of booleans or added to the scores, is exactly causal."""
        made, boolean = self._peeled(mask)
        if made is None:
            return False
        name = self.names.name(made.func) if isinstance(made, cst.Call) else None
        if name is not None and name.endswith(".generate_square_subsequent_mask"):
            return not boolean
        if boolean or self._is_boolean(made):
            return self.leaves_past(ScoreMask(made, None, True, None))
        return self._hides_later(made)

    def _peeled(self, mask: cst.BaseExpression) -> tuple[cst.BaseExpression | None, bool]:
        """Return what a mask is made of below crops, shapes and moves, and if it becomes boolean.

        None if it becomes a number.
        """
        boolean = False
        for _ in range(ASSIGNED):
            if isinstance(mask, cst.Subscript) and self._keeps_square(mask):
                mask = mask.value
            elif isinstance(mask, (cst.Name, cst.Attribute)):
                made = self._made(mask)
                if made is None or made is mask:
                    break
                mask = made
            elif isinstance(mask, cst.Call) and isinstance(mask.func, cst.Attribute):
                method = mask.func.attr.value
                if self.names.name(mask.func) is not None or method not in _SHAPED:
                    break
                dtypes = {self.names.name(arg.value) or "" for arg in mask.args}
                dtypes = {each for each in dtypes if each.startswith("torch.")}
                if method in _NUMBERS or dtypes - {"torch.bool"}:
                    return None, False
                boolean = boolean or method == "bool" or bool(dtypes)
                mask = mask.func.value
            else:
                break
        return mask, boolean

    @memoized(False)
    def _is_boolean(self, node: cst.BaseExpression) -> bool:
        """Return whether a matrix holds booleans, as far as its making shows."""
        if isinstance(node, cst.Comparison):
            return True
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert):
            made, boolean = self._peeled(node.expression)
            return boolean or (made is not None and self._is_boolean(made))
        if not isinstance(node, cst.Call):
            return False
        if method_of(node) == "logical_not":
            return True
        given = self.values.argument_node(node, "dtype", None)
        if given is not None:
            return self.names.name(given.value) == "torch.bool"
        bounded = self._bounded_matrix(node)
        made, boolean = self._peeled(bounded) if bounded is not None else (None, False)
        return boolean or (made is not None and self._is_boolean(made))

    def _bounded_matrix(self, node: cst.Call) -> cst.BaseExpression | None:
        """Return the matrix of which `tril` or `triu` keeps a triangle."""
        if self.names.name(node.func) in ("torch.tril", "torch.triu"):
            return node.args[0].value if node.args else None
        if isinstance(node.func, cst.Attribute) and self.names.name(node.func) is None:
            return node.func.value if node.func.attr.value in _BOUNDED else None
        return None

    def _hides_later(self, node: cst.BaseExpression) -> bool:
        """Return whether a matrix is the lowest number above its diagonal and 0 elsewhere."""
        matrix = self._bounded_matrix(node) if isinstance(node, cst.Call) else None
        if matrix is None or not isinstance(node, cst.Call):
            return False
        name = self.names.name(node.func)
        if name is None and isinstance(node.func, cst.Attribute):
            name = node.func.attr.value
        given = self.values.argument(node, "diagonal", 1 if name == "torch.triu" else 0)
        if name not in ("triu", "torch.triu") or given.literal != 1:
            return False
        made, boolean = self._peeled(matrix)
        if boolean or made is None:
            return False
        if isinstance(made, cst.BinaryOperation) and isinstance(made.operator, cst.Multiply):
            return self._square_of_ones(made.left) and self._is_lowest(made.right)
        if not isinstance(made, cst.Call) or self.names.name(made.func) != "torch.full":
            return False
        size = self.values.argument_node(made, "size", 0)
        fill = self.values.argument_node(made, "fill_value", 1)
        if size is None or fill is None or not isinstance(size.value, (cst.Tuple, cst.List)):
            return False
        texts = [self.tree.code(each.value) for each in size.value.elements]
        square = len(texts) >= 2 and texts[-1] == texts[-2] and set(texts[:-2]) <= {"1"}
        return square and self._is_lowest(fill.value)

    def _is_lowest(self, node: cst.BaseExpression) -> bool:
        found = self.numbers.value(node)
        return found is not None and found <= -1e9

    @memoized("")
    def _triangle(self, node: cst.BaseExpression) -> str:
        """Return which triangle of ones a matrix is: `tril`, or `triu` without its diagonal."""
        if isinstance(node, cst.Subscript):
            return self._triangle(node.value) if self._keeps_square(node) else ""
        if isinstance(node, (cst.Name, cst.Attribute)):
            made = self._made(node)
            return self._triangle(made) if made is not None else ""
        if not isinstance(node, cst.Call):
            return ""
        name = (self.names.name(node.func) or "").rpartition(".")[2]
        method = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
        if isinstance(node.func, cst.Attribute) and self.names.name(node.func) is None:
            if method in _BOUNDED:
                given = self.values.argument(node, "diagonal", 0)
                return self._bounded(method, node.func.value, given.literal, given.node is not None)
            return self._triangle(node.func.value) if method in _SHAPED else ""
        if self.names.name(node.func) in ("torch.tril", "torch.triu") and node.args:
            given = self.values.argument(node, "diagonal", 1)
            return self._bounded(name, node.args[0].value, given.literal, given.node is not None)
        return ""

    def _bounded(self, which: str, ones: cst.BaseExpression, diagonal: object, given: bool) -> str:
        wanted = diagonal in ((1,) if which == "triu" else (0,)) if given else which == "tril"
        return which if wanted and self._square_of_ones(ones) else ""

    def _square_of_ones(self, node: cst.BaseExpression) -> bool:
        while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            if self.names.name(node.func) is not None or node.func.attr.value not in _SHAPED:
                break
            node = node.func.value
        if isinstance(node, cst.Name):
            node = self._made(node) or node
        if not isinstance(node, cst.Call) or self.names.name(node.func) != "torch.ones":
            return False
        sizes = [arg.value for arg in node.args if arg.keyword is None]
        if len(sizes) == 1 and isinstance(sizes[0], (cst.Tuple, cst.List)):
            sizes = [element.value for element in sizes[0].elements]
        texts = [self.tree.code(size) for size in sizes]
        return len(texts) >= 2 and texts[-1] == texts[-2] and set(texts[:-2]) <= {"1"}

    def _keeps_square(self, node: cst.Subscript) -> bool:
        """Return whether an index crops the last two dimensions equally, from the start."""
        ends = []
        for element in node.slice:
            part = element.slice
            if isinstance(part, cst.Slice):
                zero = part.lower is None or self.values.value_of(part.lower).literal == 0
                if not zero or part.step is not None:
                    return False
                ends.append(self.tree.code(part.upper) if part.upper is not None else "")
            elif isinstance(part, cst.Index) and self.tree.code(part.value) in ("...", "None"):
                ends.append("")
            else:
                return False
        if len(ends) < 2:
            return False
        return ends[-1] == ends[-2] and not any(ends[:-2])

    def _made(self, node: cst.Name | cst.Attribute) -> cst.BaseExpression | None:
        """Return the only value of a name or an attribute, beside None."""
        origin = self.origins.of(node)
        values = [each for each in origin.values if not self.values.value_of(each).equals(None)]
        alone = len(values) == 1 and origin.complete and values[0] is not node
        return values[0] if alone else self.scopes.only(node).value
