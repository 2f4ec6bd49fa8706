"""TL309: networks and functions that run as TorchScript in training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Finding, Rule, Script, method_of

_SCRIPT: Final = ("torch.jit.script", "torch.jit._script.script")
_TRACE: Final = ("torch.jit.trace", "torch.jit._trace.trace")
_MODULES: Final = frozenset({
    "torch.jit.ScriptModule", "torch.jit._script.ScriptModule", "torch.ScriptModule",
})  # fmt: skip
_EXPORT: Final = re.compile(
    r"jit\.(?:save|freeze|ignore|unused|export|interface|optimize_for_inference|is_scripting)\b|"
    r"optimize_for_mobile|_save_for_lite_interpreter|torch_tensorrt|coremltools|onnx|"
    r"torch\.jit import [^\r\n]*\b(?:save|freeze|ignore|unused|export)\b"
)
_ELSEWHERE: Final = frozenset(
    "export convert deploy trace infer inference predict test benchmark serve graph save".split()
)
_WAYS: Final = frozenset("jit torchscript script scripted".split())
_FATE: Final = "TorchScript, which is deprecated and not supported on Python 3.14"


class Torchscript(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the TorchScript that training runs."""
        if _EXPORT.search(script.tree.own_text) or _compiles(script):
            return
        for mark in script.tree.all(cst.Decorator):
            function = script.tree.parent(mark)
            if isinstance(function, cst.FunctionDef) and script.name(mark.decorator) in _SCRIPT:
                if not _is_test(script, mark) and script.modules.reach.is_trained(function.body):
                    yield self._function(script, mark, function.name.value)
        trains = bool(script.loops.steps.all) or any(
            True for _ in script.calls.of_methods("parameters")
        )
        for owner in script.tree.all(cst.ClassDef) if trains else ():
            for base in owner.bases:
                if script.name(base.value) in _MODULES:
                    message = (
                        f"`{owner.name.value}` is {_FATE}: derive from `nn.Module`, "
                        f"and {self._advice(script, 'the network')}"
                    )
                    yield Finding(self.code, script.span(base.value), message)
        for site in script.calls.of(*_SCRIPT, *_TRACE):
            yield from self._called(script, site)

    def _called(self, script: Script, site: CallSite) -> Iterator[Finding]:
        given = site.given("func" if site.name in _TRACE else "obj", 0)
        if given is None or _is_test(script, site.node) or _leaves(script, site.node):
            return
        what = script.functions.definition(given.value)
        if isinstance(what, cst.FunctionDef):
            if script.modules.reach.has_training:
                yield self._function(script, site.node, what.name.value)
        elif what is None and _is_trained(script, site.node, given.value):
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


def _compiles(script: Script) -> bool:
    """Return whether a script also uses torch.compile."""
    return any(True for _ in script.calls.of("torch.compile")) or any(
        script.name(mark.decorator.func if isinstance(mark.decorator, cst.Call) else mark.decorator)
        == "torch.compile"
        for mark in script.tree.all(cst.Decorator)
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
