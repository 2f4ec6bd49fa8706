"""Deferrable sums: additions of a batch loop for whose reads no pass has a use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    Accumulation,
    Adding,
    Fix,
    Form,
    Frequency,
    Kind,
    Loop,
    Reading,
    Script,
    receiver_of,
    word_of,
)
from torchlint_rules.shared.deferredsums import DeferredSum

_LARGE: Final = re.compile(
    r"(?:\w*_)?(?:im(?:g|age)s?|recons?\w*|samples?|masks?|feat\w*|embed\w*|emb|hiddens?|attn|"
    r"attentions?|maps?|pixels|frames?|videos?|audios?|wavs?|mels?|spec\w*|latents?|fakes?|xs?|zs?|hs?)(?:_\w+)?",
    re.IGNORECASE,
)
_TENSORS_ONLY: Final = ("detach", "cpu")
_AS_MANY: Final = frozenset(
    "sigmoid softmax log_softmax tanh exp float half double clone detach cpu to clamp".split()
)
"""Functions and methods of a tensor that give as many numbers."""
_FEWER: Final = frozenset("argmax argmin topk max min mean sum".split())
"""Functions that make a few numbers of many, which they could do on the device."""
_TORCH: Final = ("torch", "torch.nn.functional")
_HANDED_OFF: Final = frozenset({"submit", "apply_async", "map_async", "starmap_async"})
"""Methods that give their arguments to another process, which cannot use this device."""
_WRITERS: Final = frozenset(
    "write writerow writerows dump save savez savetxt save_image imsave imwrite imshow plot "
    "savefig savemat to_csv create_dataset open".split()
)


class DeferrableSum(NamedTuple):
    """An addition whose value could stay on the device, with its reads."""

    accumulation: Accumulation
    found: list[Reading]
    fix: Fix | None
    """The fix that defers it, None if something prevents that."""


def deferrable_sums(
    script: Script, loop: Loop, rare: Sequence[cst.CSTNode] = ()
) -> Iterator[DeferrableSum]:
    """Yield the additions of a loop whose reads no pass needs.

    `rare` are statements that a fix is about to put behind a test for every n-th pass.
    """
    accumulators = script.readings.accumulators
    waiting = [
        each
        for each in script.readings.accumulations(loop.role, loop.node)
        if each.loop is loop and not accumulators.used_each_pass(each, rare)
    ]
    besides = [*(each.node for each in waiting), *rare]
    said: set[int] = set()
    for accumulation in waiting:
        direct = [
            each
            for value in accumulation.values
            for each in script.readings.within(value)
            if not script.readings.syncs.sizes(each.node)
        ]
        found = direct or [
            each
            for value in accumulation.values
            for each in script.readings.named(value, loop.node, besides)
        ]
        if not found or id(found[0].node) in said:
            continue
        if not direct and _writes_results(script, accumulation, found):
            continue
        apart = [*besides, *script.readings.waits.statements(loop)]
        if any(_needed(script, accumulation, each, apart) for each in found):
            continue
        plain = bool(direct) or isinstance(accumulation.values[0], cst.Name)
        fixable = plain and all(is_shown(script, each) for each in found)
        said |= {id(each.node) for each in found}
        fix = DeferredSum(script, accumulation, rare).fix() if fixable else None
        yield DeferrableSum(accumulation, found, fix)


def is_shown(script: Script, reading: Reading) -> bool:
    """Return whether the file shows that a read value is a tensor."""
    if script.kind(reading.tensor) in (Kind.TENSOR, Kind.LOSS):
        return True
    return any(
        word_of(call) in _TENSORS_ONLY for call in script.tree.within(reading.node, cst.Call)
    )


def _needed(
    script: Script, accumulation: Accumulation, reading: Reading, besides: list[cst.CSTNode]
) -> bool:
    """Return whether the host needs the value in the same iteration."""
    loop = accumulation.loop.node
    if script.readings.needed_in(loop, reading, besides) or _is_handed_off(script, accumulation):
        return True
    if reading.form is not Form.NUMBER and accumulation.adding is not Adding.SUM:
        if named_large(script, reading.tensor, accumulation.target):
            return True
    if script.kind(reading.tensor) is Kind.LOSS:
        return False
    return script.loops.environments.are_stepped_in(loop)


def _is_handed_off(script: Script, accumulation: Accumulation) -> bool:
    """Return whether what is kept is the work of another process (`pool.submit(score, value)`)."""
    return any(
        word_of(call) in _HANDED_OFF
        for value in accumulation.values
        for call in script.tree.within(value, cst.Call)
    )


def _writes_results(script: Script, accumulation: Accumulation, found: list[Reading]) -> bool:
    """Return whether every batch also writes results to disk or plots them."""
    if all(each.form is Form.NUMBER for each in found):
        return False
    loop = accumulation.loop.node
    return bool(script.tree.among(script.once(_hot_writes), loop.body))


def _hot_writes(script: Script) -> list[cst.Call]:
    """Return the calls in every batch that write results to disk or plot them."""
    return [
        call
        for call in script.tree.all(cst.Call)
        if word_of(call) in _WRITERS and script.loops.frequency(call) is Frequency.EVERY_PASS
    ]


def named_large(script: Script, tensor: cst.BaseExpression, *named: cst.BaseExpression) -> bool:
    """Return whether names suggest that values of a batch are too large for the device."""
    if script.values.dtypes.is_integral(tensor) or script.kind(tensor) is Kind.LOSS:
        return False
    return any(_LARGE.fullmatch(_root(node)) for node in (tensor, *named))


def keeps_outputs(script: Script, reading: Reading, loop: Loop) -> bool:
    """Return whether the host keeps all numbers that a network gives for a batch, or as many.

    They wait on the host for the end of an evaluation, since the device would have to hold them.
    """
    if reading.form is Form.NUMBER or not _gives_outputs(script, reading.tensor):
        return False
    named = map(script.names.words, script.tree.words(reading.tensor))
    if any("loss" in words for words in named):  # one number of those that a network gives
        return False
    calls = script.tree.within(loop.node, cst.Call)
    return not any(word_of(call) in _FEWER and _gets(script, call, reading) for call in calls)


def _gives_outputs(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether a value has as many numbers as what a network gave."""
    while isinstance(value, cst.Call) and word_of(value) in _AS_MANY:
        receiver = receiver_of(value)
        of_torch = receiver is None or script.name(receiver) in _TORCH
        if of_torch and not value.args:
            return False
        value = value.args[0].value if of_torch or receiver is None else receiver
    return script.loops.is_output(value)


def _gets(script: Script, call: cst.Call, reading: Reading) -> bool:
    """Return whether a call gets what the host reads, by a name or in an argument."""
    if script.tree.inside(reading.node, call):
        return True
    names = script.tree.within(call, cst.Name)
    made = (each.value for name in names for each in script.scopes.reaching(name))
    return any(each and script.tree.inside(reading.node, each) for each in made)


def _root(node: cst.BaseExpression) -> str:
    """Return the leftmost name of an expression."""
    while isinstance(node, (cst.Attribute, cst.Subscript, cst.Call)):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node.value if isinstance(node, cst.Name) else ""
