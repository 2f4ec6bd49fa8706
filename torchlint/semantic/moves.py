"""Moves: the calls that send a tensor or a module to a device, and which device that is."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.record import Record
from torchlint.regex import regex
from torchlint.semantic.functions import Functions
from torchlint.semantic.kind import Kind
from torchlint.semantic.kinds import Kinds
from torchlint.semantic.origins import Origins
from torchlint.semantic.target import Target
from torchlint.semantic.values import Values

__all__ = ["Move", "Moves"]

_NOT_MPS: Final = frozenset("cuda cpu xpu hpu npu".split())
_DEVICE_WORDS: Final = regex(
    r"(?:\w*_)?(?:device|devices|dev|gpu|gpu_id|gpuid|cuda|local_rank|rank|DEVICE|gpu_ids)|device\w*"
)
_INDEX_WORDS: Final = regex(r"(?:\w*_)?(?:gpu|gpu_id|gpuid|local_rank|rank)")
_ACCELERATORS: Final = "torch.accelerator.current_accelerator"


class Move(Record):
    """A call that moves `moved`; `device` is None where it goes to the current GPU (`x.cuda()`)."""

    call: cst.Call
    moved: cst.BaseExpression
    device: cst.BaseExpression | None
    device_arg: cst.Arg | None
    method: str


class Moves:
    """Tells moves between devices from other calls of `to`, and where they lead."""

    def __init__(
        self, functions: Functions, kinds: Kinds, values: Values, origins: Origins, target: Target
    ) -> None:
        self.tree = functions.tree
        self.names = functions.names
        self.kinds = kinds
        self.values = values
        self.origins = origins
        self.target = target

    def move(self, call: cst.Call) -> Move | None:
        """Give what a call moves to an accelerator, None for any other call."""
        func = call.func
        if not isinstance(func, cst.Attribute) or self.names.name(func) is not None:
            return None
        method = func.attr.value
        if method == "cuda":
            arg = self.values.argument_node(call, "device", 0)
            return Move(call, func.value, arg.value if arg is not None else None, arg, method)
        if method != "to":
            return None
        arg = self.values.argument_node(call, "device", 0)
        if arg is None or not self._is_device(arg.value):
            return None
        return Move(call, func.value, arg.value, arg, method)

    def _is_device(self, node: cst.BaseExpression) -> bool:
        """Whether an argument of `to` is surely a device, and not surely the host."""
        kind = self.kinds.kind(node)
        if kind in (Kind.TENSOR, Kind.LOSS, Kind.NDARRAY, Kind.MODULE):
            return False
        if self.names.name(node) in ("builtins.float", "builtins.int", "builtins.bool"):
            return False
        words = self._words(node)
        if words:
            return words != {"cpu"}
        if kind is Kind.DEVICE:
            return True
        last = node.func if isinstance(node, cst.Call) else node
        if isinstance(last, cst.Attribute):
            last = last.attr
        return isinstance(last, cst.Name) and _DEVICE_WORDS.fullmatch(last.value) is not None

    # -- where to -------------------------------------------------------------

    def is_never_mps(self, move: Move) -> bool:
        """Whether a move surely does not lead to Apple's device."""
        if move.device is None or self.target.device not in ("auto", "mps"):
            return True
        words = self._words(move.device)
        if words:
            return words <= _NOT_MPS and self.origins.of(move.device).complete
        last = move.device.attr if isinstance(move.device, cst.Attribute) else move.device
        return isinstance(last, cst.Name) and _INDEX_WORDS.fullmatch(last.value) is not None

    def has_type(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is surely an object with `type`, not a mere word for a device."""
        origin = self.origins.of(node)
        return (
            origin.complete
            and bool(origin.values)
            and all(
                isinstance(value, cst.Call)
                and self.names.name(value.func) in ("torch.device", _ACCELERATORS)
                for value in origin.values
            )
        )

    def _words(self, node: cst.BaseExpression, depth: int = 3) -> set[str]:
        """Give the words for the devices that an expression can name, `?` for one out of sight."""
        found: set[str] = set()
        for value in self.origins.of(node).values:
            found |= self._word(value, depth)
        return found

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
