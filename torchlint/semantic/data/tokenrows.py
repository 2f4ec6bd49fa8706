"""Token rows: datasets of Hugging Face whose rows a tokenizer has already made into numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import libcst as cst

from torchlint.semantic.scope.scopes import dotted
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import container_of
from torchlint.semantic.values.known import ValueAnalysis

_LOADED: Final = re.compile(
    r"datasets\.(?:load\.)?(?:load_dataset|load_from_disk)|datasets\.(?:\w+\.)*Dataset\.from_\w+"
)
_KEEPING: Final = frozenset(
    "map filter select shuffle sort shard flatten train_test_split rename_column "
    "rename_columns remove_columns select_columns cast cast_column class_encode_column "
    "with_format flatten_indices".split()
)
"""The methods of a dataset whose result is a dataset, stored in Arrow tables again."""
_JOINING: Final = re.compile(r"datasets\.(?:\w+\.)*(?:concatenate|interleave)_datasets")
TOKENIZER: Final = re.compile(r"transformers\.(?:\w+\.)*\w*Tokenizer\w*\.from_pretrained")
_TRANSFORMS: Final = ("set_transform", "with_transform")


@dataclass
class _Trace:
    """What a dataset is made of, as far as it was followed."""

    seen: set[int] = field(default_factory=set)
    said: set[str] = field(default_factory=set)
    """The code of the datasets on the way."""
    tokenised: bool = False


class TokenRows(ValueAnalysis):
    """Recognizes datasets whose items are read from Arrow tables that hold token numbers."""

    def are(self, node: cst.BaseExpression) -> bool:
        """Return whether reading an item of a dataset only reads numbers from a table."""
        trace = _Trace()
        return self._are_loaded(node, trace) and trace.tokenised and not self._transformed(trace)

    def _are_loaded(self, node: cst.BaseExpression, trace: _Trace) -> bool:
        """Return whether the rows of a dataset come from tables."""
        node = container_of(node)
        if id(node) in trace.seen:
            return True
        trace.seen.add(id(node))
        trace.said.add(self.tree.code(node))
        values = self._values(node)
        if values is None:
            return isinstance(node, cst.Call) and self._is_table(node, trace)
        return bool(values) and all(self._are_loaded(value, trace) for value in values)

    def _values(self, node: cst.BaseExpression) -> list[cst.BaseExpression] | None:
        """Return what a name or a call of this file stands for, None for other expressions."""
        if isinstance(node, cst.Call):
            function = self.functions.definition(node.func)
            if not isinstance(function, cst.FunctionDef):
                return None
            return list(self.functions.returns(function))
        if not isinstance(node, (cst.Name, cst.Attribute)):
            return None
        bindings = self.functions.bindings(node)
        plain = all(each.assigned or each.parameter for each in bindings)
        return [one for each in bindings if plain for one in self.functions.held(each)]

    def _is_table(self, call: cst.Call, trace: _Trace) -> bool:
        name = self.names.name(call.func) or ""
        if _JOINING.fullmatch(name) and call.args:
            joined = self._parts(call.args[0].value)
            return bool(joined) and all(self._are_loaded(part, trace) for part in joined)
        if _LOADED.fullmatch(name):
            return self.values.argument_node(call, "streaming") is None
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _KEEPING:
            return False
        if call.func.attr.value == "map" and self._tokenises(call):
            trace.tokenised = True
        return self._are_loaded(call.func.value, trace)

    def _parts(self, node: cst.BaseExpression) -> list[cst.BaseExpression]:
        """Return the items of a list: those written in it, and those added to it."""
        written = [node] if isinstance(node, cst.List) else self._values(node) or []
        if not all(isinstance(value, cst.List) or self.names.is_empty(value) for value in written):
            return []
        found = [
            each.value
            for value in written
            for each in (value.elements if isinstance(value, cst.List) else ())
        ]
        if isinstance(node, (cst.Name, cst.Attribute)):
            found += self.origins.additions(node)
        return found

    def _tokenises(self, call: cst.Call) -> bool:
        """Return whether the function that rows are mapped with runs a tokenizer."""
        given = self.origins.of(call.args[0].value).values if call.args else ()
        return bool(given) and all(map(self._runs_tokenizer, given))

    def _runs_tokenizer(self, given: cst.BaseExpression) -> bool:
        function = self.functions.definition(given)
        bodies: list[cst.CSTNode] = [given] if isinstance(given, cst.Lambda) else []
        if isinstance(function, cst.FunctionDef):
            bodies += self.functions.reached(function)
        return any(
            self._is_tokenizer(inner.func)
            for body in bodies
            for inner in self.functions.own(body, cst.Call)
        )

    def _is_tokenizer(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is a tokenizer, by what made it or by its name."""
        if any(word.startswith("tokeniz") for word in words(dotted(node).rpartition(".")[2])):
            return True
        made = self._values(node) or []
        return any(
            isinstance(value, cst.Call)
            and TOKENIZER.fullmatch(self.names.name(value.func) or "") is not None
            for value in made
        )

    def _transformed(self, trace: _Trace) -> bool:
        """Return whether a dataset is given a function that runs for each item."""
        return any(
            self.tree.code(node.value).partition("[")[0] in trace.said
            for word in _TRANSFORMS
            for node in self.functions.attributes(word)
        )
