"""TL801: autograd's anomaly detection, left on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Rule, Script
from torchlint_rules.shared.leftoptions import LeftOption, left_options

_SETTER: Final = "torch.autograd.set_detect_anomaly"
_CONTEXT: Final = "torch.autograd.detect_anomaly"
_COST: Final = "traces every operation and makes steps 3 to 9 times slower"
_TITLE: Final = "Remove the anomaly detection"
_CAUGHT: Final = "the file catches what a backward pass raises, as anomaly detection does for a NaN"
_OVERFLOWS: Final = LeftOption(
    "debug",
    ("underflow_overflow",),
    ("transformers", "trl"),
    "looks at the output of every layer in every step",
    "the run no longer stops at the first value that is infinite or no number",
    "high",
)
_TOGETHER: Final = 20
"""The maximum number of places that one fix removes, so that imports go with the last."""


class AnomalyDetection(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every place that turns anomaly detection on."""
        found = list(_traced(script))
        gone = [each for each in found if each.edits is not None and each.gone is not None]
        for place in found:
            message = f"`{script.code(place.named)}` {_COST}: {place.advice}"
            fix = _fix(script, place, gone)
            if fix is not None and script.once(_is_caught):
                fix = Fix.unsafe(_TITLE, fix.edits, because=_CAUGHT)
            yield Finding(self.code, script.span(place.call), message, fix)
        yield from left_options(script, self.code, _OVERFLOWS)


def _is_caught(script: Script) -> bool:
    """Return whether the file catches errors of a backward pass and continues."""
    return any(
        script.loops.is_step(call)
        for statement in script.tree.all(cst.Try)
        if statement.handlers and not _all_raise(script, statement)
        for call in script.functions.run_in(statement.body)
    )


def _all_raise(script: Script, statement: cst.Try) -> bool:
    """Return whether every handler raises in its last line, or only handles the program's end."""
    return all(
        (isinstance(each.type, cst.Name) and each.type.value == "KeyboardInterrupt")
        or next(script.tree.within(each.body, cst.Raise), None) is not None
        for each in statement.handlers
    )


class _Place(NamedTuple):
    """One call or argument that turns anomaly detection on.

    `gone` is the code that the fix removes, by which unused imports are found; None without edits.
    """

    call: cst.CSTNode
    named: cst.CSTNode
    advice: str
    edits: Edits | None
    gone: cst.CSTNode | None


def _traced(script: Script) -> Iterator[_Place]:
    for site in script.calls.of(_SETTER):
        mode = site.argument("mode")
        if mode.equals(True) and not _switched(script, site.node):
            given = site.given("mode")
            literal = given is not None and given.value is mode.node
            yield (
                _of_call(script, site.node)
                if literal
                else _of_constant(script, site.node, mode.node)
            )
    for site in script.calls.of(_CONTEXT):
        if not _switched(script, site.node):
            yield _of_call(script, site.node)
    for call in script.tree.all(cst.Call):
        if _is_trainer(script.name(call.func)) and not _switched(script, call):
            if script.calls.at(call).argument("detect_anomaly").equals(True):
                yield _of_trainer(script, call)


def _is_trainer(name: str | None) -> bool:
    """Return whether a qualified name is Lightning's Trainer, by one of its paths."""
    parts = (name or "").split(".")
    return parts[0] in ("lightning", "pytorch_lightning") and parts[-1] == "Trainer"


def _switched(script: Script, node: cst.CSTNode) -> bool:
    """Return whether anomaly detection is only used when needed."""
    return script.loops.conditions.is_conditional(node, "debug", "anomal", "nan")


def _of_call(script: Script, call: cst.Call) -> _Place:
    """Return the removal of a call that is a whole statement or context manager."""
    advice = "remove it, or switch it on with an argument"
    rewrite = script.edits
    holder = script.tree.parent(call)
    if isinstance(holder, cst.WithItem):
        statement = script.tree.parent(holder)
        if holder.asname is None and isinstance(statement, cst.With):
            alone = len(statement.items) == 1
            edits = rewrite.unwrap(statement) if alone else rewrite.without_item(statement, holder)
            return _Place(call, call.func, advice, edits, holder)
        return _Place(call, call.func, advice, None, None)
    if isinstance(holder, cst.Arg) and isinstance(entering := script.tree.parent(holder), cst.Call):
        if script.calls.at(entering).method == "enter_context":
            holder = script.tree.parent(entering)
    line = script.tree.parent(holder) if isinstance(holder, cst.Expr) else None
    if isinstance(line, cst.SimpleStatementLine) and rewrite.stands_alone(line):
        return _Place(call, call.func, advice, rewrite.drop(line), line)
    return _Place(call, call.func, advice, None, None)


def _of_constant(script: Script, call: cst.Call, value: cst.BaseExpression | None) -> _Place:
    """Return the change of a call with a named True: the name becomes False if only it reads it."""
    given = script.calls.at(call).given("mode")
    name = given.value if given is not None else None
    advice = "pass False"
    if not isinstance(name, cst.Name) or value is None:
        return _Place(call, call.func, advice, None, None)
    reads = script.tree.spelled(name.value)
    made = script.tree.parent(value)
    advice = f"set `{name.value}` to False"
    if len(reads) == 2 and isinstance(made, cst.Assign) and "#" not in script.code(value):
        return _Place(call, call.func, advice, script.edits.replace(value, "False"), None)
    return _Place(call, call.func, advice, None, None)


def _of_trainer(script: Script, call: cst.Call) -> _Place:
    advice = "leave `detect_anomaly` out"
    given = script.calls.at(call).given("detect_anomaly")
    if given is None or script.code(given.value) != "True":
        return _Place(call, call.func, advice, None, None)
    edits = script.edits.without_argument(call, given)
    return _Place(given, given, advice, edits, None)


def _fix(script: Script, place: _Place, together: Sequence[_Place]) -> Fix | None:
    """Remove a place, with imports that become unused when all places are removed."""
    if place.edits is None:
        return None
    if place.gone is None:
        return Fix.exact(_TITLE, place.edits)
    alone = script.edits.without_imports(place.gone)
    if alone is None:
        return None
    if alone:
        return Fix.exact(_TITLE, script.edits.united(place.edits, alone))
    if len(together) > _TOGETHER:
        return Fix.exact(_TITLE, place.edits)
    shared = script.edits.without_imports(*(each.gone for each in together if each.gone))
    if not shared or place not in together or _nested(script, together):
        return Fix.exact(_TITLE, place.edits)
    return Fix.exact(
        _TITLE, script.edits.united(*(each.edits for each in together if each.edits), shared)
    )


def _nested(script: Script, places: Sequence[_Place]) -> bool:
    """Return whether one of some `with` statements is nested in another."""
    contexts = [
        statement
        for place in places
        if isinstance(statement := script.tree.parent(place.gone or place.call), cst.With)
    ]
    return any(
        one is not other and script.tree.inside(one, other)
        for one in contexts
        for other in contexts
    )
