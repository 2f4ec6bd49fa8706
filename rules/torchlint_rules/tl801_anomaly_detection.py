"""TL801: autograd's anomaly detection, left on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Rule, Script, TrainerArguments
from torchlint_rules.shared.leftoptions import LeftOption, left_options
from torchlint_rules.shared.removal import Leftover, removal_of

_SETTER: Final = "torch.autograd.set_detect_anomaly"
_CONTEXT: Final = "torch.autograd.detect_anomaly"
_OPTION: Final = "detect_anomaly"
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


class AnomalyDetection(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every place that turns anomaly detection on."""
        found = list(_traced(script))
        together = [each.leftover for each in found if each.leftover is not None]
        for place in found:
            message = f"`{script.code(place.named)}` {_COST}: {place.advice}"
            edits = place.edits
            if place.leftover is not None:
                edits = removal_of(script, place.leftover, together)
            fix = Fix.exact(_TITLE, edits) if edits is not None else None
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
    """One call or argument that turns anomaly detection on, and how it goes, if it can."""

    call: cst.CSTNode
    named: cst.CSTNode
    advice: str
    leftover: Leftover | None = None
    edits: Edits | None = None


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
    for arguments in script.program.trainings.arguments("lightning"):
        if arguments.is_literal(_OPTION, True) and not _switched(script, arguments.call):
            yield _of_trainer(script, arguments)


def _switched(script: Script, node: cst.CSTNode) -> bool:
    """Return whether anomaly detection is only used when needed."""
    return script.loops.conditions.is_conditional(node, "debug", "anomal", "nan")


def _of_call(script: Script, call: cst.Call) -> _Place:
    """Return the removal of a call that is a whole statement or context manager."""
    holder = script.tree.parent(call)
    if isinstance(holder, cst.Arg) and isinstance(entering := script.tree.parent(holder), cst.Call):
        if script.calls.at(entering).method == "enter_context":
            holder = script.tree.parent(entering)
    gone = script.tree.parent(holder) if isinstance(holder, cst.Expr) else holder
    leftover = None
    if isinstance(gone, cst.SimpleStatementLine) or (
        isinstance(gone, cst.WithItem) and gone.asname is None
    ):
        leftover = Leftover.of(script, gone)
    return _Place(call, call.func, "remove it, or switch it on with an argument", leftover)


def _of_constant(script: Script, call: cst.Call, value: cst.BaseExpression | None) -> _Place:
    """Return the change of a call with a named True: the name becomes False if only it reads it."""
    given = script.calls.at(call).given("mode")
    name = given.value if given is not None else None
    if not isinstance(name, cst.Name) or value is None:
        return _Place(call, call.func, "pass False")
    made = script.tree.parent(value)
    single = len(script.tree.spelled(name.value)) == 2 and isinstance(made, cst.Assign)
    plain = single and "#" not in script.code(value)
    edits = script.edits.replace(value, "False") if plain else None
    return _Place(call, call.func, f"set `{name.value}` to False", None, edits)


def _of_trainer(script: Script, arguments: TrainerArguments) -> _Place:
    advice = f"leave `{_OPTION}` out"
    given = arguments.given(_OPTION)
    if given is None or script.code(given.value) != "True":
        return _Place(arguments.call, arguments.call.func, advice)
    edits = script.edits.without_argument(arguments.call, given)
    return _Place(given, given, advice, None, edits)
