"""Token batches: those that hold nothing but numbers of tokens, a few kilobytes each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import dotted
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import last_word, method_of, word_of
from torchlint.semantic.values.calls import CallSite
from torchlint.semantic.values.origins import Origins

_TOKENS: Final = frozenset({"ids", "tokens"})
_BESIDE: Final = frozenset(
    "id mask masks label labels target targets row col length lengths index idx position "
    "mapping".split()
)
"""What stands beside the tokens of a text, and is as small: the last words of keys."""
_TEXTS: Final = frozenset("text texts sentence sentences prompt question answer".split())
_LONG: Final = frozenset({"long", "int64", "LongTensor"})
_DEFAULTS: Final = ("transformers.default_data_collator", "torch.utils.data.default_collate")
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
        joining = self._made(loader, "collate_fn")
        if not all(self.names.name(each) in _DEFAULTS for each in joining):
            return all(map(self._collates, joining))
        made = self._made(loader, "dataset")
        return bool(made) and all(
            any(self._gives_tokens(read) or self._gives_numbers(read) for read in self._code(each))
            for each in made
        )

    def are_ready(self, loader: CallSite) -> bool:
        """Return whether a loader only joins tokens: nothing in view makes them of texts."""
        datasets = self._made(loader, "dataset")
        code = (
            body
            for made in (*self._made(loader, "collate_fn"), *datasets)
            for function in self._code(made)
            for body in self.functions.reached(function)
        )
        calls = (call for body in code for call in self.functions.own(body, cst.Call))
        ran = (call.func for call in calls if method_of(call) != "pad")
        given = (arg.value for made in datasets if isinstance(made, cst.Call) for arg in made.args)
        return self.are_loaded(loader) and not any(map(_names_tokenizer, (*ran, *given)))

    def _made(self, loader: CallSite, word: str) -> tuple[cst.BaseExpression, ...]:
        given = loader.expression(word)
        return tuple(self.origins.of(given).values) if given is not None else ()

    def _code(self, made: cst.BaseExpression) -> list[cst.FunctionDef]:
        """Return the functions in view that make the items of a dataset, or join them."""
        owner = self.functions.definition(made.func) if isinstance(made, cst.Call) else None
        if isinstance(owner, cst.ClassDef):
            methods = (self.functions.method(owner, each) for each in ("__getitem__", "__call__"))
            return [each for each in methods if each is not None]
        inner = made.body if isinstance(made, cst.Lambda) else None
        function = self.functions.run_by(inner.func if isinstance(inner, cst.Call) else made)
        return [] if function is None else [function]

    def _collates(self, made: cst.BaseExpression) -> bool:
        """Return whether a collate function makes tokens of texts, or batches of tokens."""
        if isinstance(made, cst.Call) and self.names.name(made.func) in _COLLATORS:
            return True
        bodies = (body for each in self._code(made) for body in self.functions.reached(each))
        read = {key for body in bodies for key in self._keys_read(body)}
        return any(map(self._gives_tokens, self._code(made))) or (bool(read) and read <= _TEXTS)

    def _gives_numbers(self, function: cst.FunctionDef) -> bool:
        """Return whether a dataset's items are long integers, as no image or sound is."""
        given = [
            element.value
            for each in self.functions.returns(function)
            for element in (each.elements if isinstance(each, cst.Tuple) else [cst.Element(each)])
        ]
        return bool(given) and all(map(self._is_long, given))

    @memoized(False)
    def _is_long(self, node: cst.BaseExpression) -> bool:
        if isinstance(node, cst.Subscript):
            return self._is_long(node.value)
        if isinstance(node, (cst.Name, cst.Attribute)):
            made = [each.assigned for each in self.functions.bindings(node)]
            return any(each is not None and self._is_long(each) for each in made)
        if not isinstance(node, cst.Call):
            return False
        said = {word_of(node), *(last_word(arg.value) for arg in node.args)}
        inner = node.args[0].value if node.args and self.names.name(node.func) else None
        return not _LONG.isdisjoint(said) or (inner is not None and self._is_long(inner))

    def _gives_tokens(self, function: cst.FunctionDef) -> bool:
        keys = list(self._keys_given(function))
        calls = self.functions.own(function, cst.Call)
        if any(method_of(call) == "pad" and _names_tokenizer(call.func) for call in calls):
            keys = ["ids", *filter(None, keys), *self._keys_read(function)]
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
                if isinstance(made, cst.Tuple):
                    yield from map(self._key_of, made.elements)
                elif isinstance(made, cst.Dict):
                    for each in made.elements:
                        yield self._text(each.key) if isinstance(each, cst.DictElement) else None
                else:
                    yield None
        for line in self.functions.own(function, cst.Assign):
            target = line.targets[0].target
            if isinstance(target, cst.Subscript) and (key := self._key(target)) is not None:
                yield key

    def _keys_read(self, function: cst.CSTNode) -> Iterator[str]:
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

    def _key_of(self, element: cst.BaseElement) -> str | None:
        """Return under which key or name a part of an item is found: `rows[i]["input_ids"]`."""
        value = element.value
        return self._key(value) if isinstance(value, cst.Subscript) else last_word(value) or None


def _names_tokenizer(node: cst.BaseExpression) -> bool:
    return any(word.startswith("tokeniz") for word in words(dotted(node)))
