"""TL410: a frozen network that encodes the same batches in every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Binding,
    Finding,
    Frequency,
    Grad,
    How,
    Loop,
    Mode,
    Note,
    Part,
    Rate,
    Role,
    Rule,
    Script,
    Trait,
    receiver_of,
)
from torchlint_rules.shared.tokenizers import tokenizer_of

_TEXT: Final = frozenset("ids token tokens attention".split())
_SAME: Final = frozenset("to cuda long int float half bfloat16".split())
_TAKES: Final = frozenset({"pop", "get"})
_FRAMEWORKS: Final = {"transformers": ("transformers", "trl")}
_NONE: Final[tuple[Part, ...]] = ()


class FrozenEncoderEachStep(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every frozen network that a training runs on what its loader yields."""
        found: dict[tuple[cst.CSTNode, str], list[cst.Call]] = {}
        for call, network in _encoding(script):
            place = _place(script, call), script.code(network)
            found.setdefault(place, []).append(call)
        for (_, name), calls in found.items():
            kept = "its outputs"
            if any(_draws_latents(script, call) for call in calls):
                kept = "mean and deviation of its `latent_dist`, which the loop can sample from"
            message = (
                f"`{name}` is frozen and encodes the same data in every epoch: run it once "
                f"over the data before the training, and keep {kept}"
            )
            notes = tuple(Note(script.span(each), "and here") for each in calls[1:])
            yield Finding(self.code, script.span(calls[0]), message, notes=notes)


def _encoding(script: Script) -> Iterator[tuple[cst.Call, cst.BaseExpression]]:
    """Yield the calls of frozen networks that a training repeats for the same data."""
    for call in script.tree.own(cst.Call):
        network = script.modules.lineage.network(call)
        if network is None or not _is_repeated(script, call):
            continue
        if _is_frozen(script, call, network) and _gets_the_same(script, call):
            yield call, network


def _place(script: Script, node: cst.CSTNode) -> cst.CSTNode:
    """Return the batch loop around a node, or else the function."""
    loop = script.loops.batch_loop(node)
    return loop.node if loop is not None else script.scopes.home(node)


def _is_repeated(script: Script, node: cst.CSTNode) -> bool:
    """Return whether every step of a training that goes over its data again runs a node."""
    place = _place(script, node)
    if not _in_every_pass(script, node, place):
        return False
    loop = script.loops.batch_loop(node)
    if loop is not None:
        return loop.role is Role.TRAIN_BATCH and _runs_again(script, loop)
    if not isinstance(place, cst.FunctionDef):
        return False
    rate = script.loops.rate(place)
    if rate is not None:
        return rate is Rate.STEP and _has_epochs(script, script.loops.owner(node))
    return any(script.answer(_is_repeated, call, False) for call in script.functions.callers(place))


def _has_epochs(script: Script, framework: str) -> bool:
    """Return whether no trainer of a framework is told to go over the data once."""
    return not any(
        each.is_literal(name, 1, 1.0)
        for each in script.program.trainings.arguments(*_FRAMEWORKS.get(framework, (framework,)))
        for name in ("max_epochs", "num_train_epochs")
    )


def _draws_latents(script: Script, call: cst.Call) -> bool:
    """Return whether a call's result is sampled from: `vae.encode(x).latent_dist.sample()`."""
    holder = script.tree.parent(call)
    return isinstance(holder, cst.Attribute) and holder.attr.value == "latent_dist"


def _runs_again(script: Script, loop: Loop) -> bool:
    """Return whether a loop over batches runs in several epochs."""
    for outer in script.loops.around(loop.node):
        if outer.role is Role.EPOCH:
            return not script.loops.runs_once(outer.node)
    if _is_renewed(script, loop):
        return True
    function = script.scopes.function(loop.node)
    return function is not None and script.loops.is_repeated(function)


def _is_renewed(script: Script, loop: Loop) -> bool:
    """Return whether a loop goes through its data again whenever it came to an end."""
    return any(
        script.calls.at(call).name == "builtins.iter"
        for handler in script.tree.within(loop.node.body, cst.ExceptHandler)
        for call in script.tree.within(handler, cst.Call)
    )


def _in_every_pass(script: Script, node: cst.CSTNode, place: cst.CSTNode) -> bool:
    """Return whether no condition decides if a pass of a loop, or a function, runs a node."""
    if script.loops.frequency(node) is not Frequency.EVERY_PASS:
        return False
    return not any(
        isinstance(outer, (cst.If, cst.IfExp)) and script.tree.inside(outer, place)
        for outer in script.tree.ancestors(node)
    )


def _is_frozen(script: Script, call: cst.Call, network: cst.BaseExpression) -> bool:
    """Return whether a network that was trained before computes the same at every call."""
    found = script.modules.unheld(network)
    if found is None or found.copied or not found.in_sight:
        return False
    if not found.frozen and script.values.gradients.grad(call) is not Grad.OFF:
        return False
    if not found.pretrained and not _is_loaded(script, network):
        return False
    if script.modules.modes.depends_on_mode(network) is False:
        return True
    return script.modules.modes.mode(call, network) is Mode.EVAL


def _is_loaded(script: Script, network: cst.BaseExpression) -> bool:
    """Return whether a state that was saved before is loaded into a network."""
    for site in script.calls.of_methods("load_state_dict"):
        owner = site.receiver
        if site.node.args and script.modules.same(owner, network):
            return True
    return False


def _gets_the_same(script: Script, call: cst.Call) -> bool:
    """Return whether a call gets what a loader yields, the same in every epoch."""
    given = [arg for arg in call.args if not script.values.value_of(arg.value).is_literal]
    return bool(given) and all(_is_the_same(script, arg) for arg in given)


def _is_the_same(script: Script, arg: cst.Arg) -> bool:
    """Return whether an argument is what a loader yields, the same in every epoch."""
    parts = _pieces(script, arg.value)
    if not parts:
        return _is_text(script, arg) and script.answer(_is_handed, arg.value, False)
    traits = (_traits(script, part) for part in parts)
    return all(
        _is_text(script, arg) if Trait.UNSEEN in each else Trait.RANDOM not in each
        for each in traits
    )


def _is_handed(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a piece of the batch that a framework gives a method."""
    inside = receiver_of(node, *_SAME, *_TAKES)
    if inside is None and isinstance(node, (cst.Attribute, cst.Subscript)):
        inside = node.value
    if inside is not None:
        return script.answer(_is_handed, inside, False)
    bindings = script.scopes.reaching(node)
    return bool(bindings) and all(_holds_batch(script, each) for each in bindings)


def _holds_batch(script: Script, binding: Binding) -> bool:
    if binding.how is How.PARAMETER:
        function = script.scopes.function(binding.node)
        rate = script.loops.rate(function) if function is not None else None
        return rate is Rate.STEP
    value = binding.value if binding.how in (How.ASSIGN, How.UNPACKED) else None
    return value is not None and script.answer(_is_handed, value, False)


def _pieces(script: Script, node: cst.BaseExpression) -> tuple[Part, ...]:
    """Return the pieces of batches that an expression is, moved or in another type."""
    parts = script.loaders.parts.of(node)
    if parts:
        return parts
    same = receiver_of(node, *_SAME)
    if same is not None:
        return script.answer(_pieces, same, _NONE)
    if isinstance(node, (cst.Attribute, cst.Subscript)):
        return script.answer(_pieces, node.value, _NONE)
    if isinstance(node, cst.Call) and tokenizer_of(script, node) is not None:
        return script.answer(_pieces, node.args[0].value, _NONE)
    if not isinstance(node, cst.Name):
        return ()
    found = [_bound(script, each) for each in script.scopes.reaching(node)]
    pieces = [script.answer(_pieces, each, _NONE) for bound in found for each in bound]
    whole = bool(pieces) and all(pieces) and all(found)
    return tuple(part for each in pieces for part in each) if whole else ()


def _bound(script: Script, binding: Binding) -> list[cst.BaseExpression]:
    """Return the expressions that a name is assigned, alone or in a row, or is given by calls."""
    value = binding.value
    if binding.parameter is not None:
        unseen = script.functions.given_unseen(binding.parameter)
        return [] if unseen else [*script.functions.given(binding.parameter)]
    if value is None:
        return []
    if binding.how is How.ASSIGN:
        return [value]
    if binding.how is How.UNPACKED and isinstance(value, cst.Tuple) and len(binding.path) == 1:
        return [each.value for each in value.elements[binding.path[0] :][:1]]
    return []


def _is_text(script: Script, arg: cst.Arg) -> bool:
    """Return whether an argument is named like the tokens of a text, or their mask."""
    named = arg.keyword.value if arg.keyword is not None else ""
    return not _TEXT.isdisjoint(script.names.words(f"{named} {script.code(arg.value)}"))


def _traits(script: Script, part: Part) -> set[Trait]:
    """Return the traits of a loader's dataset and of its collate function."""
    dataset, collate = part.loader.dataset, part.loader.expression("collate_fn")
    datasets = script.loaders.datasets
    if dataset is None:
        return {Trait.UNSEEN}
    if part.steps and isinstance(part.steps[0], str):
        return set(datasets.entry_traits(dataset, collate, part.steps[0]))
    found = set(part.loader.traits)
    return found | set(datasets.callable_traits(collate) if collate is not None else ())
