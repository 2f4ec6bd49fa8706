"""Last pass: the test for the last pass of a loop whose length is known."""

from __future__ import annotations

import re
from typing import Final, TypeGuard

import libcst as cst

from torchlint.semantic.data.datasets import Datasets, Trait
from torchlint.semantic.loops.loops import Loop
from torchlint.semantic.scope.scopes import How, dotted
from torchlint.semantic.values.known import KnownValues, ValueAnalysis
from torchlint.semantic.values.values import State

_LOADER: Final = "torch.utils.data.DataLoader"
_BARS: Final = re.compile(r"tqdm\.(?:\w+\.)*(?:tqdm|tqdm_notebook)|rich\.progress\.track")
_RANGES: Final = re.compile(r"builtins\.range|tqdm\.(?:\w+\.)*trange")
_NO_LENGTH: Final = (Trait.UNSEEN, Trait.ITERABLE)


class LastPass(ValueAnalysis):
    """Writes the test for the last pass of a loop that counts its passes."""

    def __init__(self, values: KnownValues, datasets: Datasets) -> None:
        super().__init__(values)
        self.datasets = datasets

    def test(self, loop: Loop) -> str | None:
        """Return the test (`i + 1 == len(loader)`), None if the count or the length is unknown."""
        node = loop.node
        if not isinstance(node, cst.For):
            return None
        drawn = self._behind_bar(node.iter)
        if not isinstance(drawn, cst.Call) or not drawn.args:
            return None
        if self.names.name(drawn.func) == "builtins.enumerate":
            return self._of_enumerate(node, drawn)
        if _RANGES.fullmatch(self.names.name(drawn.func) or ""):
            return self._of_range(node, drawn)
        return None

    def _of_enumerate(self, node: cst.For, drawn: cst.Call) -> str | None:
        counter = node.target.elements[0].value if isinstance(node.target, cst.Tuple) else None
        source = self._behind_bar(drawn.args[0].value)
        if not _counts(counter) or not isinstance(source, (cst.Name, cst.Attribute)):
            return None
        if not self._has_length(source) or self._changes(counter, node):
            return None
        start = self.values.argument(drawn, "start", 1)
        length = f"len({self.tree.code(source)})"
        if start.equals(1):
            return f"{counter.value} == {length}"
        from_zero = start.state is State.ABSENT or start.equals(0)
        return f"{counter.value} + 1 == {length}" if from_zero else None

    def _of_range(self, node: cst.For, drawn: cst.Call) -> str | None:
        counter, end = node.target, drawn.args[0].value
        plain = len(drawn.args) == 1 or drawn.args[1].keyword is not None
        if not plain or not _counts(counter) or drawn.args[0].star:
            return None
        if not isinstance(end, (cst.Name, cst.Integer)) or self._changes(counter, node):
            return None
        if isinstance(end, cst.Name) and self._changes(end, node):
            return None
        return f"{counter.value} + 1 == {self.tree.code(end)}"

    def _behind_bar(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """Return the iterable inside a progress bar, and the name bound to the bar."""
        if isinstance(node, cst.Name):
            value = self.scopes.only(node).assigned
            node = value if value is not None and self._is_bar(value) else node
        if isinstance(node, cst.Call) and self._is_bar(node):
            return node.args[0].value
        return node

    def _is_bar(self, node: cst.BaseExpression | None) -> bool:
        if not isinstance(node, cst.Call) or not node.args or node.args[0].keyword is not None:
            return False
        return _BARS.fullmatch(self.names.name(node.func) or "") is not None

    def _has_length(self, source: cst.Name | cst.Attribute) -> bool:
        """Return whether the file shows that an iterable has a length, by use or construction."""
        if any(
            self.names.name(call.func) == "builtins.len"
            and dotted(call.args[0].value) == dotted(source)
            for call in self.tree.all(cst.Call)
            if call.args
        ):
            return True
        origin = self.origins.of(source)
        made = origin.values
        return origin.complete and bool(made) and all(self._is_measured(each) for each in made)

    def _is_measured(self, made: cst.BaseExpression) -> bool:
        """Return whether an expression is a list, or a loader over a sized dataset."""
        if isinstance(made, (cst.List, cst.Tuple, cst.ListComp)):
            return True
        if not isinstance(made, cst.Call) or self.names.name(made.func) != _LOADER:
            return False
        dataset = self.values.argument_node(made, "dataset", 0)
        if dataset is None or self.values.argument_node(made, "batch_sampler") is not None:
            return False
        return not any(trait in self.datasets.traits(dataset.value) for trait in _NO_LENGTH)

    def _changes(self, name: cst.Name, loop: cst.For) -> bool:
        """Return whether anything except the loop's own header binds a name inside the loop."""
        bindings = self.scopes.scope(name).bindings.get(name.value, [])
        return any(
            binding.how is How.AUGMENTED
            or (binding.node is not loop and self.tree.inside(binding.node, loop))
            for binding in bindings
        )


def _counts(target: cst.CSTNode | None) -> TypeGuard[cst.Name]:
    """Return whether a target has a name other than `_`, which says that nothing uses it."""
    return isinstance(target, cst.Name) and bool(target.value.strip("_"))
