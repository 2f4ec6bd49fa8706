"""TL318: a compilation that compiles nothing of what the training runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from torchlint.api import Compilation, Finding, Fix, Rule, Script
from torchlint_rules.shared.directforwards import direct_forward

_DDP: Final = "torch.nn.parallel.DistributedDataParallel"
_RUN: Final = ("forward", "__call__")
_BECAUSE: Final = (
    "compiled code rounds differently and draws other dropout masks, and checkpoints get the "
    "prefix `_orig_mod.` before their keys"
)
_RUNS_COMPILED: Final = "compiled code, which was skipped until now, rounds differently"


class CompileWithoutEffect(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every compilation of which nothing runs."""
        for each in script.modules.compiled.all:
            if isinstance(each.node, cst.Decorator) or isinstance(each.subject, cst.FunctionDef):
                continue
            if each.in_place:
                yield from self._in_place(script, each.node, each.subject)
            else:
                yield from self._wrapped(script, each, each.node, each.subject)

    def _in_place(
        self, script: Script, call: cst.Call, network: cst.BaseExpression
    ) -> Iterator[Finding]:
        named = script.code(network)
        if script.modules.compiled.compiles_nothing(network):
            if _wraps(script, network):
                cure, fix = "compile the network before it is wrapped", None
            else:
                cure, fix = f"`{named} = torch.compile({named})` does", _wrap(script, call, network)
            what = "torch's own containers and layers stay as they are"
            message = f"`{named}.compile()` compiles nothing, because {what}: {cure}"
            yield Finding(self.code, script.span(call), message, fix)
            return
        for forward in script.calls.of_methods("forward"):
            direct = forward.receiver
            if _is_same(script, direct, network) and not script.values.call_extras.has(direct):
                what = f"the code that `{named}.compile()` compiles"
                yield direct_forward(script, self.code, forward.node, what, _RUNS_COMPILED)

    def _wrapped(
        self, script: Script, each: Compilation, call: cst.Call, network: cst.BaseExpression
    ) -> Iterator[Finding]:
        holder, named = script.tree.parent(call), script.code(network)
        message, fix = "", None
        if isinstance(holder, cst.Expr) and not _is_expected(script, call):
            message = (
                f"the result of `{script.tree.brief(call)}` is dropped, and `{named}` stays as it "
                f"is: assign it to `{named}`"
            )
            fix = _assign(script, call, network)
        elif _wraps(script, network) and script.modules.compiled.compiles_nothing(network):
            message = (
                f"`{script.tree.brief(call)}` compiles nothing, because torch's own containers and "
                "layers stay as they are under DistributedDataParallel: compile, then wrap"
            )
        elif isinstance(holder, cst.Assign) and len(holder.targets) == 1:
            target = holder.targets[0].target
            if isinstance(target, cst.Name):
                bound = script.scopes.stored(target)
                uses = script.scopes.readers(bound) if bound is not None else ()
                trainer = _keeper(script, call, network, target)
                if trainer is not None:
                    message = (
                        f"`{trainer}` keeps the network that it was given before, so it trains "
                        "what is not compiled: compile first, or set `torch_compile=True` in its "
                        "arguments"
                    )
                elif _is_left(script, call, target) and named == target.value:
                    message = (
                        f"nothing uses `{named}` after this: the training runs what is not compiled"
                    )
                elif not uses and _is_left(script, call, target):
                    message = (
                        f"nothing calls `{target.value}`, the compiled network, and `{named}` "
                        f"stays as it is: assign it to `{named}`"
                    )
                    fix = _renamed(script, target, network)
                else:
                    message = _run_by_method(script, each, target, uses)
        if message:
            yield Finding(self.code, script.span(call), message, fix)
        for caller in _dropping(script, call):
            given = f"`{script.tree.brief(caller)}`"
            message = f"{given} returns a compiled object, which is dropped: use what it returns"
            yield Finding(self.code, script.span(caller), message)


def _wraps(script: Script, network: cst.BaseExpression) -> bool:
    """Return whether a network is known to be wrapped in DistributedDataParallel."""
    made = script.values.value_of(network).node
    return isinstance(made, cst.Call) and script.name(made.func) == _DDP


def _is_same(script: Script, one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
    """Return whether two expressions certainly are one network."""
    if script.code(one) != script.code(other) or not isinstance(one, (cst.Name, cst.Attribute)):
        return False
    roots = script.modules.roots(one)
    return None not in roots and roots == script.modules.roots(other)


def _is_expected(script: Script, call: cst.Call) -> bool:
    """Return whether a `with` expects that compiling fails or warns."""
    return any(
        "raises" in script.code(item.item) or "warns" in script.code(item.item)
        for outer in script.tree.ancestors(call)
        if isinstance(outer, cst.With)
        for item in outer.items
    )


# -- uses of what is compiled ---------------------------------------------------


def _dropping(script: Script, call: cst.Call) -> Iterator[cst.Call]:
    """Yield the calls that drop what the function around a compilation returns: its result.

    The result of one that keeps it as well (`self.net = net`) may be dropped.
    """
    function = script.scopes.function(call)
    returned = script.functions.returns(function) if function is not None else []
    if function is None or not any(_is_result(script, each, call) for each in returned):
        return
    if any(_is_other_result(script, each, call) for each in returned):
        return
    if any(
        isinstance(each.targets[0].target, cst.Attribute) and _is_result(script, each.value, call)
        for each in script.functions.own(function, cst.Assign)
    ):
        return
    for caller in script.functions.callers(function):
        if isinstance(script.tree.parent(caller), cst.Expr) and not _is_expected(script, caller):
            yield caller


def _is_other_result(script: Script, node: cst.BaseExpression, call: cst.Call) -> bool:
    """Return whether a name may hold what another call returns, after changing an object itself."""
    bindings = script.scopes.reaching(node)
    return any(isinstance(each.value, cst.Call) and each.value is not call for each in bindings)


def _is_result(script: Script, value: cst.BaseExpression, call: cst.Call) -> bool:
    """Return whether a value can be what a compilation returns."""
    if isinstance(value, cst.IfExp):
        return any(_is_result(script, each, call) for each in (value.body, value.orelse))
    if isinstance(value, cst.Name):
        return any(each.value is call for each in script.scopes.reaching(value))
    return value is call


def _keeper(
    script: Script, call: cst.Call, network: cst.BaseExpression, target: cst.Name
) -> str | None:
    """Return the trainer that got a network before it is compiled, and runs after that.

    There is none if the function itself calls the compiled network, or hands it on.
    """
    home, at = script.scopes.home(call), script.tree.order(call)
    for trainer in script.program.trainings.trainers("transformers", "trl"):
        given, line = trainer.given("model"), script.tree.parent(trainer.call)
        if (
            given is None
            or not isinstance(line, cst.Assign)
            or not _is_same(script, given, network)
        ):
            continue
        if script.scopes.home(trainer.call) is not home or script.tree.order(trainer.call) > at:
            continue
        named = script.code(line.targets[0].target)
        runs = any(
            script.code(site.receiver) == named and script.tree.order(site.node) > at
            for site in script.calls.of_methods("train")
        )
        used = map(script.tree.parent, _uses_after(script, call, target))
        if runs and all(isinstance(each, cst.Attribute) for each in used):
            return named
    return None


def _uses_after(script: Script, call: cst.Call, target: cst.Name) -> Iterator[cst.Name]:
    """Yield the uses of a name that follow its binding to what a call returns, in its function."""
    home, at = script.scopes.home(call), script.tree.order(call)
    for each in script.tree.spelled(target.value):
        if script.tree.order(each) > at and not script.tree.inside(each, call):
            if script.scopes.home(each) is home:
                yield each


def _is_left(script: Script, call: cst.Call, target: cst.Name) -> bool:
    """Return whether a training function never reads the name that it gives a compiled network."""
    home = script.scopes.function(call)
    if home is None or target.value in script.scopes.scope(target).outward:
        return False
    run = script.functions.reached(home)
    if not any(script.scopes.home(each.backward) in run for each in script.loops.steps.all):
        return False
    read = (each for each in script.tree.spelled(target.value) if script.scopes.reads(each))
    return all(
        script.tree.inside(each, call) or not script.tree.inside(each, home) for each in read
    )


def _run_by_method(
    script: Script, each: Compilation, target: cst.Name, uses: Sequence[cst.Name]
) -> str:
    """Return the message if the loop only calls another method than `forward`, else nothing."""
    classes = script.modules.compiled.classes(each)
    called: dict[str, cst.Call] = {}
    for use in uses:
        holder = script.tree.parent(use)
        if not isinstance(holder, cst.Attribute) or holder.attr.value in _RUN:
            return ""
        call = script.tree.parent(holder)
        if isinstance(call, cst.Call) and call.func is holder and script.loops.each_step(call):
            called[holder.attr.value] = call
    for name, call in called.items():
        methods = [script.functions.method(owner, name) for owner in classes]
        if not methods or None in methods or _has_own(script, each, name):
            continue
        inside = f"`{target.value}.{name} = torch.compile({target.value}.{name})` compiles it"
        return (
            f"`{script.tree.brief(call)}` runs in every step, and the result of `torch.compile` "
            f"compiles only the call of `{target.value}` itself: {inside}"
        )
    return ""


def _has_own(script: Script, each: Compilation, name: str) -> bool:
    """Return whether a method of the network is compiled by itself."""
    return any(
        frame.function.name.value == name and frame.compilation is not each
        for frame in script.modules.compiled.frames
    )


# -- fixes ------------------------------------------------------------------------


def _assign(script: Script, call: cst.Call, network: cst.BaseExpression) -> Fix | None:
    """Assign the result of a compilation to what was compiled."""
    if not _may_bind(script, call, network):
        return None
    edits = script.edits.insert(script.span(call).start, f"{script.code(network)} = ")
    return Fix.unsafe("Assign the compiled network", edits, because=_BECAUSE)


def _wrap(script: Script, call: cst.Call, network: cst.BaseExpression) -> Fix | None:
    """Replace `net.compile(…)` by `net = torch.compile(net, …)`."""
    line = script.tree.parent(call)
    if not isinstance(line, cst.Expr) or not _may_bind(script, call, network):
        return None
    imported = script.edits.importing("torch", at=call)
    if (
        imported is None
        or "#" in script.tree.source.text[script.span(call).start : script.span(call).end]
    ):
        return None
    named = script.code(network)
    given = ", ".join([named, *(script.code(arg) for arg in call.args)])
    edits = script.edits.replace(line, f"{named} = {imported[0]}.compile({given})")
    return Fix.unsafe("Compile with torch.compile", edits, imported[1], because=_BECAUSE)


def _renamed(script: Script, target: cst.Name, network: cst.BaseExpression) -> Fix | None:
    """Assign the compiled network to the name that the loop calls."""
    if target.value in script.scopes.scope(target).outward:
        return None
    if not _may_bind(script, target, network):
        return None
    edits = script.edits.replace(target, script.code(network))
    return Fix.unsafe("Assign it to the name that is called", edits, because=_BECAUSE)


def _may_bind(script: Script, at: cst.CSTNode, network: cst.BaseExpression) -> bool:
    """Return whether a network can be set here, and is used here afterwards."""
    if any(True for _ in script.loops.around(at)):
        return False
    text, after = script.code(network), script.tree.order(at)
    if isinstance(network, cst.Name):
        scope = script.scopes.scope(at)
        if script.scopes.lookup(text, scope) is not scope:
            return False
        region = script.scopes.region(at)
        return any(
            name.value == text and script.tree.order(name) > after
            for name in script.tree.within(region, cst.Name)
            if name is not network
        )
    return isinstance(network, cst.Attribute) and text.startswith("self.")
