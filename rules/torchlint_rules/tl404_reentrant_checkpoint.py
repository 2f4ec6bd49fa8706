"""TL404: activation checkpoints without `use_reentrant`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, How, Rule, Script, State, receiver_of

_CHECKPOINTS: Final = frozenset(
    f"torch.utils.checkpoint.{word}" for word in ("checkpoint", "checkpoint_sequential")
)
_FROZEN: Final = (
    "a block whose input needs no gradient was silently not trained by the reentrant variant, and "
    "now is"
)


class ReentrantCheckpoint(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every checkpoint without `use_reentrant`."""
        said = any(
            arg.keyword is not None and arg.keyword.value == "use_reentrant"
            for arg in script.tree.all(cst.Arg)
        )
        for site in script.calls.of(*_CHECKPOINTS, "functools.partial"):
            first = site.node.args[0].value if site.node.args else None
            partial = site.name == "functools.partial"
            if first is None or (partial and (said or script.name(first) not in _CHECKPOINTS)):
                continue
            if site.argument("use_reentrant").state is not State.ABSENT:
                continue
            if _asks_for_version(script, site.node) or _is_switched_off(script, site.node):
                continue
            what = script.code(first if partial else site.node.func)
            edits = script.edits.with_keyword(site.node, "use_reentrant", "False")
            fix = Fix.exact("Pass use_reentrant=False", edits)
            if partial or not _computed(script, site.node):
                fix = Fix.unsafe("Pass use_reentrant=False", edits, because=_FROZEN)
            message = (
                f"`{what}` without `use_reentrant` warns and recomputes by the slower reentrant "
                "variant: pass `use_reentrant=False`"
            )
            yield Finding(self.code, script.span(site.node), message, fix)


def _asks_for_version(script: Script, call: cst.Call) -> bool:
    """Return whether an `if` around a call asks for a version, as of a torch without the option."""
    return any(
        "version" in script.names.words(script.code(each.test))
        for each, _ in script.tree.branches(call)
    )


def _is_switched_off(script: Script, call: cst.Call) -> bool:
    """Return whether an attribute that is False whenever it is set keeps a checkpoint from running.

    A method `gradient_checkpointing_enable` sets it, and an option of a trainer calls that.
    """
    asked = {
        each.attr.value
        for test in script.tree.tests_around(call)
        for each in script.tree.within(test, cst.Attribute)
        if "checkpoint" in each.attr.value and isinstance(each.value, cst.Name)
    }
    if next(script.calls.of_methods("gradient_checkpointing_enable"), None) is not None:
        return False
    return any(_is_always_false(script, word) for word in asked)


def _is_always_false(script: Script, word: str) -> bool:
    """Return whether attributes of this name are only ever set to False, and no option is."""
    if any(
        arg.keyword is not None and arg.keyword.value == word for arg in script.tree.all(cst.Arg)
    ):
        return False
    lines = [
        line
        for line in script.tree.all(cst.Assign)
        if any(
            isinstance(target.target, cst.Attribute) and target.target.attr.value == word
            for target in line.targets
        )
    ]
    return bool(lines) and all(
        isinstance(line.value, cst.Name) and line.value.value == "False" for line in lines
    )


def _computed(script: Script, call: cst.Call) -> bool:
    """Return whether an input of a checkpointed block certainly comes from trained layers."""
    if not script.optimizers.steps:
        return False
    if not call.args or not script.values.visibility.shows(call.args[0].value):
        return False
    return any(
        arg.keyword is None and not arg.star and script.answer(_by_layers, arg.value, False)
        for arg in call.args[1:]
    )


def _by_layers(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a value certainly is the output of a layer."""
    if isinstance(node, cst.Name):
        found = [
            binding.how is How.ASSIGN
            and binding.value is not None
            and script.answer(_by_layers, binding.value, False)
            for binding in script.scopes.reaching(node)
            if not _recomputed(script, binding.value)
        ]
        return bool(found) and all(found)
    if isinstance(node, cst.BinaryOperation):
        return any(script.answer(_by_layers, side, False) for side in (node.left, node.right))
    if not isinstance(node, cst.Call):
        return False
    if _recomputed(script, node):
        return script.answer(_computed, node, False)
    if not script.values.visibility.shows(node.func):
        return False
    network = script.loops.module_call(node)
    if network is not None:
        return not script.modules.may_be_frozen(network)
    owner = receiver_of(node)
    if owner is None or script.name(node.func) is not None:
        return False
    if isinstance(owner, cst.Name) and owner.value == "self":
        return script.functions.definition(node.func) is None
    return script.answer(_by_layers, owner, False)


def _recomputed(script: Script, node: cst.BaseExpression | None) -> bool:
    """Return whether a value is the result of a checkpoint."""
    return isinstance(node, cst.Call) and script.name(node.func) in _CHECKPOINTS
