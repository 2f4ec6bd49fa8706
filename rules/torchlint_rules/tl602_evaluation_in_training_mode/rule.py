"""TL602: an evaluation with dropout and batch norm in training mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    CallSite,
    Edit,
    Edits,
    Evaluation,
    Finding,
    Fix,
    FlaggedEvaluation,
    Grad,
    How,
    Mode,
    Role,
    Rule,
    Script,
    Span,
    last_word,
)
from torchlint_rules.shared.cuda import runs
from torchlint_rules.shared.grouping import joined
from torchlint_rules.shared.nograd import place_of
from torchlint_rules.shared.wording import quoted
from torchlint_rules.tl602_evaluation_in_training_mode.dropouts import (
    FUNCTIONAL,
    dropouts,
    functional,
    passing,
)
from torchlint_rules.tl602_evaluation_in_training_mode.predictions import predictions
from torchlint_rules.tl602_evaluation_in_training_mode.teachers import teachers

DELIBERATE: Final = frozenset(
    "mc mcdropout montecarlo dropout bayes bayesian uncertainty stochastic bn swa adapt "
    "adaptation calibrate calibration recalibrate temperature tent generator discriminator "
    "gan netg netd".split()
)
BECAUSE: Final = "the measured numbers change: dropout off, batch norm by its running statistics"


class EvaluationInTrainingMode(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every evaluation of a network in training mode if the mode matters to it."""
        for evaluations, networks in _in_training(script):
            names = [script.code(network) for network in networks]
            told = all(script.modules.modes.depends_on_mode(network) for network in networks)
            message = (
                f"{quoted(names)} {'is' if len(names) == 1 else 'are'} evaluated in training "
                f"mode: {'' if told else 'any '}dropout and batch norm make the score depend on "
                f"chance; call {quoted([f'{name}.eval()' for name in names])} first"
            )
            place = place_of(script, evaluations[0])
            named = _named_alone(script, evaluations[0], names)
            if named is None:
                edits = _fix(script, evaluations, names)
            else:
                place = script.span(named)
                edits = (Edit(Span(place.end, place.end), "()"),)
                message += f", as `{script.code(named)}` without parentheses calls nothing"
            fix = Fix.unsafe("Switch to evaluation mode", edits, because=BECAUSE) if edits else None
            yield Finding(self.code, place, message, fix)
        yield from self._by_flags(script)
        yield from self._predicting(script)
        yield from self._teaching(script)
        yield from joined(script, self._dropping(script), ("call", "calls"))

    def _dropping(self, script: Script) -> Iterator[tuple[cst.CSTNode, Finding]]:
        """Yield the functional dropouts that go on in evaluation mode, with their classes."""
        for each in dropouts(script):
            message = (
                f"`{script.tree.brief(each.node)}` drops after `eval()`, too, since nothing asks "
                f"for the mode: pass `{each.cure}`"
            )
            title = f"Pass `{each.cure}`"
            fix = Fix.unsafe(title, each.edits, because="evaluation no longer drops anything")
            yield each.owner, Finding(self.code, script.span(each.node), message, fix)

        for owner, site in passing(script):
            yield owner, self._passing(script, site)

    def _teaching(self, script: Script) -> Iterator[Finding]:
        """Yield the findings for networks that a step only reads, in training mode."""
        for call, network in teachers(script):
            name = script.code(network)
            message = (
                f"`{name}` never learns, but runs in training mode: dropout and the statistics of "
                f"each batch change what it gives; call `{name}.eval()` before the training"
            )
            yield Finding(self.code, script.span(call), message)

    def _passing(self, script: Script, site: CallSite) -> Finding:
        """Return the finding for a layer that a network makes in each call."""
        what, place = script.tree.brief(site.node), script.span(site.node)
        message = f"each call makes a new `{what}`, so `eval()` never reaches it"
        if last_word(site.node.func) not in FUNCTIONAL:
            message += " and its weights never learn: make it in `__init__`"
            return Finding(self.code, place, message)
        edits = functional(script, site)
        message += ": it drops in evaluation, too"
        because = "evaluation no longer drops anything"
        fix = Fix.unsafe("Drop while training", edits, because=because) if edits else None
        return Finding(self.code, place, message, fix)

    def _by_flags(self, script: Script) -> Iterator[Finding]:
        """Yield the findings for loops that train or evaluate, as a flag says."""
        seen: set[int] = set()
        for each in script.evaluations.flagged.all:
            if id(each.region) in seen or not script.tree.is_own(each.place):
                continue
            if not (names := _never_in_eval(script, each)):
                continue
            seen.add(id(each.region))
            cures = quoted([f"{name}.eval()" for name in names])
            outcome = str(not each.branch.outcome).lower()
            message = (
                f"{quoted(names)} {'is' if len(names) == 1 else 'are'} evaluated in training "
                f"mode where `{script.code(each.branch.test)}` is {outcome}: dropout and batch "
                f"norm make the score depend on chance; call {cures} there"
            )
            place = each.place
            span = script.tree.header(place) if isinstance(place, (cst.For, cst.While)) else None
            yield Finding(self.code, span or script.span(place), message)

    def _predicting(self, script: Script) -> Iterator[Finding]:
        """Yield the findings for scripts that only apply a network, as its class made it."""
        loads = script.program.purpose.intent.loads_weights
        when = "after its weights are loaded" if loads else "first"
        for call, network in predictions(script):
            name = script.code(network)
            if not DELIBERATE.isdisjoint(script.names.words(name)):
                continue
            message = (
                f"`{name}` predicts in training mode: dropout and batch norm make its output "
                f"depend on chance; call `{name}.eval()` {when}"
            )
            yield Finding(self.code, script.span(call), message)


def _named_alone(script: Script, evaluation: Evaluation, names: list[str]) -> cst.Attribute | None:
    """Return the line before an evaluation of one network that names its `eval` without a call."""
    start = script.tree.order(evaluation.start)
    named = (
        each
        for each in script.functions.uncalled("eval", evaluation.start)
        if script.tree.order(each) < start and names == [script.code(each.value)]
    )
    return next(named, None)


def _in_training(script: Script) -> Iterator[tuple[list[Evaluation], list[cst.BaseExpression]]]:
    """Yield networks in training mode with everything that one function evaluates of them."""
    found: dict[tuple[int | str, ...], tuple[list[Evaluation], list[cst.BaseExpression]]] = {}
    for evaluation in script.evaluations.in_file:
        is_only_sized = script.evaluations.unread.is_only_sized
        if not evaluation.by_name or all(is_only_sized(each.call) for each in evaluation.forwards):
            continue
        networks = [
            network
            for network in _networks(script, evaluation)
            if script.code(network) != "self"  # whoever calls the method sets the mode
            and _is_measured_in_training(script, evaluation, network)
        ]
        if not networks or _only_repeats(script, evaluation):
            continue
        if script.evaluations.contains_word(
            evaluation, DELIBERATE
        ) or script.evaluations.needs_gradients(evaluation.body):
            continue
        names = [script.code(network) for network in networks]
        place = evaluation.function or evaluation.node
        found.setdefault((id(place), *names), ([], networks))[0].append(evaluation)
    yield from found.values()


def _only_repeats(script: Script, evaluation: Evaluation) -> bool:
    """Return whether a loop only runs networks in functions that are evaluations themselves."""
    own = {id(each.function) for each in script.evaluations.all if each.function is not None}
    homes = [script.scopes.function(each.call) for each in evaluation.forwards]
    return all(home is not evaluation.function and id(home) in own for home in homes)


def _never_in_eval(script: Script, evaluation: FlaggedEvaluation) -> list[str]:
    """Return the networks of an evaluation that heed their mode and never leave training."""
    found: dict[str, None] = {}
    region = evaluation.region
    for call in script.evaluations.flagged.forwards(region, evaluation.branch):
        network = script.loops.module_call(call)
        if network is None or not DELIBERATE.isdisjoint(script.names.words(script.code(network))):
            continue
        place = call if isinstance(region, cst.FunctionDef) else region
        if script.modules.modes.mode(place, network) not in (Mode.TRAIN, Mode.HIDDEN):
            continue
        if script.modules.modes.depends_on_mode(
            network
        ) and not script.modules.modes.is_switched_to_eval(network):
            found[script.code(network)] = None
    return list(found)


def _networks(script: Script, evaluation: Evaluation) -> list[cst.BaseExpression]:
    """Return the networks of an evaluation, and those that its function runs outside the loop."""
    found = {script.code(network): network for network in evaluation.networks}
    function = evaluation.function
    if function is not None and evaluation.by_function:
        around: dict[str, cst.BaseExpression] = {}
        for call in script.tree.within(function.body, cst.Call):
            network = script.loops.module_call(call)
            if network is not None and script.scopes.function(call) is function:
                around.setdefault(script.code(network), network)
        if not around.keys() <= found.keys() and script.evaluations.only_measures(function.body):
            found = {**around, **found}
    return sorted(found.values(), key=lambda network: script.span(network).start)


def _is_measured_in_training(
    script: Script, evaluation: Evaluation, network: cst.BaseExpression
) -> bool:
    place, modes = evaluation.start, script.modules.modes
    mode, heeds = modes.mode(place, network), modes.depends_on_mode(network)
    if mode not in (Mode.TRAIN, Mode.HIDDEN) or heeds is False:
        return False
    steps = script.loops.steps.all
    if mode is Mode.HIDDEN and not any(runs(script, step, network) for step in steps):
        return False  # who passes the network sets its mode
    if heeds is None and modes.is_configured(network):
        return False
    if (mode is Mode.HIDDEN or heeds is None) and modes.is_switched_to_eval(network):
        return False
    if any(switch.mode is Mode.EVAL for switch in modes.switches(evaluation.body)):
        return False
    if _is_set_in_parts(script, place, network):
        return False
    return _only_scores(evaluation) or not _is_meant(script, place, network)


def _only_scores(evaluation: Evaluation) -> bool:
    """Return whether a function, by its name a test, only predicts: no loss comes from a network.

    Detection networks give their losses in training mode, for images and targets.
    """
    return evaluation.by_function and all(
        each.records is Grad.OFF and len(each.call.args) == 1 for each in evaluation.forwards
    )


def _is_set_in_parts(script: Script, place: cst.CSTNode, network: cst.BaseExpression) -> bool:
    """Return whether parts of the network are put into evaluation mode one by one before."""
    named = f"{script.code(network)}."
    return any(
        switch.mode is Mode.EVAL
        and switch.network is not None
        and script.code(switch.network).startswith(named)
        and script.span(switch.call).start < script.span(place).start
        for switch in script.modules.modes.switches(script.scopes.region(place))
    )


def _is_meant(script: Script, place: cst.CSTNode, network: cst.BaseExpression) -> bool:
    """Return whether `train()` before the evaluation is deliberate: nothing trains in between."""
    last = script.modules.modes.last_switch(place, network)
    if last is None or last.mode is not Mode.TRAIN or last.network is None:
        return False
    between = range(script.span(last.call).end, script.span(place).start)
    return not any(
        script.span(loop.node).start in between
        for loop in script.loops.of(Role.TRAIN_BATCH, Role.EPOCH)
    )


# -- the fix --------------------------------------------------------------------------


def _fix(script: Script, evaluations: list[Evaluation], names: list[str]) -> Edits | None:
    loops = [each.node for each in evaluations if not isinstance(each.node, cst.FunctionDef)]
    parts = (part for name in names for part in name.split("."))
    if len(loops) < len(evaluations) or not all(map(str.isidentifier, parts)):
        return None
    statements = [_outermost(script, loop) for loop in loops]
    if not all(script.edits.stands_alone(statement) for statement in statements):
        return None
    for each in evaluations:
        if any(_is_meant(script, each.node, network) for network in each.networks):
            return None
    first, trains = evaluations[0], script.loops.of(Role.TRAIN_BATCH)
    if not trains and first.function is not None:
        # What trains, if anything does, is out of sight, and so is whether it calls train().
        return None
    put_back = not all(
        _is_renewed(script, each, loop.node) for each in evaluations for loop in trains
    )
    if put_back and any(True for loop in loops for _ in script.tree.within(loop, cst.Return)):
        return None
    lines = [f"{name}.eval()" for name in names]
    whole = len(loops) == 1 or not put_back
    head = _at_head(script, first, names, lines) if whole else None
    edits: Edits = head or ()
    for index, statement in enumerate(statements):
        if not head and (put_back or not _is_reached_from(script, statement, statements[:index])):
            edits = (*edits, *script.edits.before(statement, *lines))
        if put_back:
            back = script.edits.after(statement, *(f"{name}.train()" for name in names))
            edits = (*edits, *back)
    return edits


def _is_reached_from(script: Script, statement: cst.CSTNode, earlier: list[cst.CSTNode]) -> bool:
    """Return whether one of the earlier statements runs before this one on every path."""
    blocks = [script.tree.parent(each) for each in earlier]
    return any(
        block is not None and script.span(statement) in script.span(block) for block in blocks
    )


def _at_head(
    script: Script, evaluation: Evaluation, names: list[str], lines: list[str]
) -> Edits | None:
    """Insert lines at the start of a function that only evaluates networks from outside."""
    function = evaluation.function
    if function is None or not script.evaluations.only_measures(function.body):
        return None
    bound = script.scopes.scope_at(function).bindings
    for name in names:
        bindings = [*bound.get(name, []), *bound.get(name.partition(".")[0], [])]
        if any(binding.how is not How.PARAMETER for binding in bindings):
            return None
    return script.edits.first_in(function.body, *lines)


def _outermost(script: Script, loop: cst.CSTNode) -> cst.CSTNode:
    """Return the `with torch.no_grad():` that only holds a loop, else the loop."""
    block = script.tree.parent(loop)
    holder = script.tree.parent(block) if isinstance(block, cst.IndentedBlock) else None
    if (
        isinstance(holder, cst.With)
        and script.values.gradients.mode(holder.items[0].item) is Grad.OFF
    ):
        return holder
    return loop


def _is_renewed(script: Script, evaluation: Evaluation, training: cst.CSTNode) -> bool:
    """Return whether `train()` is called before each run of a later training loop."""
    if any(loop.node is training for loop in script.loops.around(evaluation.node)):
        return False
    function = script.scopes.function(training)
    last = script.modules.modes.last_switch(training, None)
    if last is None or last.mode is not Mode.TRAIN or last.network is None:
        return False
    around = [loop.node for loop in script.loops.around(training)]
    if function is evaluation.function:
        here = [loop.node for loop in script.loops.around(evaluation.node)]
        shared = next((loop for loop in around if loop in here), None)
        return shared is None or script.span(last.call) in script.span(shared)
    return not around or script.span(last.call) in script.span(around[-1])
