"""Avoidable reads: those that no step needs, which other rules leave to TL201, TL202 and TL207."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import Role, Script, word_of
from torchlint_rules.shared.hookreads import hook_waits
from torchlint_rules.shared.loglines import COLLECTS
from torchlint_rules.shared.stepreads import kept_in_steps

_RECORDS: Final = frozenset("log logs logger logging writer tracker print wandb".split())


def is_avoidable(script: Script, node: cst.CSTNode) -> bool:
    """Return whether TL201, TL202 or TL207 says that a step need not read a value."""
    if script.readings.is_logged(node) or id(node) in script.once(_unneeded):
        return True
    if _is_recorded(script, node):
        return True
    return script.readings.accumulators.adds(node)


def _is_recorded(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a value only becomes part of a log line, or of a name that they show."""
    line = script.tree.smallest_statement(node)
    if _records(script, line):
        return True
    if not isinstance(line, cst.Assign) or len(line.targets) != 1:
        return False
    target = line.targets[0].target
    bound = script.scopes.stored(target) if isinstance(target, cst.Name) else None
    uses = list(script.scopes.uses(bound, script.scopes.home(line))) if bound is not None else []
    return bool(uses) and all(_records(script, script.tree.smallest_statement(use)) for use in uses)


def _records(script: Script, line: cst.CSTNode) -> bool:
    """Return whether a statement only calls something that is named like a log."""
    if not isinstance(line, cst.Expr) or not isinstance(line.value, cst.Call):
        return False
    if word_of(line.value) in COLLECTS:
        return False
    return not _RECORDS.isdisjoint(script.names.words(script.code(line.value.func)))


def _unneeded(script: Script) -> set[int]:
    """Return the reads whose value no pass needs, or only an occasional one."""
    roles = (Role.TRAIN_BATCH, Role.EVAL_BATCH)
    waits = [wait for loop in script.loops.of(*roles) for wait in script.readings.waits.of(loop)]
    kept = [each for _, found in script.once(kept_in_steps) for each in found]
    found = [wait.reading for wait in waits] + [each.reading for each in kept]
    hooked = script.once(hook_waits)
    return {*(id(each.node) for each in found), *(id(each.node) for each in hooked)}
