"""TL104: a loader that every epoch rebuilds."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import (
    CALLERS,
    Edits,
    Finding,
    Fix,
    Frequency,
    Invariance,
    Loader,
    Loop,
    Role,
    Rule,
    Script,
    State,
)
from torchlint_rules.shared.rebuilding import is_rare, ways


class LoaderBuiltInLoop(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loader that an epoch loop builds again from the same arguments."""
        loaders = list(script.tree.in_file(script.loaders))
        epochs = _epoch_loops(script) if loaders else []
        for loader in loaders:
            found = _remade(script, loader, epochs)
            if found is None:
                continue
            loop, runs, invariance = found
            if runs:
                function = script.scopes.function(loader.node)
                assert function is not None
                message = (
                    f"each epoch rebuilds {loader.label} in `{function.name.value}()`; make it "
                    "once before the epochs and pass it in"
                )
            elif invariance is Invariance.REMADE:
                message = (
                    f"each epoch rebuilds {loader.label} and what it reads from; make them once"
                )
            else:
                message = f"each epoch rebuilds {loader.label}; make it once before the loop"
            fixable = not runs and invariance is Invariance.INVARIANT
            fix = _fix(script, loader, loop) if fixable else None
            small = loader.has_no_workers and invariance is Invariance.INVARIANT
            at = script.span(loader.node)
            yield Finding(self.code, at, message, fix, impact="low" if small else None)
        yield from self._iterators(script)

    def _iterators(self, script: Script) -> Iterator[Finding]:
        """Yield the iterators of which each training step draws one batch."""
        for outer, given in _draws(script):
            loop = next(script.loops.around(outer), None)
            if loop is not None and loop.role is not Role.TRAIN_BATCH:
                continue
            if not script.loops.is_in_loop(outer, Role.TRAIN_BATCH):
                continue
            if script.loops.frequency(outer) is not Frequency.EVERY_PASS:
                continue
            built = script.loaders.made_by(given)
            remade = (script.loops.is_in_loop(each.node, Role.TRAIN_BATCH) for each in built)
            if not built or any(remade):
                continue
            shown = script.code(given)
            message = (
                f"each step starts a new pass over `{shown}` and draws one batch of it, which "
                "orders all items, and starts all workers, again; make the iterator once before "
                "the loop and draw from it"
            )
            at = script.tree.header(outer) if isinstance(outer, cst.For) else script.span(outer)
            yield Finding(self.code, at, message)


def _draws(script: Script) -> Iterator[tuple[cst.Call | cst.For, cst.BaseExpression]]:
    """Yield what starts a pass and takes a batch or two of it, and what it goes through."""
    for call in script.tree.in_file(script.calls.of("builtins.iter")):
        outer = script.tree.parent(script.tree.parent(call.node))
        drawn = isinstance(outer, cst.Call) and script.name(outer.func) == "builtins.next"
        if isinstance(outer, cst.Call) and drawn and len(call.node.args) == 1:
            yield outer, call.node.args[0].value
    for loop in filter(script.loaders.short.takes_one, script.tree.own(cst.For)):
        yield loop, loop.iter


def _epoch_loops(script: Script) -> list[Loop]:
    """Return the loops that train on all batches in each iteration, or count epochs by name."""
    named = {
        id(outer.node): outer
        for batches in script.loops.of(Role.TRAIN_BATCH, Role.EVAL_BATCH)
        for outer in script.loops.around(batches.node)
        if not outer.is_batch and _counts_epochs(outer)
    }
    found = {
        id(loop.node): loop
        for batches in script.loops.of(Role.TRAIN_BATCH)
        if (loop := script.program.epoch_loop(batches)) is not None and not loop.is_batch
    }
    return list({**named, **found}.values())


def _counts_epochs(loop: Loop) -> bool:
    target = loop.node.target if isinstance(loop.node, cst.For) else None
    return isinstance(target, cst.Name) and "epoch" in target.value.lower()


def _remade(
    script: Script, loader: Loader, epochs: list[Loop]
) -> tuple[Loop, tuple[cst.Call, ...], Invariance] | None:
    """Return the epoch loop that rebuilds a loader, and the calls that lead to it."""
    for loop, runs in ways(script, loader.node, CALLERS):
        place = runs[0] if runs else loader.node
        end = _end_of_pass(script, place, loop)
        if (loop not in epochs and end is None) or is_rare(script, end or place, loop):
            continue
        found = min(
            (script.loops.invariances.of(arg.value, loop.node, runs) for arg in loader.node.args),
            default=Invariance.CHANGING,
        )
        if found is not Invariance.CHANGING:
            return loop, runs, found
    return None


def _end_of_pass(script: Script, node: cst.CSTNode, loop: Loop) -> cst.CSTNode | None:
    """Return the `try` around a node that a training loop runs when it has drawn all batches."""
    return next(
        (
            script.tree.parent(outer)
            for outer in script.tree.ancestors(node)
            if isinstance(outer, cst.ExceptHandler)
            and outer.type is not None
            and script.name(outer.type) == "builtins.StopIteration"
            and loop.role is Role.TRAIN_BATCH
        ),
        None,
    )


# -- the fix ------------------------------------------------------------------


def _fix(script: Script, loader: Loader, loop: Loop) -> Fix | None:
    edits = _hoisted(script, loader, loop)
    if edits is None:
        return None
    title, because = "Make the loader once, before the loop", ""
    persistent, generator = loader.argument("persistent_workers"), loader.given("generator")
    if persistent.state is not State.ABSENT and not persistent.equals(False):
        because = "workers that live on shuffle differently from the second epoch on"
    elif generator is not None and isinstance(generator.value, cst.Call):
        because = "each epoch shuffled alike, since it seeded the generator again"
    elif loader.escapes:
        because = (
            "code that is not visible here gets the loader, and what it changes on it would stay"
        )
    return Fix.unsafe(title, edits, because=because) if because else Fix.exact(title, edits)


def _hoisted(script: Script, loader: Loader, loop: Loop) -> Edits | None:
    """Return the edits that move the construction of a loader before a loop."""
    statement = script.tree.statement(loader.node)
    if script.tree.parent(statement) is not loop.node.body:
        return None
    if isinstance(statement, cst.For) and statement.iter is loader.node:
        alone = script.edits.stands_alone(loop.node)
        return script.edits.named_before(loader.node, "loader", loop.node) if alone else None
    small = script.tree.smallest_statement(loader.node)
    if not isinstance(small, cst.Assign):
        return None
    if script.loops.invariances.of(small.value, loop.node) is not Invariance.INVARIANT:
        return None
    return script.edits.hoisted(small.value, loop.node)
