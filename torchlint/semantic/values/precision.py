"""Precision: the use of mixed, low and high precision in a file."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding
from torchlint.semantic.scope.vocabulary import Vocabulary
from torchlint.semantic.syntax.methods import entered, method_of, named_arguments
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import KnownValues, ValueAnalysis
from torchlint.semantic.values.options import Options

_LOW: Final = re.compile(
    r"auto_?cast|amp(?<![a-z]amp)(?![a-z])|\.half$|half_?tensor|fp_?16|bf_?16|fp8|float_?16|"
    r"mixed_?prec|half_?prec|grad_?scaler|loss_?scaler|native_?scaler|prepare_qat|load_in_[48]bit|"
    r"compute_dtype|convert_weights|models_to_fp32|"
    r"torch\.(?:ao\.)?quantization|quantization_config",
    re.MULTILINE,
)
"""Each alternative starts with a letter, so that the regex engine can skip other positions."""
_WIDE: Final = re.compile(
    r"\b(?:cfloat|cdouble|complex64|complex128|DoubleTensor|view_as_complex|stft|istft|cholesky|"
    r"slogdet|logdet|lu_solve|svd|eigh|triangular_solve)\b|\btorch\.(?:fft|linalg|inverse|det|qr)\b"
)
_REACTING: Final = frozenset(
    "custom_fwd custom_bwd is_autocast_enabled get_autocast_dtype get_autocast_gpu_dtype".split()
)
"""What only reacts to the precision that others choose."""
_LOW_TYPES: Final = frozenset({"torch.float16", "torch.half", "torch.bfloat16"})
_NAMING: Final = (cst.FunctionDef, cst.ClassDef, cst.Param, cst.AssignTarget, cst.AnnAssign)
_AUTOCASTS: Final = frozenset({
    "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast",
})  # fmt: skip
_Word = cst.Name | cst.Attribute | cst.SimpleString | cst.Arg


class Precision(ValueAnalysis):
    """Finds what a file does about the precision of its arithmetic."""

    def __init__(self, values: KnownValues, vocabulary: Vocabulary, options: Options) -> None:
        super().__init__(values)
        self.vocabulary, self.options = vocabulary, options

    @cached_property
    def mentions_low_precision(self) -> bool:
        """Whether code may use mixed or low precision, of any library, in some run."""
        return bool(self._mentions)

    @cached_property
    def is_low_by_default(self) -> bool:
        """Whether code may use mixed or low precision in a run without options."""
        return not all(map(self._is_switched_off, self._mentions))

    @cached_property
    def _mentions(self) -> tuple[_Word, ...]:
        """The words about low precision, without those that only react to it."""
        if not self.vocabulary.has_lowered(_LOW):
            return ()
        words: tuple[type[_Word], ...] = (cst.Name, cst.Attribute, cst.SimpleString, cst.Arg)
        nodes = (each for kind in words for each in self.tree.all(kind))
        return tuple(each for each in nodes if self._speaks(each) and self._acts(each))

    def _speaks(self, node: _Word) -> bool:
        """Return whether the word of a node, not of its parts, is about low precision."""
        if isinstance(node, cst.Attribute):
            word = f".{node.attr.value}"
        elif isinstance(node, cst.Arg):
            word = node.keyword.value if node.keyword is not None else ""
        else:
            word = node.value
        return _LOW.search(word.lower()) is not None and word.lstrip(".") not in _REACTING

    def _acts(self, node: _Word) -> bool:
        """Return whether a word is more than a definition, a type in a test, or its name."""
        if isinstance(self.tree.parent(node), (*_NAMING, cst.Expr)):
            return False
        for outer in self.tree.ancestors(node):
            if isinstance(outer, (cst.ImportFrom, cst.Import, cst.Comparison)):
                return False
            if isinstance(outer, cst.DictElement):
                return (self.names.name(outer.key) or "") not in _LOW_TYPES
            if isinstance(outer, cst.BaseStatement):
                return True
        return True

    # -- options --------------------------------------------------------------

    def _is_switched_off(self, node: _Word) -> bool:
        """Return whether a word has no effect in a run without options."""
        if self._is_off(node.value if isinstance(node, cst.Arg) else node):
            return True
        for child, outer in self.tree.outward(node):
            if isinstance(outer, cst.Call) and self._is_call_off(outer):
                return True
            if isinstance(outer, (cst.If, cst.IfExp)) and child is outer.body:
                if self._is_off(outer.test):
                    return True
        return False

    def _is_call_off(self, call: cst.Call) -> bool:
        """Return whether a call only declares an option, or is told to do nothing."""
        if method_of(call) == "add_argument":
            return True
        enabled = named_arguments(call, "enabled")
        return bool(enabled) and self._is_off(enabled[0])

    @memoized(False)
    def _is_off(self, node: cst.BaseExpression) -> bool:
        """Return whether a value is false or empty in a run without options."""
        if isinstance(node, cst.BooleanOperation):
            sides = (self._is_off(node.left), self._is_off(node.right))
            return any(sides) if isinstance(node.operator, cst.And) else all(sides)
        if isinstance(node, cst.IfExp):
            chosen = self._is_off(node.test) or self._is_off(node.body)
            return chosen and self._is_off(node.orelse)
        if isinstance(node, cst.Comparison):
            return isinstance(node.comparisons[0].operator, cst.IsNot) and self._is_off(node.left)
        value = self.values.value_of(node)
        if value.is_literal:
            return not value.literal
        option = self.options.of(node)
        if option is not None:
            return not option.default
        bindings = self.functions.bindings(node)
        return bool(bindings) and all(map(self._binds_off, bindings))

    def _binds_off(self, binding: Binding) -> bool:
        if isinstance(binding.node, cst.Param):
            given = self.functions.given(binding.node)
            return bool(given) and all(map(self._is_off, given))
        return binding.assigned is not None and self._is_off(binding.assigned)

    @cached_property
    def is_wide(self) -> bool:
        """Whether code needs complex numbers, float64, or what low precision lacks.

        Summing losses in float64 does not count.
        """
        if self.vocabulary.has(_WIDE):
            return True
        mentioned = any(word in self.tree.own_text for word in ("float64", "double"))
        return mentioned and any(self._widens(call) for call in self.tree.all(cst.Call))

    def _widens(self, call: cst.Call) -> bool:
        name = self.names.name(call.func)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "double":
            inner = call.func.value
            if method_of(inner) in ("detach", "sum", "mean"):
                return False
            return self.kinds.kind(inner) is not Kind.LOSS and not self._is_added_up(call)
        wide = [
            arg.value
            for arg in call.args
            if self.names.name(arg.value) in ("torch.float64", "torch.double")
        ]
        return bool(wide) and not (
            name == "torch.zeros" or method_of(call) in ("sum", "mean", "cumsum")
        )

    def _is_added_up(self, call: cst.Call) -> bool:
        """Return whether a value is only added to a variable (`total = total + x.double()`)."""
        top: cst.CSTNode = call
        parent = self.tree.parent(top)
        while isinstance(parent, cst.BinaryOperation):
            top, parent = parent, self.tree.parent(parent)
        if isinstance(parent, cst.AugAssign):
            return isinstance(parent.operator, cst.AddAssign)
        return (
            isinstance(parent, cst.Assign)
            and isinstance(top, cst.BinaryOperation)
            and isinstance(top.operator, cst.Add)
            and parent.targets[0].target.deep_equals(top.left)
        )

    # -- autocast -------------------------------------------------------------

    @memoized(None)
    def autocast(self, node: cst.BaseExpression) -> cst.Call | None:
        """Return the `autocast` call that a context manager is, through names and choices."""
        node = entered(node)
        if isinstance(node, cst.Call):
            if self.names.name(node.func) in _AUTOCASTS:
                return node
            return self._made_by(node)
        if isinstance(node, cst.IfExp):
            return self.autocast(node.body) or self.autocast(node.orelse)
        values = (each.assigned for each in self.functions.bindings(node))
        found = (self.autocast(each) for each in values if each is not None)
        return next((call for call in found if call is not None), None)

    def dtype(self, autocast: cst.Call) -> str | None:
        """Return the qualified name of the dtype passed to a call of `autocast`."""
        given = self.values.argument_node(autocast, "dtype")
        return self.names.name(given.value) if given is not None else None

    def _made_by(self, call: cst.Call) -> cst.Call | None:
        """Follow `amp = partial(torch.autocast, "cuda")` and results of methods of this file."""
        if self.functions.partial(call) in _AUTOCASTS:
            made = self.scopes.only(call.func).value
            return made if isinstance(made, cst.Call) else None
        definition = self.functions.definition(call.func)
        if isinstance(definition, cst.FunctionDef):
            returned = self.functions.returns(definition)
            if len(returned) == 1:
                return self.autocast(returned[0])
        return None
