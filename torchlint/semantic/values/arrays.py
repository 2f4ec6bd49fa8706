"""Arrays: which values are NumPy arrays, their dimensions, and who shares their memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import is_none
from torchlint.semantic.values.kind import SIZES_OF_DRAWS, Kind
from torchlint.semantic.values.known import ValueAnalysis


class Array(NamedTuple):
    """What is known of an ndarray."""

    rank: int | None = None
    """The number of its dimensions, if known."""
    least: int = 0
    """The minimum number of its dimensions."""
    dtype: str = ""
    sure: bool = True
    """Whether it is always an ndarray, never a NumPy scalar."""
    fresh: bool = False
    """Whether the expression allocates memory that nothing else shares."""
    frozen: bool = False
    """Whether its memory is read-only."""


_LABELS: Final = frozenset("label labels target targets class classes y ys ids".split())
_FILLED: Final = frozenset("zeros ones empty full".split())
_JOINED: Final = frozenset("stack concatenate vstack hstack dstack column_stack tile pad".split())
_LISTED: Final = frozenset("arange linspace logspace".split())
_READ: Final = frozenset("load loadtxt genfromtxt fromfile fromiter".split())
_FROZEN: Final = frozenset("broadcast_to frombuffer".split())
_VIEWS: Final = frozenset(
    "expand_dims squeeze transpose reshape ravel moveaxis swapaxes rollaxis atleast_2d view".split()
)
_ELEMENTWISE: Final = frozenset(
    "sqrt exp log log1p log2 log10 abs absolute sin cos tanh clip maximum minimum power square "
    "add subtract multiply divide nan_to_num round floor ceil sign where logical_not".split()
)
_REDUCED: Final = frozenset("sum mean std var max min median prod argmax argmin any all".split())
_SAME_SHAPE: Final = frozenset("astype copy clip round byteswap".split())
_IMAGES: Final = frozenset(
    "cvtColor resize GaussianBlur warpAffine warpPerspective blur copyMakeBorder".split()
)
_GENERATORS: Final = frozenset({"numpy.random.default_rng", "numpy.random.RandomState"})
_FRAMES: Final = frozenset(
    "drop dropna fillna astype reset_index iloc loc sample head tail sort_values copy query".split()
)
_NAMES: Final = {"builtins.float": "float64", "builtins.int": "int64", "builtins.bool": "bool"}


class Arrays(ValueAnalysis):
    """Finds expressions that are known to be arrays; None for all others."""

    @memoized(None)
    def array(self, node: cst.BaseExpression) -> Array | None:
        """Return the facts about an expression that is an array."""
        if isinstance(node, cst.Name):
            return _shared(self._joint(self.scopes.reaching(node)))
        if isinstance(node, cst.Attribute):
            return self._attribute(node)
        if isinstance(node, cst.Subscript):
            return self._item(node)
        if isinstance(node, cst.Call):
            return self._call(node)
        if isinstance(node, cst.BinaryOperation):
            return self._combined([node.left, node.right])
        if isinstance(node, cst.UnaryOperation):
            inner = self.array(node.expression)
            return _made(inner) if not isinstance(node.operator, cst.Not) else None
        if isinstance(node, cst.IfExp):
            return _agreed([self.array(node.body), self.array(node.orelse)])
        return None

    # -- names ----------------------------------------------------------------

    def _joint(self, bindings: Sequence[Binding]) -> Array | None:
        given = [binding for binding in bindings if not is_none(binding.value)]
        return _agreed([self._bound(binding) for binding in given])

    def _bound(self, binding: Binding) -> Array | None:
        value = binding.value
        if isinstance(binding.node, cst.Param):
            return self._parameter(binding, binding.node)
        if value is None:
            return None
        if binding.how is How.ASSIGN:
            return self.array(value)
        if binding.how is How.AUGMENTED and isinstance(binding.node, cst.AugAssign):
            before = self.functions.bindings(binding.node.target)
            return self._joint([each for each in before if each.how is not How.AUGMENTED])
        if binding.how is How.UNPACKED and not binding.starred:
            return self._element(value, binding.path)
        if binding.how is How.LOOP:
            source, path = self.iteration.source(value, binding.path)
            inner = self.array(source) if source is not None and not path else None
            return _without_dimensions(inner, 1) if inner is not None else None
        return None

    def _parameter(self, binding: Binding, parameter: cst.Param) -> Array | None:
        if parameter.annotation is not None:
            annotated = self.kinds.kind_of_binding(binding)
            return Array() if annotated is Kind.NDARRAY else None
        given = self.functions.given(parameter)
        found = _agreed([self.array(value) for value in given]) if given else None
        return found._replace(fresh=False) if found is not None else None

    def _element(self, value: cst.BaseExpression, path: tuple[int, ...]) -> Array | None:
        """Return the array that is an element of a call's result."""
        if not isinstance(value, cst.Call) or len(path) != 1:
            return None
        if self.names.name(value.func) == "sklearn.model_selection.train_test_split":
            plain = [arg.value for arg in value.args if arg.keyword is None and not arg.star]
            index = path[0] // 2
            return _made(self.array(plain[index])) if index < len(plain) else None
        callee = self.functions.callee(value)
        if callee is None or self.functions.is_generator(callee):
            return None
        found = []
        for returned in self.functions.returns(callee):
            if not isinstance(returned, cst.Tuple) or path[0] >= len(returned.elements):
                return None
            found.append(self.array(returned.elements[path[0]].value))
        return _shared(_agreed(found))

    def _attribute(self, node: cst.Attribute) -> Array | None:
        word = node.attr.value
        if word == "values" and self._is_frame(node.value):
            return Array(1, 1) if self._is_column(node.value) else Array()
        if word == "T":
            return self.array(node.value)
        return _shared(self._joint(self.functions.attribute(node)))

    def _is_column(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is one column of a frame: `frame["label"]`."""
        if not isinstance(node, cst.Subscript) or len(node.slice) != 1:
            return False
        return self._is_key(node.slice[0].slice) and self._is_frame(node.value)

    @memoized(False)
    def _is_frame(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is a DataFrame or Series of pandas."""
        if isinstance(node, cst.Call):
            name = self.names.name(node.func) or ""
            if name.startswith("pandas."):
                return name.rpartition(".")[2].startswith(
                    ("read_", "DataFrame", "Series", "concat", "get_dummies", "merge")
                )
            return isinstance(node.func, cst.Attribute) and self._is_frame(node.func)
        if isinstance(node, cst.Subscript):
            return self._is_frame(node.value)
        if isinstance(node, cst.Attribute) and node.attr.value in _FRAMES:
            if self._is_frame(node.value):
                return True
        held = [self.functions.held(each) for each in self.functions.bindings(node)]
        return bool(held) and all(each and all(map(self._is_frame, each)) for each in held)

    # -- items ----------------------------------------------------------------

    def _item(self, node: cst.Subscript) -> Array | None:
        base = self.array(node.value)
        if base is None or any(self._is_key(element.slice) for element in node.slice):
            return base._replace(fresh=True) if base is not None else None
        taken = kept = 0
        for element in node.slice:
            index = element.slice
            if isinstance(index, cst.Slice):
                kept += 1
            elif isinstance(index, cst.Index):
                if isinstance(index.value, cst.Ellipsis) or is_none(index.value):
                    return base._replace(rank=None, sure=base.least > 0, fresh=False)
                if self._picks_many(index.value):
                    return base._replace(rank=None, least=1, sure=True, fresh=True, frozen=False)
                taken += 1
        labels = not _LABELS.isdisjoint(words(dotted(node.value))[-1:])
        if taken and base.rank is None and not base.least and labels:
            return None
        found = _without_dimensions(base, taken)
        if found is None or not kept:
            return found
        return found._replace(least=max(found.least, kept), sure=True)

    def _is_key(self, index: cst.BaseSlice) -> bool:
        """Return whether an index is a string: the name of an array in an `.npz` file."""
        return isinstance(index, cst.Index) and self.kinds.kind(index.value) is Kind.STRING

    def _picks_many(self, index: cst.BaseExpression) -> bool:
        """Return whether an index is an array or list, so that the result is a copy."""
        if isinstance(index, (cst.List, cst.ListComp, cst.Comparison)):
            return True
        found = self.array(index)
        return found is not None and found.least > 0

    # -- operations -----------------------------------------------------------

    def _combined(self, sides: Sequence[cst.BaseExpression]) -> Array | None:
        """Return the result of an operation on arrays and numbers; None with a tensor."""
        arrays = [self.array(side) for side in sides]
        known = [array for array in arrays if array is not None]
        others = [side for side, array in zip(sides, arrays, strict=True) if array is None]
        if not known or any(self.kinds.kind(side) is not Kind.NUMBER for side in others):
            return None
        ranks = {array.rank for array in known}
        dtypes = {array.dtype for array in known}
        least = max(array.least for array in known)
        floating = any(isinstance(side, cst.Float) for side in others)
        dtype = dtypes.pop() if len(dtypes) == 1 else ""
        if floating and not dtype.startswith("float"):
            dtype = ""
        rank = max((r for r in ranks if r is not None), default=None) if None not in ranks else None
        return Array(rank, least, dtype if dtype.startswith("float") else "", least > 0, fresh=True)

    # -- calls ----------------------------------------------------------------

    def _call(self, node: cst.Call) -> Array | None:
        name = self.names.name(node.func) or ""
        if name.startswith("numpy."):
            return self._numpy(name, node)
        if name.startswith("cv2."):
            last = name.partition(".")[2]
            if last == "imread":
                return Array(least=2, dtype="uint8", fresh=True)
            return Array(least=2, fresh=True) if last in _IMAGES else None
        if name in ("skimage.io.imread", "imageio.imread", "imageio.v2.imread"):
            return Array(least=2)
        callee = self.functions.callee(node)
        if callee is not None:
            return self._returned(callee)
        if isinstance(node.func, cst.Attribute):
            return self._method(node.func, node)
        return None

    def _returned(self, callee: cst.FunctionDef) -> Array | None:
        if self.functions.is_generator(callee):
            return None
        found = _agreed([self.array(value) for value in self.functions.returns(callee)])
        if found is None and callee.returns is not None:
            annotation = callee.returns.annotation
            if self.names.name(annotation) == "numpy.ndarray":
                return Array()
        return _shared(found)

    def _numpy(self, name: str, node: cst.Call) -> Array | None:
        head, _, last = name.rpartition(".")
        if head == "numpy.random":
            return self._drawn(last, node, [arg.value for arg in node.args])
        if head != "numpy" or not node.args or node.args[0].star:
            return None
        first = node.args[0].value
        dtype = self._dtype(self.values.argument_node(node, "dtype"))
        if last in _FILLED:
            plain = "" if last == "full" else "float64"
            given = self.values.argument_node(node, "dtype", 2 if last == "full" else 1)
            rank = self._rank_of_shape(first)
            return Array(rank, rank or 0, self._dtype(given) if given else plain, fresh=True)
        if last in ("zeros_like", "ones_like", "empty_like", "full_like"):
            return _made(self.array(first)) or Array(fresh=True)
        if last in ("array", "asarray", "ascontiguousarray", "copy"):
            return self._converted(last, first, dtype, node)
        if last in _LISTED:
            return Array(1, 1, dtype, fresh=True)
        if last in _JOINED:
            return Array(least=1, dtype=dtype, fresh=True)
        if last == "eye":
            return Array(2, 2, dtype or "float64", fresh=True)
        if last in _READ:
            mode = self.values.argument(node, "mmap_mode", 1)
            mapped = last == "load" and not (mode.state.name == "ABSENT" or mode.equals(None))
            return Array(dtype=dtype, fresh=not mapped, frozen=last == "load" and mode.equals("r"))
        if last == "memmap":
            read_only = self.values.argument(node, "mode", 2).equals("r")
            return Array(least=1, frozen=read_only)
        if last in _FROZEN:
            return Array(least=1, frozen=True)
        return self._of_array(last, self.array(first), node, node.args[1:])

    def _converted(
        self, last: str, first: cst.BaseExpression, dtype: str, node: cst.Call
    ) -> Array | None:
        """Return the result of `np.array` and the like; the former always copies."""
        inner = self.array(first)
        copies = last in ("array", "copy") and not self.values.argument(node, "copy").equals(False)
        if inner is not None:
            changed = bool(dtype) and dtype != inner.dtype and inner.dtype != ""
            fresh = copies or changed or inner.fresh
            frozen = inner.frozen and not (copies or changed)
            return inner._replace(dtype=dtype or inner.dtype, sure=True, fresh=fresh, frozen=frozen)
        listed = isinstance(first, (cst.List, cst.Tuple, cst.ListComp))
        if not copies and not listed and self.kinds.kind(first) is not Kind.SEQUENCE:
            return None
        if self._holds_numbers(first):
            return Array(1, 1, dtype, fresh=True)
        return Array(least=1 if listed else 0, dtype=dtype, fresh=True)

    def _holds_numbers(self, node: cst.BaseExpression) -> bool:
        """Return whether all that a list is seen to hold are numbers."""
        held = self.origins.of(node, (None,)).values
        return bool(held) and all(self.kinds.kind(each) is Kind.NUMBER for each in held)

    def _of_array(
        self, word: str, base: Array | None, node: cst.Call, args: Sequence[cst.Arg]
    ) -> Array | None:
        """Return the result of a function or method of this name on an array."""
        if base is None:
            return None
        if word in _VIEWS:
            if word == "reshape":
                rank = self._rank_of_shape(args[0].value) if len(args) == 1 else len(args)
                return base._replace(rank=rank, least=rank or 0, sure=True)
            same = word in ("transpose", "swapaxes", "moveaxis", "rollaxis", "view")
            return base if same else base._replace(rank=None, least=0, sure=True)
        if word in _ELEMENTWISE:
            return (_made(base) or base)._replace(dtype="") if base.least else None
        if word in _REDUCED:
            axis = self.values.argument(node, "axis", len(node.args) - len(args))
            less = _without_dimensions(base, 1) if type(axis.literal) is int else None
            return Array(less.rank, less.least, "", fresh=True) if less and less.least else None
        return None

    def _method(self, func: cst.Attribute, node: cst.Call) -> Array | None:
        method, owner = func.attr.value, func.value
        if method == "numpy" and not node.args:
            return Array() if self.kinds.kind(node) is Kind.NDARRAY else None
        if method == "to_numpy":
            rank = 1 if self._is_column(owner) else None
            return Array(rank, rank or 0, fresh=self.values.argument(node, "copy").equals(True))
        made = self._maker(owner)
        if made in _GENERATORS:
            return self._drawn(method, node, [arg.value for arg in node.args])
        if made.startswith("sklearn.preprocessing.") and made.endswith("Scaler"):
            transforms = method in ("transform", "fit_transform")
            return Array(2, 2, fresh=True) if transforms else None
        base = self.array(owner)
        if base is None:
            return None
        if method in _SAME_SHAPE:
            given = self.values.argument_node(node, "dtype", 0) if method == "astype" else None
            dtype = self._dtype(given) if method == "astype" else base.dtype
            copies = not self.values.argument(node, "copy", 4).equals(False)
            return base._replace(dtype=dtype, fresh=copies or base.fresh, frozen=False)
        if method == "flatten":
            return Array(1, 1, base.dtype, fresh=True)
        return self._of_array(method, base, node, node.args)

    def _maker(self, node: cst.BaseExpression) -> str:
        """Return the qualified name of the call that created an object."""
        value = self.values.value_of(node).node
        return (self.names.name(value.func) or "") if isinstance(value, cst.Call) else ""

    def _drawn(
        self, word: str, node: cst.Call, plain: Sequence[cst.BaseExpression]
    ) -> Array | None:
        """Return the array of random numbers of a call that gives a size."""
        if word in ("rand", "randn"):
            return Array(len(plain), len(plain), "float64", fresh=True) if plain else None
        if word == "permutation":
            return Array(least=1, fresh=True)
        if word not in SIZES_OF_DRAWS:
            return None
        size = self.values.argument_node(node, "size", SIZES_OF_DRAWS[word])
        if size is None or is_none(size.value):
            return None
        rank = self._rank_of_shape(size.value)
        whole = word in ("integers", "randint", "choice", "binomial", "poisson")
        return Array(rank, rank or 0, "" if whole else "float64", fresh=True)

    # -- shapes and dtypes ----------------------------------------------------

    def _rank_of_shape(self, node: cst.BaseExpression) -> int | None:
        value = self.values.value_of(node).node or node
        if isinstance(value, (cst.Tuple, cst.List)):
            starred = any(isinstance(e, cst.StarredElement) for e in value.elements)
            return None if starred else len(value.elements)
        return 1 if self.kinds.kind(value) is Kind.NUMBER else None

    def _dtype(self, given: cst.Arg | None) -> str:
        if given is None:
            return ""
        value = self.values.value_of(given.value)
        if isinstance(value.literal, str):
            return value.literal
        name = self.names.name(given.value) or ""
        head, _, last = name.rpartition(".")
        return _NAMES.get(name, last if head in ("numpy", "torch") else "")


def _made(array: Array | None) -> Array | None:
    """Return an array of the same shape in new memory."""
    return array._replace(fresh=True, frozen=False) if array is not None else None


def _shared(array: Array | None) -> Array | None:
    """Return the same array with memory that others share."""
    return array._replace(fresh=False) if array is not None else None


def _without_dimensions(array: Array, taken: int) -> Array | None:
    """Return a part of an array by so many indices; None if that is a NumPy scalar."""
    if not taken:
        return array._replace(fresh=False)
    if array.rank is not None and array.rank <= taken:
        return None
    rank = array.rank - taken if array.rank is not None else None
    least = max(array.least - taken, 0)
    return array._replace(rank=rank, least=least, sure=least > 0, fresh=False)


def _agreed(found: Iterable[Array | None]) -> Array | None:
    """Combine the arrays that one value can be."""
    arrays = []
    for array in found:
        if array is None:
            return None
        arrays.append(array)
    if not arrays:
        return None
    first, *rest = arrays
    return Array(
        first.rank if all(a.rank == first.rank for a in rest) else None,
        min(a.least for a in arrays),
        first.dtype if all(a.dtype == first.dtype for a in rest) else "",
        all(a.sure for a in arrays),
        all(a.fresh for a in arrays),
        any(a.frozen for a in arrays),
    )
