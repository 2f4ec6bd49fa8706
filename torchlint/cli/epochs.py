"""How many epochs a script trains, where its text and its arguments show that."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import libcst as cst

from torchlint.engine.parsing import UnparsableError, parse_script, syntax_tree
from torchlint.semantic.scope.target import Target
from torchlint.semantic.script import Script
from torchlint.source import Source, SourceError


def epochs_of(file: Path, args: Sequence[str]) -> int | None:
    """Return the passes of the loop around the training steps, None where that is unknown.

    The loop must count with `range`, to a number or to an option of the command line.
    """
    try:
        source = Source.from_bytes(file.read_bytes(), str(file))
        script = parse_script(source, Target(), syntax_tree(source))
    except (OSError, SourceError, UnparsableError):
        return None
    loops = map(script.program.epoch_loop, script.program.training_loops())
    found = {_passes(script, loop.node, args) for loop in loops if loop is not None}
    return found.pop() if len(found) == 1 else None


def _passes(script: Script, loop: cst.CSTNode, args: Sequence[str]) -> int | None:
    if not isinstance(loop, cst.For) or not isinstance(loop.iter, cst.Call):
        return None
    if script.name(loop.iter.func) not in ("range", "builtins.range"):
        return None
    ends = [_number(script, arg.value, args) for arg in loop.iter.args]
    if len(ends) == 1 and ends[0] is not None:
        return ends[0]
    if len(ends) == 2 and ends[0] is not None and ends[1] is not None:
        return max(0, ends[1] - ends[0])
    return None


def _number(script: Script, node: cst.BaseExpression, args: Sequence[str]) -> int | None:
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
        sides = [_number(script, side, args) for side in (node.left, node.right)]
        return None if None in sides else sum(side or 0 for side in sides)
    value = script.values.value_of(node).literal
    if type(value) is int:
        return value
    option = script.values.options.of(node)
    return None if option is None else _whole(_given(option.flag, args) or option.default)


def _given(flag: str, args: Sequence[str]) -> str | None:
    """Return the value of an option on a command line, None where it is not there."""
    after = [value for name, value in pairwise(args) if name == flag]
    joined = [arg.partition("=")[2] for arg in args if arg.startswith(f"{flag}=")]
    return next(reversed([*after, *joined]), None)


def _whole(value: Any) -> int | None:
    if type(value) is str and value.isdecimal():
        return int(value)
    return value if type(value) is int else None
