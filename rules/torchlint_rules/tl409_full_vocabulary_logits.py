"""TL409: a loss for which the logits of every token over the whole vocabulary are made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Binding, Finding, Grad, Role, Rule, Script, word_of

_LOSS: Final = "torch.nn.functional.cross_entropy"
_CRITERION: Final = "torch.nn.CrossEntropyLoss"
_LARGE: Final = 16_000
"""The vocabulary from which the logits are the largest tensor of a step."""
_HEADS: Final = re.compile(r"(?:lm|vocab|output|language_model)_?(?:head|proj\w*)|unembed\w*")
_VOCABULARY: Final = re.compile(r"(?:\w+\.)*(?:\w+_)?vocab(?:ulary)?(?:_size)?", re.IGNORECASE)
_SHAPING: Final = frozenset(
    "view reshape flatten transpose permute contiguous float to squeeze".split()
)
_DESCRIBING: Final = frozenset("size shape dtype device ndim".split())


class _Logits(NamedTuple):
    """The product that a loss is computed from, and the names that it has on the way."""

    head: cst.Call
    uses: frozenset[int]
    bindings: tuple[Binding, ...]
    widened: bool
    """Whether a copy in float32 is made of it."""


class FullVocabularyLogits(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every cross entropy of logits that nothing else needs."""
        for call in _losses(script):
            given = script.calls.at(call).given("input", 0)
            logits = _logits(script, given.value) if given is not None else None
            size = _classes(script, logits.head) if logits is not None else None
            if logits is None or size is None or _is_kept(script, logits):
                continue
            if script.values.gradients.grad(call) is Grad.OFF or _is_chunked(script, call):
                continue
            copies = "in `float()`, in its gradient" if logits.widened else "in its gradient"
            message = (
                f"`{script.tree.brief(logits.head)}` makes {size} for each token, and once more "
                f"{copies}, only for this loss: {_instead(script)}"
            )
            yield Finding(self.code, script.span(call), message)


def _instead(script: Script) -> str:
    chunks = "compute it in chunks of tokens under `checkpoint(..., use_reentrant=False)`"
    if not script.program.target.has((2, 13)):
        return chunks
    return (
        "`F.linear_cross_entropy(..., options=torch.nn.LinearCrossEntropyOptions())` of torch 2.13 "
        f"never has them all; or {chunks}"
    )


def _losses(script: Script) -> Iterator[cst.Call]:
    yield from (site.node for site in script.calls.of(_LOSS))
    if next(script.calls.of(_CRITERION), None) is None:
        return
    for call in script.tree.all(cst.Call):
        if isinstance(call.func, (cst.Name, cst.Attribute)) and len(call.args) == 2:
            made = script.values.value_of(call.func).node
            if isinstance(made, cst.Call) and script.name(made.func) == _CRITERION:
                yield call


def _logits(script: Script, node: cst.BaseExpression) -> _Logits | None:
    """Return the product with a head that a value is, in another shape."""
    uses: set[int] = set()
    bindings: list[Binding] = []
    widened = False
    while True:
        if isinstance(node, cst.Subscript):
            node = node.value
        elif isinstance(node, cst.Name):
            binding = script.scopes.only(node)
            value = script.scopes.only(node).assigned
            if value is None or binding in bindings:
                return None
            uses.add(id(node))
            bindings.append(binding)
            node = value
        elif isinstance(node, cst.Call) and _shapes(script, node):
            func = cst.ensure_type(node.func, cst.Attribute)
            widened = widened or func.attr.value == "float"
            node = func.value
        elif isinstance(node, cst.Call):
            return _Logits(node, frozenset(uses), tuple(bindings), widened)
        else:
            return None


def _shapes(script: Script, call: cst.Call) -> bool:
    func = call.func
    return script.calls.at(call).method in _SHAPING and script.name(func) is None


def _classes(script: Script, call: cst.Call) -> str | None:
    """Return how many numbers a head makes of each token, in words; None unless it is many."""
    if script.name(call.func) == "torch.nn.functional.linear":
        weight = script.calls.at(call).given("weight")
        table = weight.value if weight is not None else None
        if not isinstance(table, cst.Attribute) or table.attr.value != "weight":
            return None
        return _size(script, table.value, ("num_embeddings", 0), "torch.nn.Embedding", named=True)
    func = call.func
    if not isinstance(func, (cst.Name, cst.Attribute)):
        return None
    named = _HEADS.fullmatch(word_of(call)) is not None
    return _size(script, func, ("out_features", 1), "torch.nn.Linear", named=named)


def _size(
    script: Script, layer: cst.BaseExpression, size: tuple[str, int], kind: str, *, named: bool
) -> str | None:
    made = script.values.value_of(layer).node
    if not isinstance(made, cst.Call) or script.name(made.func) != kind:
        return None
    given = script.calls.at(made).given(*size)
    if given is None:
        return None
    known = script.values.value_of(given.value)
    if known.is_literal:
        many = type(known.literal) is int and known.literal >= _LARGE
        return f"{known.literal} numbers" if many else None
    text = script.code(given.value)
    if isinstance(known.node, cst.Call) or not (named or _VOCABULARY.fullmatch(text)):
        return None
    return f"`{text}` numbers"


def _is_kept(script: Script, logits: _Logits) -> bool:
    """Return whether anything but the loss, or a shape, uses the logits."""
    inner = {id(name) for each in logits.bindings[:-1] if each.value is not None
             for name in script.tree.within(each.value, cst.Name)}  # fmt: skip
    for binding in logits.bindings:
        for use in script.scopes.uses(binding):
            holder = script.tree.parent(use)
            described = isinstance(holder, cst.Attribute) and holder.attr.value in _DESCRIBING
            if id(use) not in logits.uses and id(use) not in inner and not described:
                return True
    return False


def _is_chunked(script: Script, call: cst.Call) -> bool:
    """Return whether a loop over parts of a batch, or a checkpoint, runs a loss."""
    for loop in script.loops.around(call):
        if loop.role not in (Role.TRAIN_BATCH, Role.EPOCH):
            return True
    home = script.scopes.function(call)
    return home is not None and any(
        script.functions.definition(site.node.args[0].value) is home
        for site in script.calls.of("torch.utils.checkpoint.checkpoint")
        if site.node.args
    )
