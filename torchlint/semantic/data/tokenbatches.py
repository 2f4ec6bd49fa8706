"""Token batches: those that hold nothing but numbers of tokens, a few kilobytes each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.scope.words import words
from torchlint.semantic.values.calls import CallSite
from torchlint.semantic.values.origins import Origins

_TOKENS: Final = frozenset({"ids", "tokens"})
_BESIDE: Final = frozenset(
    "id mask masks label labels target targets row col length lengths index idx position".split()
)
"""What stands beside the tokens of a text, and is as small: the last words of keys."""
_TEXTS: Final = frozenset("text texts sentence sentences prompt question answer".split())
_COLLATORS: Final = frozenset({
    "transformers.DataCollatorWithPadding", "transformers.DataCollatorForLanguageModeling",
    "transformers.DataCollatorForSeq2Seq", "transformers.DataCollatorForTokenClassification",
})  # fmt: skip


class TokenBatches(Analysis):
    """Tells by their entries which batches hold tokens: `input_ids`, a mask and labels."""

    def __init__(self, functions: Functions, origins: Origins) -> None:
        super().__init__(functions)
        self.origins = origins

    def are_loaded(self, loader: CallSite) -> bool:
        """Return whether all that the batches of a loader hold is small."""
        collate, dataset = loader.expression("collate_fn"), loader.expression("dataset")
        if collate is not None:
            made = self.origins.of(collate).values
            return bool(made) and all(map(self._collates, made))
        made = self.origins.of(dataset).values if dataset is not None else ()
        return bool(made) and all(map(self._reads, made))

    def _collates(self, made: cst.BaseExpression) -> bool:
        """Return whether a collate function makes tokens of texts, or batches of tokens."""
        if isinstance(made, cst.Call) and self.names.name(made.func) in _COLLATORS:
            return True
        inner = made.body if isinstance(made, cst.Lambda) else None
        function = self.functions.run_by(inner.func if isinstance(inner, cst.Call) else made)
        if function is None:
            return False
        read = set(self._keys_read(function))
        return self._gives_tokens(function) or (bool(read) and read <= _TEXTS)

    def _reads(self, made: cst.BaseExpression) -> bool:
        """Return whether the items of a dataset hold tokens."""
        owner = self.functions.definition(made.func) if isinstance(made, cst.Call) else None
        if not isinstance(owner, cst.ClassDef):
            return False
        read = self.functions.method(owner, "__getitem__")
        return read is not None and self._gives_tokens(read)

    def _gives_tokens(self, function: cst.FunctionDef) -> bool:
        keys = list(self._keys_given(function))
        last = [words(key)[-1:] for key in keys if key is not None]
        return (
            None not in keys
            and any(not _TOKENS.isdisjoint(each) for each in last)
            and all(not (_TOKENS | _BESIDE).isdisjoint(each) for each in last)
        )

    def _keys_given(self, function: cst.FunctionDef) -> Iterator[str | None]:
        """Yield the keys of what a function returns, None for what is no plain dictionary."""
        for returned in self.functions.returns(function):
            for made in self.origins.of(returned).values or (returned,):
                if not isinstance(made, cst.Dict):
                    yield None
                    continue
                for each in made.elements:
                    yield self._text(each.key) if isinstance(each, cst.DictElement) else None
        for line in self.functions.own(function, cst.Assign):
            target = line.targets[0].target
            if isinstance(target, cst.Subscript) and (key := self._key(target)) is not None:
                yield key

    def _keys_read(self, function: cst.FunctionDef) -> Iterator[str]:
        """Yield the keys of the items that a function reads."""
        for item in self.functions.own(function, cst.Subscript):
            if (key := self._key(item)) is not None:
                yield key

    def _key(self, item: cst.Subscript) -> str | None:
        key = self.origins.values.key(item)
        return key if isinstance(key, str) else None

    def _text(self, node: cst.BaseExpression) -> str | None:
        text = self.origins.values.value_of(node).literal
        return text if isinstance(text, str) else None
