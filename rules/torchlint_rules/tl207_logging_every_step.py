"""TL207: logging a number every step forces a GPU sync."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import libcst as cst

from torchlint.api import (
    Binding,
    Finding,
    Fix,
    Frequency,
    How,
    Kind,
    Loop,
    Note,
    Role,
    Rule,
    Script,
)
from torchlint_rules._loggedvalues import shown

_METHODS: Final = frozenset(
    (
        "set_postfix set_postfix_str set_description set_description_str add_scalar add_scalars "
        "add_histogram add_image info warning log_metric log_metrics scalar_summary"
    ).split()
)
_LOGGERS: Final = frozenset(
    "wandb run logger log experiment mlflow writer accelerator fabric tracker neptune".split()
)
_PLOTTERS: Final = ("vis", "viz", "visdom")
_FUNCTIONS: Final = ("builtins.print", "sys.stdout.write", "tqdm.tqdm.write", "progress_bar")
_TENSORS: Final = (Kind.TENSOR, Kind.LOSS)


class LoggingEveryStep(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the lines of every batch loop that log a tensor's value in each iteration."""
        if not script.can_use_accelerator:
            return
        found: dict[int, tuple[cst.Expr, Loop, str]] = {}
        for loop in script.loops(Role.TRAIN_BATCH, Role.EVAL_BATCH):
            if script.is_round(loop):
                continue
            for line in script.within(loop.node.body, cst.Expr):
                if not isinstance(line.value, cst.Call) or not _logs(script, line.value, loop):
                    continue
                if script.batch_loop(line) is not loop:
                    continue
                if script.frequency(line) is not Frequency.EVERY_PASS:
                    if not script.runs_each_pass_in_one_process(line, loop):
                        continue
                value = shown(script, line.value, loop)
                if value is not None and not _reports_episode(script, line, loop):
                    found[id(line)] = (line, loop, value)
        every = self.settings["every"]
        staying = {id(loop.node): _staying(script, found, loop) for _, loop, _ in found.values()}
        freed = {key: one for key, one in found.items() if staying[id(one[1].node)] is None}
        fixes = _fixes(script, freed, every)
        for line, loop, value in found.values():
            assert isinstance(line.value, cst.Call)
            message = (
                f"every step waits for the device so that `{script.code(line.value.func)}` can "
                f"show `{value}`; log every {every}th step"
            )
            wait = staying[id(loop.node)]
            notes = (Note(script.span(wait), "every step waits here as well"),) if wait else ()
            yield Finding(self.code, script.span(line), message, fixes.get(id(line)), notes)


def _staying(
    script: Script, found: Mapping[int, tuple[cst.Expr, Loop, str]], loop: Loop
) -> cst.CSTNode | None:
    """Return what forces a sync in each iteration of a loop, apart from logging."""
    shows: list[cst.CSTNode] = [line for line, _, _ in found.values()]
    added = [each.node for each in script.accumulations(loop.role, loop.node)]
    for reading in script.readings(loop.node.body):
        if script.frequency(reading.node) is not Frequency.EVERY_PASS or script.on_host(
            reading.tensor
        ):
            continue
        if any(script.tree.inside(reading.node, line) for line in (*shows, *added)):
            continue
        if script.needed_in(loop.node, reading, shows):
            return reading.node
    return next(
        (
            site.node
            for site in script.calls("torch.cuda.synchronize")
            if script.tree.inside(site.node, loop.node)
            and script.frequency(site.node) is Frequency.EVERY_PASS
        ),
        None,
    )


def _reports_episode(script: Script, line: cst.Expr, loop: Loop) -> bool:
    """Return whether a line reports a finished episode instead of every step."""
    return any(True for _ in script.tests_around(line)) and any(
        "env" in script.code(call.func).lower()
        for call in script.within(loop.node, cst.Call)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "step"
    )


def _logs(script: Script, call: cst.Call, loop: Loop) -> bool:
    """Return whether a call shows or records its arguments."""
    func = call.func
    if (script.name(func) or script.code(func)) in _FUNCTIONS:
        return True
    if isinstance(func, cst.Name):
        return func.value == "progress_bar"
    if not isinstance(func, cst.Attribute):
        return False
    if func.attr.value in _METHODS:
        return script.kind(func.value) not in _TENSORS
    owner = func.value.attr if isinstance(func.value, cst.Attribute) else func.value
    word = owner.value.lower() if isinstance(owner, cst.Name) else ""
    if func.attr.value == "line":
        return word in _PLOTTERS
    if func.attr.value in ("write", "writerow"):
        return loop.role is Role.TRAIN_BATCH  # an evaluation writes its results
    return func.attr.value in ("log", "print") and word in _LOGGERS


# -- the fix ----------------------------------------------------------------------


def _fixes(
    script: Script, found: Mapping[int, tuple[cst.Expr, Loop, str]], every: int
) -> dict[int, Fix]:
    """Return the fix of each line by its identity; consecutive lines share theirs."""
    holders = [script.parent(line) for line, _, _ in found.values()]
    blocks = {id(block): block for block in map(script.parent, filter(None, holders))}
    fixes: dict[int, Fix] = {}
    for block in blocks.values():
        for run in _runs(block, found) if isinstance(block, cst.IndentedBlock) else ():
            lines = [line.body[0] for line in run]
            fix = _fix(script, run, found[id(lines[0])][1], every)
            if fix is not None:
                fixes.update(dict.fromkeys(map(id, lines), fix))
    return fixes


def _runs(
    block: cst.IndentedBlock, found: Mapping[int, object]
) -> Iterator[list[cst.SimpleStatementLine]]:
    """Yield the consecutive logging statements of a block."""
    run: list[cst.SimpleStatementLine] = []
    for line in block.body:
        if isinstance(line, cst.SimpleStatementLine) and _is_one_of(line, found):
            run.append(line)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _is_one_of(line: cst.SimpleStatementLine, found: Mapping[int, object]) -> bool:
    return len(line.body) == 1 and id(line.body[0]) in found


def _fix(script: Script, lines: Sequence[cst.CSTNode], loop: Loop, every: int) -> Fix | None:
    counter = script.counter(loop.node)
    moved = _with_readings(script, lines, loop)
    if counter is None or moved is None or any(_draws(script, line) for line in lines):
        return None
    last = script.last_pass(loop)
    gate = f"{counter} % {every} == 0" + (f" or {last}" if last else "")
    return Fix.unsafe(
        f"Log every {every}th step",
        script.rewrite.wrap(moved, f"if {gate}:"),
        because="fewer records are written",
    )


def _draws(script: Script, line: cst.CSTNode) -> bool:
    """Return whether each step overwrites the line of the previous one."""
    return any(
        arg.keyword is not None and arg.keyword.value == "end"
        for arg in script.within(line, cst.Arg)
    ) or any("\\r" in text for text in _texts(script, line))


def _texts(script: Script, line: cst.CSTNode) -> Iterator[str]:
    yield from (each.value for each in script.within(line, cst.SimpleString))
    yield from (each.value for each in script.within(line, cst.FormattedStringText))


def _with_readings(
    script: Script, lines: Sequence[cst.CSTNode], loop: Loop
) -> Sequence[cst.CSTNode] | None:
    """Add the lines above that read the shown values, None if other lines need them."""
    readings = _readings(script, lines, loop)
    block = script.parent(lines[0])
    if not isinstance(block, cst.IndentedBlock):
        return None
    order = script.tree.order
    at = bisect_left(block.body, order(lines[0]), key=order)
    above = block.body[max(at - len(readings), 0) : at]
    if {id(line) for line in above} != set(readings):
        return None
    moved = [*above, *lines]
    bound = list(readings.values())
    for name in (use for each in bound for use in script.tree.spelled(each.name)):
        if script.scopes.reads(name):
            inside = any(script.tree.inside(name, line) for line in moved)
            if not inside and not set(bound).isdisjoint(script.scopes.reaching(name)):
                return None
    return moved


def _readings(script: Script, lines: Sequence[cst.CSTNode], loop: Loop) -> dict[int, Binding]:
    """Return the statements that read a tensor for the names in some lines, by their identity."""
    return {
        id(script.tree.statement(binding.node)): binding
        for line in lines
        for name in script.within(line, cst.Name)
        if script.scopes.reads(name)
        for binding in script.scopes.reaching(name)
        if binding.how is How.ASSIGN
        and binding.value is not None
        and script.tree.inside(binding.node, loop.node.body)
        and next(script.readings(binding.value), None) is not None
    }
