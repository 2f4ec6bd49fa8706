"""Deferred sums: values are added on the device, and the result is read once after the loop."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import libcst as cst

from torchlint.api import (
    Accumulation,
    Accumulator,
    Adding,
    Edit,
    Edits,
    Fix,
    Form,
    Grad,
    Kind,
    Reading,
    Script,
    Span,
)
from torchlint_rules.shared.dataattribute import without_graph
from torchlint_rules.shared.storedmemory import may_change

_LINKS: Final = re.compile(r"(?:\.(?:detach|cpu|numpy|tolist)\(\)|\.data|\.to\([^()\s]+\))+")
_JOINS: Final = frozenset({"torch.cat", "torch.concat", "torch.stack", "torch.vstack"})
_MEMORY: Final = "keeps the outputs of all batches in the device's memory until the loop ends"
_NUMPY: Final = "NumPy may have added in the tensor's own precision; the sum is now one of float64"
_RECIPROCAL: Final = "CUDA multiplies by the reciprocal: the quotient's last bit may differ"


class DeferredSum:
    """The rewrite that adds on the device and reads the result once after the loop.

    `rare` are statements that another part of the fix puts behind a test for every n-th pass.
    """

    def __init__(
        self, script: Script, addition: Accumulation, rare: Sequence[cst.CSTNode] = ()
    ) -> None:
        self.script = script
        self.addition = addition
        self.rare = rare
        self.doubt = ""

    def fix(self) -> Fix | None:
        """Return the fix, None if one of its conditions does not hold."""
        script = self.script
        accumulator = script.readings.accumulators.accumulator(self.addition, self.rare)
        if accumulator is None or not script.edits.stands_alone(accumulator.loop):
            return None
        if script.program.moves.lead_apart(self.addition.node):
            if sum(len(self._readings(each)) for each in accumulator.additions) > 1:
                return None
        if any(script.scopes.lookup(name, script.scopes.module) for name in ("float", "int")):
            return None
        if self.addition.adding is Adding.SUM:
            return self._sum(accumulator)
        return self._collection(accumulator)

    def _readings(self, addition: Accumulation) -> list[Reading]:
        values = (self._value(addition), *addition.values[1:])
        return [each for value in values for each in self.script.readings.within(value)]

    def _value(self, addition: Accumulation) -> cst.BaseExpression:
        """Return the added value, also if it has a name (`value = loss.item()`)."""
        value = addition.values[0]
        if not isinstance(value, cst.Name):
            return value
        return self.script.scopes.only_read_at(value) or value

    # -- sums -----------------------------------------------------------------

    def _sum(self, accumulator: Accumulator) -> Fix | None:
        casts = {self._cast(each, accumulator) for each in accumulator.additions}
        cast = casts.pop() if len(casts) == 1 else None
        if cast is None or (cast == "float" and not self._has_float64()):
            return None
        name = accumulator.name
        edits = [
            *(self._added(each, cast) for each in accumulator.additions),
            self._read(accumulator, cast),
            self._result(accumulator, cast),
        ]
        width = ", in float64 as on the host" if cast == "float" else ""
        return self._fix(f"Add up {name} on the device{width}", edits)

    def _result(self, accumulator: Accumulator, cast: str) -> Edits | None:
        """Write the line that reads the sum after the loop, unless nothing does."""
        if not accumulator.is_read_outside:
            return ()
        name = accumulator.name
        return self.script.edits.after(accumulator.loop, f"{name} = {cast}({name})")

    def _has_float64(self) -> bool:
        return self.script.program.moves.only_cuda(self.addition.node)

    def _cast(self, addition: Accumulation, accumulator: Accumulator) -> str | None:
        """Return whether an addition gives an `int` or a `float`, None if unknown."""
        value, readings = self._value(addition), self._readings(addition)
        integral = [self.script.values.dtypes.is_integral(each.tensor) for each in readings]
        truncated = [each for each in readings if each.cast == "int"]
        whole = all(isinstance(start, int) for start in accumulator.starts)
        if not readings or not self._computable(value, readings):
            return None
        if any(not self.script.values.dtypes.is_integral(each.tensor) for each in truncated):
            return None
        if whole and all(integral) and all(r.cast != "float" for r in readings):
            return "int" if self._is_whole(value, readings) else None
        fractional = not any(isinstance(start, int) for start in accumulator.starts)
        return "float" if fractional or False in integral else None

    def _is_whole(self, value: cst.BaseExpression, readings: list[Reading]) -> bool:
        """Return whether a value computed from integers is an integer, as on the device."""
        if any(value is each.node for each in readings) or isinstance(value, cst.Integer):
            return True
        if isinstance(value, cst.BinaryOperation):
            return not isinstance(value.operator, cst.Divide) and all(
                self._is_whole(side, readings) for side in (value.left, value.right)
            )
        return isinstance(value, cst.Call) and self.script.name(value.func) == "builtins.len"

    def _computable(self, value: cst.BaseExpression, readings: list[Reading]) -> bool:
        """Return whether a tensor can replace the number: only `+ - * /` with numbers is used."""
        reading = next((each for each in readings if each.node is value), None)
        if reading is not None:
            return self._is_number(reading)
        if not self._holds_reading(value, readings):
            return self.script.kind(value) in (Kind.NUMBER, Kind.UNKNOWN)
        if not isinstance(value, cst.BinaryOperation):
            return False
        if isinstance(value.operator, cst.Divide):
            if not self._holds_reading(value.left, readings):
                return False
            if not self._holds_reading(value.right, readings):
                self.doubt = self.doubt or _RECIPROCAL
        elif not isinstance(value.operator, (cst.Add, cst.Subtract, cst.Multiply)):
            return False
        return self._computable(value.left, readings) and self._computable(value.right, readings)

    def _holds_reading(self, value: cst.BaseExpression, readings: list[Reading]) -> bool:
        return any(self.script.tree.inside(each.node, value) for each in readings)

    def _is_number(self, reading: Reading) -> bool:
        """Return whether a read value is one number, and record what NumPy would do to it."""
        if reading.form is Form.NUMBER:
            return True
        if reading.form is Form.TENSOR or not self._is_scalar(reading.tensor):
            return False
        if reading.form is Form.ARRAY:
            self.doubt = _NUMPY
        return True

    def _is_scalar(self, tensor: cst.BaseExpression) -> bool:
        """Return whether a tensor certainly is zero-dimensional."""
        one = self.script.values.reductions.is_one_number(tensor)
        return one is True or (one is None and self.script.kind(tensor) is Kind.LOSS)

    def _added(self, addition: Accumulation, cast: str) -> Edits | None:
        return _joined(
            [self._on_device(each, double=cast == "float") for each in self._readings(addition)]
        )

    def _read(self, accumulator: Accumulator, cast: str) -> Edits | None:
        """Convert the occasional reads inside the loop to numbers."""
        edits: list[Edits | None] = []
        for name in accumulator.reads:
            holder = self.script.tree.parent(name)
            if isinstance(holder, cst.FormattedStringExpression) and holder.equal is not None:
                return None
            edits.append(self.script.edits.replace(name, f"{cast}({accumulator.name})"))
        return _joined(edits)

    # -- lists ----------------------------------------------------------------

    def _collection(self, accumulator: Accumulator) -> Fix | None:
        name = accumulator.name
        lines = {self._converted(each, name) for each in accumulator.additions}
        line = lines.pop() if len(lines) == 1 else None
        if line is None:
            return None
        joined = self._read_where_joined(accumulator, line)
        if joined is not None:
            edits = [*(self._kept(each) for each in accumulator.additions), joined]
            return self._fix(f"Keep tensors in {name} and read them where they are joined", edits)
        found: tuple[str, Edits] | None = ("", ())
        if "stack(" in line:
            found = self.script.edits.importing("torch", at=accumulator.loop)
        if found is None:
            return None
        edits = [
            *(self._kept(each) for each in accumulator.additions),
            self.script.edits.after(accumulator.loop, line.replace("torch.", f"{found[0]}.")),
            found[1],
        ]
        return self._fix(f"Keep tensors in {name} and read them after the loop", edits)

    def _read_where_joined(self, accumulator: Accumulator, line: str) -> Edits | None:
        """Read the joined tensor once if the only use of the list is `torch.cat(list)`."""
        script, name = self.script, accumulator.name
        home = script.scopes.function(accumulator.loop)
        if line != f"{name} = [each.cpu() for each in {name}]":
            return None
        uses = [
            use
            for use in script.tree.spelled(name)
            if script.scopes.reads(use)
            and script.scopes.function(use) is home
            and not script.tree.inside(use, accumulator.loop)
        ]
        call = script.tree.taker(uses[0]) if len(uses) == 1 else None
        if not isinstance(call, cst.Call) or script.name(call.func) not in _JOINS:
            return None
        if script.tree.order(call) < script.tree.end(accumulator.loop):
            return None
        return script.edits.insert(script.span(call).end, ".cpu()")

    def _converted(self, addition: Accumulation, name: str) -> str | None:
        """Return the line that converts a list of tensors to its original items."""
        readings = self._readings(addition)
        if len(readings) != 1:
            return None
        reading, value = readings[0], self._value(addition)
        if addition.adding is Adding.APPEND and reading.form is Form.NUMBER:
            if not self._keeps_its_type(reading) or not self._computable(value, readings):
                return None
            if (
                reading.node is not value
                and self.script.values.dtypes.is_integral(reading.tensor) is not False
            ):
                return None
            flat = "" if self._is_scalar(reading.tensor) else ".flatten()"
            return f"{name} = torch.stack({name}){flat}.tolist() if {name} else []"
        tail = self._tail(reading)
        if reading.node is not value or tail is None:
            return None
        self.doubt = _MEMORY
        if addition.adding is Adding.APPEND:
            return f"{name} = [each{tail} for each in {name}]"
        if reading.form is Form.TENSOR:
            return None
        return f"{name} = [item for each in {name} for item in each{tail}]"

    def _keeps_its_type(self, reading: Reading) -> bool:
        if not reading.cast:
            return True
        return self.script.values.dtypes.is_integral(reading.tensor) is (reading.cast == "int")

    def _tail(self, reading: Reading) -> str | None:
        """Return the part of a read that has to run after the loop, such as `.cpu().numpy()`."""
        end = self.script.span(reading.tensor).end
        text = "".join(
            self.script.tree.source.text[end : self.script.tree.bare(reading.node).end].split()
        )
        if reading.cast or _LINKS.fullmatch(text) is None:
            return None
        return text.replace(".detach()", "").replace(".data", "")

    def _kept(self, addition: Accumulation) -> Edits | None:
        (reading,) = self._readings(addition)
        value, node = addition.values[0], addition.node
        number = reading.form is Form.NUMBER
        computed = reading.node is not self._value(addition)
        if computed and not self._has_float64():
            return None
        edits = [self._on_device(reading, double=number and computed, clone=not computed)]
        if addition.adding is Adding.EXTEND:
            span = self.script.span(value)
            if isinstance(node, cst.Call):
                edits.append(self.script.edits.renamed(node, "append") or ())
            elif isinstance(node, cst.AugAssign):
                start = self.script.span(addition.target).end
                edits.append((Edit(Span(start, span.start), ".append("),))
                edits.append(self.script.edits.insert(span.end, ")"))
            else:
                return None
        return _joined(edits)

    # -- tensors --------------------------------------------------------------

    def _on_device(self, reading: Reading, double: bool, clone: bool = False) -> Edits | None:
        """Keep a tensor on its device, detached, and in float64 if required."""
        script = self.script
        whole, inner = script.tree.bare(reading.node), script.span(reading.tensor)
        text = script.tree.source.text
        if "#" in text[whole.start : inner.start] + text[inner.end : whole.end]:
            return None
        suffix = ""
        if _is_recorded(script, reading) and not without_graph(script, reading.tensor):
            suffix += ".detach()"
        suffix += ".double()" if double else ""
        if clone and may_change(script, reading.tensor, self.addition.loop.node):
            suffix += ".clone()"
        loose = bool(reading.cast) and script.tree.breaks_lines(reading.tensor)
        bare = loose or (bool(suffix) and not script.tree.is_closed(reading.tensor))
        return (
            Edit(Span(whole.start, inner.start), "(" if bare else ""),
            Edit(Span(inner.end, whole.end), (")" if bare else "") + suffix),
        )

    def _fix(self, title: str, edits: list[Edits | None]) -> Fix | None:
        if not _has_own_line(self.script, self.addition.node):
            return None
        made = _joined(edits)
        if made is None:
            return None
        unseen = next(filter(None, map(self._unseen, self._readings(self.addition))), "")
        if unseen or self.doubt == _MEMORY:
            return Fix.unsafe(title, made, because=unseen or self.doubt)
        return Fix.close(title, made, because=self.doubt) if self.doubt else Fix.exact(title, made)

    def _unseen(self, reading: Reading) -> str:
        """Return why a read value may not be a tensor, empty if it certainly is one."""
        tensor = reading.tensor
        if isinstance(tensor, cst.Name) and self.script.values.losses.sent_backward(
            self.script.scopes.reaching(tensor)
        ):
            return ""
        unseen = self.script.loaders.provenance.unseen_tensor(tensor)
        said = f"{unseen} is not visible here: it may give something else than a tensor"
        return said if unseen else ""


def _joined(parts: list[Edits | None]) -> Edits | None:
    """Return all edits together, None if one of them is missing."""
    found: list[Edit] = []
    for part in parts:
        if part is None:
            return None
        found += [edit for edit in part if edit.text or edit.span.start != edit.span.end]
    return tuple(found)


def _is_recorded(script: Script, reading: Reading) -> bool:
    """Return whether autograd may record where a tensor is computed, here or on a line above."""
    named = script.functions.bindings(reading.tensor)
    places = [each.node for each in named if each.parameter is None] or [reading.node]
    return any(script.values.gradients.grad(place) is not Grad.OFF for place in places)


def _has_own_line(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a small statement is the only one on its line."""
    line = script.tree.parent(node)
    while isinstance(line, cst.BaseSmallStatement):
        line = script.tree.parent(line)
    return (
        isinstance(line, (cst.SimpleStatementLine, cst.SimpleStatementSuite))
        and len(line.body) == 1
    )
