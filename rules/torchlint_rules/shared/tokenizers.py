"""Tokenizers: the calls that turn text into numbers, and the maps over a dataset that do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import CallSite, Kind, Script, index_of, last_word, receiver_of

_NAMES: Final = frozenset(("tokenizer", "tokeniser"))
_PIPELINES: Final = frozenset(("spacy", "nlp"))
_METHODS: Final = frozenset("encode encode_plus encode_batch batch_encode_plus tokenize".split())


class TextMap(NamedTuple):
    """A call of `map` whose function tokenises a column of each row.

    `row` is the function's parameter, `body` what it runs.
    """

    site: CallSite
    row: str
    body: cst.CSTNode
    calls: tuple[cst.Call, ...]


def tokenizer_of(script: Script, call: cst.Call) -> cst.BaseExpression | None:
    """Return the tokenizer that a call runs on text, None for any other call."""
    node = receiver_of(call, *_METHODS) or call.func
    last = last_word(node)
    if not last or not call.args or script.functions.definition(call.func) is not None:
        return None
    if last[:1].isupper() or _is_of_pipeline(script, node):
        return None
    if _NAMES.isdisjoint(script.names.words(last)[-1:]) and not _is_made(script, node):
        return None
    if script.kind(node) is Kind.MODULE or _is_image(script, call.args[0].value):
        return None
    return None if script.values.visibility.is_of_own_class(node) else node


def _is_of_pipeline(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a tokenizer is that of a pipeline of spaCy, which takes one text at a time."""
    owner = node.value if isinstance(node, cst.Attribute) else node
    return not _PIPELINES.isdisjoint(script.names.words(last_word(owner)))


def _is_made(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a class or a function with the name of a tokenizer made a value."""
    if not script.tree.mentions("okenizer", "okeniser") or script.name(node) is not None:
        return False
    made = [each for each in script.values.origins.of(node).values if isinstance(each, cst.Call)]
    makers = [receiver_of(call, "from_pretrained", "from_file") or call.func for call in made]
    named = [word for word in map(last_word, makers) if word not in _NAMES]
    return any(not _NAMES.isdisjoint(script.names.words(word)) for word in named)


def _is_image(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a value is said to be a tensor, or was moved: images, no text."""
    for binding in script.scopes.reaching(node):
        told = binding.node.annotation if isinstance(binding.node, cst.Param) else None
        if told is not None and script.name(told.annotation) == "torch.Tensor":
            return True
    value = script.values.value_of(node).node or node
    return isinstance(value, cst.Call) and script.calls.at(value).method in ("to", "cuda")


def text_maps(script: Script) -> Iterator[TextMap]:
    """Yield the calls of `map` that tokenise columns of a dataset."""
    for site in script.calls.of_methods("map"):
        given = site.given("function", 0)
        for function in functions_of(script, given.value) if given is not None else ():
            row = next((each.name.value for each in function.params.params), "")
            calls = tuple(
                inner
                for inner in script.tree.within(function.body, cst.Call)
                if tokenizer_of(script, inner) is not None
                and _is_of_row(script, inner.args[0].value, row)
            )
            if calls:
                yield TextMap(site, row, function.body, calls)


def functions_of(
    script: Script, node: cst.BaseExpression
) -> tuple[cst.FunctionDef | cst.Lambda, ...]:
    """Return the functions of this file that rows may be handed to, or an object that is called.

    A lambda, a partial object and a function may hand them on, or make what takes them.
    """
    if isinstance(node, cst.Call) and script.name(node.func) == "functools.partial" and node.args:
        node = node.args[0].value
    if isinstance(node, cst.Lambda):
        return (_handed_on(script, node) or node,)
    known = script.functions.run_by(node)
    return (known,) if known is not None else script.functions.surely_held(node)


def _handed_on(script: Script, made: cst.Lambda) -> cst.FunctionDef | None:
    """Return the function that a lambda only hands its row to: `lambda row: f(row, tokenizer)`."""
    call, named = made.body, made.params.params
    if not isinstance(call, cst.Call) or not call.args or not named:
        return None
    first = call.args[0].value
    same = isinstance(first, cst.Name) and first.value == named[0].name.value
    return script.functions.callee(call) if same else None


def _is_of_row(script: Script, node: cst.BaseExpression, row: str) -> bool:
    """Return whether a text is a column of a row, or made of columns, at once or under a name."""
    if any(is_column(part, row) for part in (node, *script.tree.within(node, cst.Subscript))):
        return True
    bindings = script.scopes.reaching(node)
    return bool(bindings) and all(
        each.value is not None
        and not isinstance(each.value, cst.Name)
        and _is_of_row(script, each.value, row)
        for each in bindings
    )


def is_column(node: cst.BaseExpression, row: str) -> bool:
    """Return whether an expression is a column of a row: `row["text"]`."""
    index = index_of(node)
    held = node.value if isinstance(node, cst.Subscript) else None
    named = isinstance(held, cst.Name) and held.value == row
    return named and index is not None and not isinstance(index, cst.Integer)
