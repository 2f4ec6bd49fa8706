"""Moves: the calls that move a tensor or a module to a device, and which device that is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.data.itemwork import ItemWork
from torchlint.semantic.scope.limits import ASSIGNED
from torchlint.semantic.scope.target import Target
from torchlint.semantic.syntax.methods import last_word, named_arguments
from torchlint.semantic.values.devices import template
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import KnownValues, ValueAnalysis

_NOT_MPS: Final = frozenset("cuda cpu xpu hpu npu".split())
_NOT_CUDA: Final = frozenset("cpu mps xpu hpu npu meta".split())
_CUDA: Final = frozenset({"cuda", "cpu"})
_TESTED: Final = frozenset("cuda cpu mps xpu hpu npu".split())
"""The types of devices that a test of one tells apart."""
_DEVICE_WORDS: Final = re.compile(
    r"(?:\w*_)?(?:device|devices|dev|gpu|gpu_id|gpuid|cuda|local_rank|rank|DEVICE|gpu_ids)|device\w*"
)
_ACCELERATORS: Final = "torch.accelerator.current_accelerator"


class Move(NamedTuple):
    """A call that moves `moved`; `device` is None for the current GPU (`x.cuda()`)."""

    call: cst.Call
    moved: cst.BaseExpression
    device: cst.BaseExpression | None
    device_arg: cst.Arg | None
    method: str


class Moves(ValueAnalysis):
    """Separates transfers between devices from other calls of `to`, and finds the device."""

    def __init__(self, values: KnownValues, work: ItemWork, target: Target) -> None:
        super().__init__(values)
        self.work = work
        self.target = target
        self._only_cuda: dict[cst.FunctionDef | None, bool] = {}

    def move(self, call: cst.Call) -> Move | None:
        """Return what a call moves to an accelerator, None for any other call."""
        func = call.func
        if not isinstance(func, cst.Attribute) or self.names.name(func) is not None:
            return None
        return self._move(call, func)

    def _move(self, call: cst.Call, func: cst.Attribute) -> Move | None:
        method = func.attr.value
        if method == "cuda":
            arg = self.values.argument_node(call, "device", 0)
            return Move(call, func.value, arg.value if arg is not None else None, arg, method)
        if method != "to":
            return None
        arg = self.values.argument_node(call, "device", 0)
        if arg is None or not self._is_device(arg.value) or self._is_for_host(call, arg.value):
            return None
        return Move(call, func.value, arg.value, arg, method)

    def _is_device(self, node: cst.BaseExpression) -> bool:
        """Return whether an argument of `to` is a device that may be an accelerator."""
        kind = self.kinds.kind(node)
        if kind in (Kind.TENSOR, Kind.LOSS, Kind.NDARRAY, Kind.MODULE):
            return False
        if self.names.name(node) in ("builtins.float", "builtins.int", "builtins.bool"):
            return False
        words = self._words(node)
        if words:
            return words != {"cpu"}
        if kind in (Kind.DEVICE, Kind.STRING):  # no other string is an argument of `to`
            return True
        last = node.func if isinstance(node, cst.Call) else node
        if isinstance(last, cst.Subscript):
            key = self.values.key(last)
            if isinstance(key, str) and _DEVICE_WORDS.fullmatch(key):
                return True
            last = last.value
        return _DEVICE_WORDS.fullmatch(last_word(last)) is not None

    # -- tests of the device around a move -------------------------------------------

    def _is_for_host(self, call: cst.Call, device: cst.BaseExpression) -> bool:
        """Return whether the tests around a move leave the host alone of all its devices."""
        left = self._words(device) or set(_TESTED)
        for allowed in self._tested(call, device):
            left &= allowed
        return left == {"cpu"}

    def _tested(self, call: cst.Call, device: cst.BaseExpression) -> Iterator[frozenset[str]]:
        """Yield the types of devices with which each test around a call leads to it."""
        for child, outer in self.tree.outward(call):
            if isinstance(outer, cst.If) and child is not outer.test:
                found = self._allowed(outer.test, device)
                if found:
                    yield found if child is outer.body else _TESTED - found

    def _allowed(self, test: cst.BaseExpression, device: cst.BaseExpression) -> frozenset[str]:
        """Return the types of a device with which a test holds, empty if it does not tell."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            found = self._allowed(test.expression, device)
            return _TESTED - found if found else found
        if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
            return frozenset()
        operator, wanted = test.comparisons[0].operator, test.comparisons[0].comparator
        if not isinstance(wanted, cst.SimpleString) or not self._is_type(test.left, device):
            return frozenset()
        named = _TESTED & {str(wanted.evaluated_value)}
        if isinstance(operator, cst.NotEqual) and named:
            return _TESTED - named
        return named if isinstance(operator, cst.Equal) else frozenset()

    def _is_type(self, node: cst.BaseExpression, device: cst.BaseExpression) -> bool:
        """Return whether an expression is the type of a device, which no number follows."""
        code = self.tree.code(device)
        if isinstance(node, cst.Attribute) and node.attr.value == "type":
            return self.tree.code(node.value) == code
        return self.tree.code(node) == code and all(
            isinstance(each, cst.SimpleString) and ":" not in str(each.evaluated_value)
            for each in self.origins.of(device).values
        )

    # -- target device -------------------------------------------------------------

    def is_never_mps(self, move: Move) -> bool:
        """Return whether a move certainly does not lead to Apple's device."""
        if move.method == "cuda" or self.target.device not in ("auto", "mps"):
            return True
        assert move.device is not None
        return self._is_of(move.device, _NOT_MPS)

    def is_never_cuda(self, move: Move) -> bool:
        """Return whether a move certainly leads to a device other than CUDA."""
        if move.method == "cuda" or move.device is None:
            return False
        apart = any("cuda" not in each for each in self._tested(move.call, move.device))
        return apart or self._is_of(move.device, _NOT_CUDA)

    def only_cuda(self, node: cst.CSTNode) -> bool:
        """Return whether code certainly runs on CUDA or the host, which support float64.

        Apple's devices do not; a device that is a parameter or comes from elsewhere may be one.
        """
        if self.target.device != "auto":
            return self.target.device in _CUDA
        function = self.scopes.function(node)
        if function not in self._only_cuda:
            places = list(self._places(node))
            self._only_cuda[function] = bool(places) and all(
                by_cuda or (place is not None and self._is_of(place, _CUDA))
                for place, by_cuda in places
            )
        return self._only_cuda[function]

    def lead_apart(self, node: cst.CSTNode) -> bool:
        """Return whether code that runs together with a node uses several GPUs by their numbers."""
        numbers = [self._numbers(place) for place, _ in self._places(node)]
        return len({found.pop() for found in numbers if len(found) == 1} - {""}) > 1

    def _numbers(self, device: cst.BaseExpression | None, depth: int = ASSIGNED) -> set[str]:
        """Return the numbers of the GPUs that a device can be, empty text for an unknown one."""
        if device is None or not depth:
            return {"0" if depth else ""}
        found: set[str] = set()
        for value in self.origins.of(device).values or (device,):
            if isinstance(value, cst.Call) and self.names.name(value.func) == "torch.device":
                given = [arg.value for arg in value.args[:2]]
                found |= self._numbers(given[-1], depth - 1) if given else {""}
            elif isinstance(value, cst.SimpleString):
                kind, _, number = str(value.evaluated_value).partition(":")
                found |= set() if kind == "cpu" else {number or "0"}
            elif isinstance(value, cst.Integer):
                found.add(value.value)
            else:
                word = last_word(value)
                found.add(word[len(word.rstrip("0123456789")) :])
        return found

    def _places(self, node: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression | None, bool]]:
        """Yield the devices of the code that runs with a node, and whether `cuda()` gets them."""
        for body in self.functions.run_with(node):
            for call in self.functions.own(body, cst.Call):
                func = call.func
                move = self._move(call, func) if isinstance(func, cst.Attribute) else None
                if move is not None:
                    yield move.device, move.method == "cuda"
                    continue
                for told in named_arguments(call, "device"):
                    if not self._is_of_tensor(told):
                        yield told, False

    def _is_of_tensor(self, node: cst.BaseExpression) -> bool:
        """Return whether a device is that of an existing tensor (`device=x.device`)."""
        return (
            isinstance(node, cst.Attribute)
            and node.attr.value == "device"
            and self.work.is_item(node.value)
        )

    def _is_of(
        self, device: cst.BaseExpression, allowed: frozenset[str], depth: int = ASSIGNED
    ) -> bool:
        """Return whether every device that an expression can be is known and of some type."""
        values = self.origins.of(device).known
        for value in values:
            if isinstance(value, cst.Call) and self.names.name(value.func) == "torch.device":
                if not value.args or not depth:
                    return False
                if not self._is_of(value.args[0].value, allowed, depth - 1):
                    return False
            elif not ("cuda" in allowed and self.kinds.kind(value) in (Kind.NUMBER, Kind.NOTHING)):
                words = self._word(value, 0)
                if not words or not words <= allowed:
                    return False
        return bool(values)

    def has_type(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is known to be a device object with `type`, not a string."""
        values = self.origins.of(node).known
        return bool(values) and all(
            isinstance(value, cst.Call)
            and self.names.name(value.func) in ("torch.device", _ACCELERATORS)
            for value in values
        )

    def _words(self, node: cst.BaseExpression, depth: int = ASSIGNED) -> set[str]:
        """Return the names of the devices that an expression can be, `?` for an unknown one.

        There are none if nothing is known of any.
        """
        origin = self.origins.of(node)
        found = [self._word(value, depth) for value in origin.values]
        known = set[str]().union(*found)
        unknown = not origin.complete or any(
            not words and self.kinds.kind(value) is not Kind.NOTHING
            for value, words in zip(origin.values, found, strict=True)
        )
        return known | {"?"} if known and unknown else known

    def _word(self, value: cst.BaseExpression, depth: int) -> set[str]:
        if isinstance(value, cst.SimpleString):
            return {str(value.evaluated_value).partition(":")[0]}
        if isinstance(value, cst.FormattedString):
            head = value.parts[0] if value.parts else None
            return {
                head.value.partition(":")[0] if isinstance(head, cst.FormattedStringText) else "?"
            }
        if isinstance(value, cst.Integer):
            return {"cuda"}
        if isinstance(value, cst.Call):
            text = template(value)
            if text is not None:
                return self._word(text, depth)
            name = self.names.name(value.func)
            if name == "torch.device" and value.args and depth:
                return self._words(value.args[0].value, depth - 1) or {"?"}
            if name == _ACCELERATORS:
                return {"?"}
            if name in ("torch.distributed.get_rank", "torch.cuda.current_device"):
                return {"cuda"}
        if isinstance(value, cst.BinaryOperation) and isinstance(value.left, cst.SimpleString):
            return {str(value.left.evaluated_value).partition(":")[0]}
        return set()
