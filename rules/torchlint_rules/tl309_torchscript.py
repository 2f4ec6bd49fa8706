"""TL309: networks and functions that run as TorchScript in training."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Finding, Kind, Note, Rule, Script, method_of

_SCRIPT: Final = ("torch.jit.script", "torch.jit._script.script")
_TRACE: Final = ("torch.jit.trace", "torch.jit._trace.trace")
_MODULES: Final = frozenset({
    "torch.jit.ScriptModule", "torch.jit._script.ScriptModule", "torch.ScriptModule",
})  # fmt: skip
_EXPORT: Final = re.compile(
    r"torch\.jit\.(?:\w+\.)*(?:save|freeze|optimize_for_inference)|torch\.onnx\.\w+|"
    r"(?:\w+\.)*optimize_for_mobile|(?:torch_tensorrt|coremltools|onnx\w*)\..*"
)
"""The functions that take a network out of the program."""
_SAVES: Final = ("save", "_save_for_lite_interpreter")
_MARKS: Final = re.compile(
    r"torch\.jit\.(?:\w+\.)*(?:ignore|unused|export|interface|is_scripting)|"
    r"torch\._jit_internal\.(?:ignore|unused|export)"
)
"""What code says that runs in and out of TorchScript."""
_ELSEWHERE: Final = frozenset(
    "export convert deploy trace infer inference predict test benchmark serve graph save".split()
)
Code = frozenset[cst.CSTNode | None]
_WAYS: Final = frozenset("jit torchscript script scripted".split())
_FATE: Final = "TorchScript, which is deprecated and not supported on Python 3.14"


class Torchscript(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the TorchScript that training runs."""
        yield from _joined(self._decorated(script))
        trains = bool(script.loops.steps.all) or any(
            True for _ in script.calls.of_methods("parameters")
        )
        yield from _joined(self._derived(script) if trains else ())
        for site in script.calls.of(*_SCRIPT, *_TRACE):
            yield from self._called(script, site)

    def _decorated(self, script: Script) -> Iterator[Finding]:
        for mark in script.tree.all(cst.Decorator):
            function = script.tree.parent(mark)
            if isinstance(function, cst.FunctionDef) and script.name(mark.decorator) in _SCRIPT:
                trained = script.modules.reach.is_trained(function.body)
                if trained and not (_is_test(script, mark) or _is_used_elsewhere(script, function)):
                    yield self._function(script, mark, function.name.value)

    def _derived(self, script: Script) -> Iterator[Finding]:
        for owner in script.tree.all(cst.ClassDef):
            for base in owner.bases:
                if script.name(base.value) in _MODULES and not _is_used_elsewhere(script, owner):
                    message = (
                        f"`{owner.name.value}` is {_FATE}: derive from `nn.Module`, "
                        f"and {self._advice(script, 'the network')}"
                    )
                    yield Finding(self.code, script.span(base.value), message)

    def _called(self, script: Script, site: CallSite) -> Iterator[Finding]:
        given = site.given("func" if site.name in _TRACE else "obj", 0)
        if given is None or _is_test(script, site.node) or _leaves(script, site.node):
            return
        what = script.functions.definition(given.value)
        if isinstance(what, cst.FunctionDef):
            if script.modules.reach.has_training and not _is_used_elsewhere(script, what):
                yield self._function(script, site.node, what.name.value)
        elif (
            what is None
            and _is_trained(script, site.node, given.value)
            and not _is_used_elsewhere(script, given.value)
        ):
            named = script.code(given.value)
            whole = f"`{named}` runs as {_FATE}: {self._advice(script, named)}"
            yield Finding(self.code, script.span(site.node), whole)

    def _function(self, script: Script, node: cst.CSTNode, name: str) -> Finding:
        message = (
            f"`{name}` runs as {_FATE}: `torch.compile` fuses it too, and its backward pass with it"
        )
        return Finding(self.code, script.span(node), message)

    def _advice(self, script: Script, named: str) -> str:
        """Return the advice for compiling a network with the version of torch in use."""
        if not re.fullmatch(r"[\w.]+", named):
            named = "model"
        if script.program.target.has((2, 2)):
            return f"call `{named}.compile()`, which keeps the keys of checkpoints"
        return f"call `torch.compile({named})` and save the `state_dict` of what it wraps"


def _joined(found: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the first finding, with the places of the others as its notes."""
    places = list(found)
    for first in places[:1]:
        notes = tuple(Note(each.span, "TorchScript as well") for each in places[1:])
        yield replace(first, notes=notes)


def _is_used_elsewhere(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a network, a class or a function may be exported, or compiled as well.

    So it is if code says what TorchScript is not to see of it.
    """
    compiled = (each.subject for each in script.modules.compiled.all)
    ours = _code(script, node)
    if any(_may_hold(script, each, node, ours) for each in (*compiled, *script.once(_exported))):
        return True
    may_be_in, marked = script.modules.making.may_be_in, script.once(_marked)
    return any(may_be_in(each, ours) or may_be_in(node, frozenset({each})) for each in marked)


def _may_hold(script: Script, outer: cst.CSTNode, node: cst.CSTNode, code: Code) -> bool:
    """Return whether what is exported or compiled may be a thing, or run it."""
    if isinstance(outer, cst.BaseExpression) and isinstance(node, cst.BaseExpression):
        return script.modules.may_touch(outer, node)
    theirs = _code(script, outer)
    return any(each is None or script.modules.making.may_be_in(each, theirs) for each in code)


def _code(script: Script, node: cst.CSTNode) -> Code:
    """Return the code that makes a network, or that is a function or a class."""
    if not isinstance(node, cst.BaseExpression):
        return frozenset({node})
    made = script.functions.definition(node)
    roots = () if made is not None else script.modules.roots(node)
    return frozenset({made}) if made is not None else script.modules.making.code(roots)


def _exported(script: Script) -> tuple[cst.BaseExpression, ...]:
    """Return what is saved, or handed to functions that export it."""
    sites = script.calls.of(*filter(_EXPORT.fullmatch, script.calls.called))
    handed = (site.node.args[0].value for site in sites if site.node.args)
    saving = (site.receiver for site in script.calls.of_methods(*_SAVES) if site.name is None)
    saved = (each for each in saving if script.kind(each) is Kind.MODULE)
    return (*handed, *saved)


def _marked(script: Script) -> tuple[cst.CSTNode, ...]:
    """Return the definitions around what tells TorchScript from other runs."""
    named = (*script.tree.all(cst.Attribute), *script.tree.all(cst.Name))
    marks = (each for each in named if _MARKS.fullmatch(script.name(each) or ""))
    return tuple(
        outer
        for mark in marks
        for outer in script.tree.ancestors(mark)
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef))
    )


def _is_test(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a node is in a function that tests, exports or shows something."""
    return any(
        isinstance(outer, cst.FunctionDef)
        and not _ELSEWHERE.isdisjoint(script.names.words(outer.name.value))
        for outer in script.tree.ancestors(node)
        if script.tree.parent(node) is not outer
    )


def _leaves(script: Script, call: cst.Call) -> bool:
    """Return whether the result of a call is saved or passed on at once."""
    holder = script.tree.parent(call)
    if isinstance(holder, cst.Arg):
        return True
    if isinstance(holder, cst.Attribute):
        return holder.attr.value == "save"
    if not isinstance(holder, cst.Assign):
        return False
    names = {script.code(each.target) for each in holder.targets}
    return any(script.code(saved.receiver) in names for saved in script.calls.of_methods("save"))


def _is_trained(script: Script, call: cst.Call, given: cst.BaseExpression) -> bool:
    """Return whether a network is trained by the file, or part of such a network."""
    if method_of(given) == "eval":
        return False
    function = script.scopes.function(call)
    if function is not None and not _WAYS.isdisjoint(script.names.words(function.name.value)):
        if not script.functions.callers(function):
            return False
    owner = script.scopes.class_of(function) if function is not None else None
    if owner is not None and "torch.nn.Module" in script.functions.bases(owner):
        return True
    steps = [step.backward for step in script.loops.steps.all]
    beside = [step for step in steps if script.scopes.home(step) is script.scopes.home(call)]
    if not beside:
        return bool(steps)
    return any(script.tree.order(call) < script.tree.order(step) for step in beside)
