"""What the semantic model says about a line of a case file, in the words of an expectation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import libcst as cst
from semantic.expectations import Expectation

from torchlint.semantic.script import Script
from torchlint.semantic.values.values import State

NodeT = TypeVar("NodeT", bound=cst.CSTNode)

_PARAMETERS = {
    "torch.utils.data.DataLoader": (
        "dataset batch_size shuffle sampler batch_sampler num_workers collate_fn pin_memory"
    ),
    "torch.nn.Conv2d": "in_channels out_channels kernel_size stride padding dilation groups bias",
    "torch.nn.Linear": "in_features out_features bias",
    "torch.optim.SGD": "params lr momentum",
}
_COMPOUND = (cst.For, cst.While, cst.If, cst.With, cst.Try, cst.FunctionDef, cst.ClassDef)


def answer(script: Script, asked: Expectation) -> str:
    """Return the model's answer to one expectation."""
    return _Line(script, asked.row).answer(asked)


class _Line:
    """The nodes that stand on one line of a script."""

    def __init__(self, script: Script, row: int) -> None:
        self.script = script
        self.row = row

    def answer(self, asked: Expectation) -> str:
        """Return the model's answer in the words of the expectation."""
        script = self.script
        match asked.notion:
            case "role":
                return self._role()
            case "kind":
                value = self._named(asked.subject) if asked.subject else self._value()
                return script.kind(value).name
            case "name":
                return script.name(self._call().func) or "?"
            case "frequency":
                return script.loops.frequency(self._statement()).name.lower()
            case "grad":
                return script.values.gradients.grad(self._statement()).name.lower()
            case "arg":
                return self._argument(asked.subject)
            case "accelerator":
                return "yes" if script.program.devices.can_use_accelerator else "no"
            case "framework":
                return script.program.devices.framework or "none"
        raise ValueError(f"no notion: {asked.notion}")

    def _rows(self, node: cst.CSTNode) -> tuple[int, int]:
        span = self.script.span(node)
        source = self.script.source
        return source.position(span.start).row, source.position(max(span.start, span.end - 1)).row

    def _starting(self, kind: type[NodeT]) -> Iterator[NodeT]:
        """Yield the nodes of a type that begin on the line, in the order of the source."""
        for node in self.script.tree.all(kind):
            if self._rows(node)[0] == self.row:
                yield node

    def _statement(self) -> cst.BaseStatement:
        """Return the innermost statement that covers the line."""
        covering: list[tuple[int, int, cst.BaseStatement]] = []
        for kind in (cst.SimpleStatementLine, *_COMPOUND):
            for node in self.script.tree.all(kind):
                first, last = self._rows(node)
                if first <= self.row <= last:
                    covering.append((last - first, -self.script.tree.order(node), node))
        return min(covering, key=lambda found: found[:2])[2]

    def _value(self) -> cst.BaseExpression:
        """Return the expression that the line's statement is about."""
        statement = self._statement()
        if isinstance(statement, cst.SimpleStatementLine):
            small = statement.body[0]
            if isinstance(small, (cst.Assign, cst.AugAssign, cst.AnnAssign, cst.Expr, cst.Return)):
                assert small.value is not None
                return small.value
        if isinstance(statement, cst.For):
            return statement.iter
        raise ValueError(f"line {self.row} has no value")

    def _named(self, subject: str) -> cst.BaseExpression:
        """Return the first name, or chain of attributes, that reads like `subject`."""
        kind = cst.Attribute if "." in subject else cst.Name
        for node in self._starting(kind):
            if self.script.code(node) == subject:
                return node
        raise ValueError(f"line {self.row} has no {subject}")

    def _call(self) -> cst.Call:
        """Return the outermost call of the line."""
        return next(self._starting(cst.Call))

    def _role(self) -> str:
        headers = [*self._starting(cst.For), *self._starting(cst.While)]
        (loop,) = (loop for loop in self.script.loops.all() if loop.node in headers)
        return loop.role.name

    def _argument(self, name: str) -> str:
        call = self.script.calls.at(self._call())
        parameters = _PARAMETERS.get(call.name or "", "").split()
        position = parameters.index(name) if name in parameters else None
        value = call.argument(name, position)
        if value.state is State.KNOWN and value.node is not None:
            return self.script.tree.text(value.node).strip()
        return value.state.name.lower()
