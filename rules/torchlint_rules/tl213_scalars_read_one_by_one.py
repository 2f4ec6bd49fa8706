"""TL213: several numbers are read from the device one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from torchlint.api import (
    TENSORS,
    Finding,
    Fix,
    Form,
    Impact,
    Kind,
    Note,
    Reading,
    Rule,
    Script,
    method_of,
    receiver_of,
)
from torchlint_rules.shared.avoidablereads import is_avoidable
from torchlint_rules.shared.graphbreaks import without_breaks
from torchlint_rules.shared.wording import quoted

_FEW: Final = 2
_AVERAGES: Final = frozenset("mean norm std var".split())
_NESTING: Final = (
    cst.ListComp,
    cst.DictComp,
    cst.SetComp,
    cst.GeneratorExp,
    cst.Lambda,
    cst.IfExp,
    cst.BooleanOperation,
)
"""Expressions whose parts run more than once, or not at all."""


class ScalarsReadOneByOne(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the reads of one block that could be one copy of a stack of tensors."""
        if script.program.devices.can_use_accelerator:
            found = (*self._of_blocks(script), *self._of_dictionaries(script))
            yield from without_breaks(script, found)

    def _of_blocks(self, script: Script) -> Iterator[Finding]:
        """Yield the reads of one block between which the device gets no work."""
        for found in _groups(script):
            first = found[0].node
            shown = quoted([script.tree.brief(each.tensor) for each in found])
            message = (
                f"{shown} are copied to the host one by one; "
                "`torch.stack([...]).tolist()` is one copy"
            )
            notes = tuple(Note(script.span(each.node), "copied as well") for each in found[1:])
            fix = _fix(script, found)
            impact: Impact | None = "low" if len(found) == _FEW else None
            yield Finding(self.code, script.span(first), message, fix, notes, impact)

    def _of_dictionaries(self, script: Script) -> Iterator[Finding]:
        """Yield the comprehensions that read the values of a dictionary one by one."""
        if not script.tree.mentions(".items", ".values"):
            return
        for each in script.tree.own(cst.DictComp):
            drawn = each.for_in.target
            if isinstance(drawn, cst.Tuple):
                yield from self._of_values(script, each, each.value, drawn.elements[-1].value)
        for made in script.tree.own(cst.ListComp):
            yield from self._of_values(script, made, made.elt, made.for_in.target)

    def _of_values(
        self,
        script: Script,
        node: cst.DictComp | cst.ListComp,
        value: cst.BaseExpression,
        drawn: cst.BaseExpression,
    ) -> Iterator[Finding]:
        """Yield a finding for a comprehension that reads each value of a dictionary in a step."""
        is_list = isinstance(node, cst.ListComp)
        owner = receiver_of(node.for_in.iter, "values" if is_list else "items")
        if owner is None or node.for_in.ifs or not _reads_one(script, value, drawn):
            return
        reading = script.readings.reading(value) if isinstance(value, cst.Call) else None
        if reading is None and not _holds_tensors(script, owner):
            return
        if not script.loops.each_step(node):
            return
        if is_avoidable(script, value) or (is_list and reading is None):
            return
        held = script.code(owner)
        copy = f"torch.stack([*{held}.values()]).tolist()"
        message = (
            f"the values of `{held}` are copied to the host one by one; "
            f"`{copy if is_list else f'dict(zip({held}, {copy}))'}` is one copy"
        )
        yield Finding(self.code, script.span(value), message)


def _reads_one(script: Script, node: cst.BaseExpression, drawn: cst.BaseExpression) -> bool:
    """Return whether an expression reads one number of a value that a loop draws."""
    reading = script.readings.reading(node) if isinstance(node, cst.Call) else None
    read = script.readings.numbered(node)
    if reading is not None and reading.form is Form.NUMBER:
        read = reading.tensor
    return read is not None and script.code(read) == script.code(drawn)


def _holds_tensors(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a dictionary holds several tensors of the device."""
    value = script.values.value_of(node).node
    if isinstance(value, cst.Dict):
        held = [each.value for each in value.elements if isinstance(each, cst.DictElement)]
        on_host = script.values.placement.on_host
        return len(held) >= _FEW and all(
            script.kind(each) in TENSORS and not on_host(each) for each in held
        )
    return isinstance(value, cst.Call) and script.loops.module_call(value) is not None


# -- reads of one block -------------------------------------------------------------


def _groups(script: Script) -> Iterator[list[Reading]]:
    """Yield the groups of reads that could be one, not those that need not be made."""
    blocks: dict[int, list[Reading]] = {}
    for reading in script.readings.within(script.tree.module):
        if _is_one_number(script, reading):
            line = script.tree.statement(reading.node)
            if isinstance(line, cst.SimpleStatementLine):
                blocks.setdefault(id(script.tree.parent(line)), []).append(reading)
    for readings in blocks.values():
        for run in _runs(script, readings) if len(readings) >= _FEW else ():
            if len(run) < _FEW or not script.loops.each_step(run[0].node):
                continue
            if not any(is_avoidable(script, each.node) for each in run):
                yield run


def _is_one_number(script: Script, reading: Reading) -> bool:
    """Return whether a read surely copies one number of a tensor on the device."""
    if reading.form is not Form.NUMBER or script.kind(reading.tensor) not in TENSORS:
        return False
    line = script.tree.smallest_statement(reading.node)
    return not any(
        isinstance(outer, _NESTING)
        for outer in script.tree.ancestors(reading.node)
        if script.tree.inside(outer, line)
    )


def _runs(script: Script, readings: Sequence[Reading]) -> Iterator[list[Reading]]:
    """Yield runs of reads of different tensors, all computed before the first of them."""
    run: list[Reading] = []
    for reading in readings:
        if run and not _joins(script, run, reading):
            yield run
            run = []
        if not any(script.code(each.tensor) == script.code(reading.tensor) for each in run):
            run.append(reading)
    yield run


def _joins(script: Script, run: Sequence[Reading], reading: Reading) -> bool:
    """Return whether a tensor is known, and nothing is queued, since the first read of a run."""
    first = script.tree.order(script.tree.smallest_statement(run[0].node))
    if any(
        binding.at > first
        for name in script.tree.within(reading.tensor, cst.Name)
        for binding in script.scopes.reaching(name)
        if script.scopes.home(binding.node) is script.scopes.home(reading.node)
    ):
        return False
    loop = script.loops.batch_loop(reading.node)
    if loop is None:
        return not any(
            script.tree.order(run[-1].node)
            < script.tree.order(call)
            < script.tree.order(reading.node)
            for call in script.tree.within(script.scopes.home(reading.node), cst.Call)
            if script.loops.is_step(call) or script.loops.module_call(call) is not None
        )
    return not script.readings.works_between(run[-1].node, reading.node, loop.node)


# -- the fix ------------------------------------------------------------------------


def _fix(script: Script, found: Sequence[Reading]) -> Fix | None:
    """Return a fix where consecutive lines each read one floating-point average."""
    if script.program.moves.lead_apart(found[0].node):
        return None
    lines = [script.tree.parent(each.node) for each in found]
    names: list[str] = []
    for line, each in zip(lines, found, strict=True):
        if not isinstance(line, cst.Assign) or len(line.targets) != 1 or each.cast == "int":
            return None
        target = line.targets[0].target
        if not isinstance(target, cst.Name) or not _is_average(script, each.tensor):
            return None
        if not script.edits.stands_alone(script.tree.statement(line)):
            return None
        names.append(target.value)
    block = script.tree.parent(script.tree.statement(found[0].node))
    if not isinstance(block, cst.IndentedBlock) or len(set(names)) < len(names):
        return None
    statements = [script.tree.statement(each.node) for each in found]
    at = block.body.index(statements[0])
    if list(block.body[at : at + len(statements)]) != statements:
        return None
    imported = script.edits.importing("torch", at=found[0].node)
    start, end = script.span(statements[0]).start, script.span(statements[-1]).end
    if imported is None or "#" in script.tree.source.text[start:end]:
        return None
    stacked = ", ".join(script.code(each.tensor) for each in found)
    code = f"{', '.join(names)} = {imported[0]}.stack([{stacked}]).tolist()"
    first = script.tree.parent(found[0].node)
    assert first is not None
    edits = [script.edits.replace(first, code)]
    edits += [script.edits.drop(each) for each in statements[1:]]
    return Fix.exact("Copy them together", *edits, imported[1])


def _is_average(script: Script, tensor: cst.BaseExpression) -> bool:
    """Return whether a tensor certainly is one floating-point number without dimensions."""
    value = script.values.value_of(tensor).node
    if isinstance(value, cst.BinaryOperation):
        sides = [
            side for side in (value.left, value.right) if not script.values.numbers.is_number(side)
        ]
        return bool(sides) and all(_is_average(script, side) for side in sides)
    if not isinstance(value, cst.Call):
        return False
    functional = (script.name(value.func) or "").startswith("torch.nn.functional.")
    if functional or script.kind(value.func) is Kind.CRITERION:
        whole = script.values.reductions.word(value) not in ("none", "")
        return whole and script.kind(value) is Kind.LOSS
    return not value.args and method_of(value) in _AVERAGES
