"""TL209: a Python loop over a tensor that one operation could replace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Frequency, Impact, Rule, Script, method_of, receiver_of
from torchlint_rules.tl209_python_loop_over_tensor.elementloops import (
    element_reads,
    entry_reads,
    sole_line,
    written_by_element,
    written_by_row,
)
from torchlint_rules.tl209_python_loop_over_tensor.elements import (
    Walk,
    elementwise,
    is_surely_tensor,
    outermost_item,
    walk,
)
from torchlint_rules.tl209_python_loop_over_tensor.rows import filled_by_row, rows_taken
from torchlint_rules.tl209_python_loop_over_tensor.samples import worked_by_sample

_REDUCTIONS: Final = {
    "builtins.sum": "sum(0)", "builtins.max": "max()", "builtins.min": "min()",
}  # fmt: skip
_LAYERS: Final = frozenset(
    "Linear Bilinear Embedding ReLU GELU SiLU Sigmoid Tanh LeakyReLU ELU Softplus LayerNorm "
    "Identity Hardswish Mish".split()
)
_WHOLE: Final = ("torch.nn.RNN", "torch.nn.LSTM", "torch.nn.GRU")
_CELLS: Final = {f"{name}Cell": name for name in _WHOLE}
_RECURRENT: Final = frozenset({*_WHOLE, *_CELLS})
_PIECES: Final = ("split", "chunk", "unbind")
_SHORT: Final = 16
_BECAUSE: Final = "adds up in another order"


class PythonLoopOverTensor(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loop and every built-in that iterates over a tensor."""
        for call in script.tree.in_file(script.calls.of(*_REDUCTIONS)):
            yield from self._of_builtin(script, call.node)
        recurrent = not _RECURRENT.isdisjoint(script.calls.called)
        filled: cst.For | None = None
        said: set[int] = set()
        for loop in script.tree.own(cst.For):
            finding = self._of_line(script, loop)
            if finding is None and not (filled is not None and script.tree.inside(loop, filled)):
                finding = self._of_writes(script, loop)
                filled = loop if finding is not None else filled
            if finding is None and recurrent:
                finding = self._of_steps(script, loop)
            if finding is not None:
                said.add(id(loop))
                yield finding
        for comprehension in script.tree.own(cst.ListComp):
            yield from self._of_comprehension(script, comprehension)
        if script.program.devices.can_use_accelerator:
            yield from self._of_reads(script, said)
            yield from self._of_rows(script)
            yield from self._of_samples(script, said)

    # -- sums -----------------------------------------------------------------

    def _of_builtin(self, script: Script, call: cst.Call) -> Iterator[Finding]:
        if len(call.args) != 1 or call.args[0].star or call.args[0].keyword is not None:
            return
        given = call.args[0].value
        if not is_surely_tensor(script, given) or script.loops.frequency(call) is Frequency.RARE:
            return
        if _is_short(script, given):
            return
        word = _REDUCTIONS[script.name(call.func) or ""]
        text = f"{script.tree.operand(given)}.{word}"
        fix = None
        if "#" not in script.code(call):
            fix = Fix.close(f"Write `.{word}`", script.edits.replace(call, text), because=_BECAUSE)
        named = script.code(call.func)
        message = (
            f"Python's `{named}` starts a kernel for every element: `.{word}` starts one for all"
        )
        yield Finding(self.code, script.span(call), message, fix, impact=_stake(script, call))

    def _of_line(self, script: Script, loop: cst.For) -> Finding | None:
        """Yield the findings of a loop whose body is one line."""
        line = sole_line(loop)
        added = _added(script, line) if line is not None else None
        row = _appended(line) if line is not None else None
        if line is None or (added is None and row is None):
            return None
        found = walk(script, loop.target, loop.iter)
        if found is None:
            return None
        if row is not None:
            return self._row_by_row(script, found, row, loop.iter)
        if found.dimension:
            return None
        return self._of_sum(script, loop, found, line, added) if added is not None else None

    def _of_sum(
        self,
        script: Script,
        loop: cst.For,
        found: Walk,
        line: cst.BaseSmallStatement,
        added: cst.BaseExpression,
    ) -> Finding | None:
        inner = outermost_item(script, added)
        whole = elementwise(script, found, inner if inner is not None else added)
        if whole is None:
            return None
        simple = all(sign.isidentifier() or sign in ".()[]" for sign in whole.replace(" ", ""))
        ends = inner or added
        called = isinstance(ends, cst.Call) and not ends.lpar
        wrapped = whole.startswith("(") and whole.endswith(")") and whole.count("(") == 1
        base = whole if simple or called or wrapped else f"({whole})"
        text = f"{base}.sum(0)"
        if inner is not None:
            number = receiver_of(added) is not None
            text = f"{base}.sum().item()" if number else f"float({base}.sum())"
        fix = None
        if "#" not in script.code(loop) and not _read_elsewhere(script, loop, found):
            span, at = script.span(line), script.span(added)
            code = script.tree.text(line)
            code = f"{code[: at.start - span.start]}{text}{code[at.end - span.start :]}"
            edits = script.edits.replace(loop, code)
            fix = Fix.close("Add up the whole tensor", edits, because=_BECAUSE)
        message = (
            f"this loop starts a kernel for every element of `{script.code(found.tensor)}`: "
            f"add `{' '.join(text.split())}`"
        )
        return Finding(self.code, script.span(loop.iter), message, fix, impact=_stake(script, loop))

    # -- elements ---------------------------------------------------------------

    def _of_reads(self, script: Script, said: set[int]) -> Iterator[Finding]:
        """Yield the findings of the loops that read elements, but for those already told of."""
        for loop, read, tensor in element_reads(script):
            if id(loop) in said:
                continue
            said.add(id(loop))
            named = script.code(tensor)
            verb = "compare" if isinstance(read, cst.Comparison) else "work on"
            cure = f"{verb} the whole of `{named}`, or read it once before with `{named}.tolist()`"
            if isinstance(script.readings.numbered(read), cst.Call):
                cure = f"compute with the whole of `{named}`, once"
            message = (
                f"`{script.code(read)}` waits for the device in every pass of this loop: {cure}"
            )
            stake = _stake(script, loop)
            yield Finding(self.code, script.span(loop.iter), message, impact=stake)

        for wait, tensor in entry_reads(script):
            named = script.code(tensor)
            cure = f"read it once before with `{named}.tolist()`"
            if isinstance(wait, cst.Comparison):
                cure = f"compare the whole of `{named}`, once"
            elif isinstance(script.readings.numbered(wait), cst.Call):
                cure = f"compute with the whole of `{named}`, once"
            message = (
                f"`{script.code(wait)}` waits for the device for every entry of `{named}`: {cure}"
            )
            yield Finding(self.code, script.span(wait), message)

    def _of_rows(self, script: Script) -> Iterator[Finding]:
        for rows in rows_taken(script):
            named, func = script.code(rows.tensor), script.code(rows.joined.func)
            cure = "one indexing with tensors of all indices takes them"
            if rows.indices is not None:
                cure = f"`{named}[{script.code(rows.indices)}]` takes them all"
            message = (
                f"`{func}` joins rows of `{named}` that are taken one by one, each with a kernel "
                f"of its own: {cure}"
            )
            yield Finding(self.code, script.span(rows.joined), message)

    def _of_samples(self, script: Script, said: set[int]) -> Iterator[Finding]:
        for loop in script.tree.own(cst.For):
            tensor = worked_by_sample(script, loop) if id(loop) not in said else None
            if tensor is not None:
                message = (
                    f"this loop starts its kernels for one sample of `{script.code(tensor)}` after "
                    "the other: work on the whole batch, and sum over all dimensions but the first"
                )
                yield Finding(self.code, script.span(loop.iter), message, impact="medium")

    def _of_writes(self, script: Script, loop: cst.For) -> Finding | None:
        line = sole_line(loop)
        rows = written_by_row(script, loop, line) if line is not None else None
        if rows is None and line is not None and script.program.devices.can_use_accelerator:
            rows = filled_by_row(script, loop, line)
        written = written_by_element(script, loop) if rows is None else None
        if rows is None and written is None:
            return None
        shown = rows if written is None else script.code(written)
        message = (
            f"this loop starts kernels for one element of `{shown}` after the other: one "
            "operation on whole tensors fills it"
        )
        return Finding(self.code, script.span(loop.iter), message, impact=_stake(script, loop))

    # -- rows and steps -------------------------------------------------------

    def _of_comprehension(self, script: Script, node: cst.ListComp) -> Iterator[Finding]:
        part = node.for_in
        if part.ifs or part.inner_for_in is not None or not isinstance(node.elt, cst.Call):
            return
        found = walk(script, part.target, part.iter)
        finding = self._row_by_row(script, found, node.elt, node) if found is not None else None
        if finding is not None:
            yield finding

    def _row_by_row(
        self, script: Script, found: Walk, row: cst.BaseExpression, place: cst.CSTNode
    ) -> Finding | None:
        if not isinstance(row, cst.Call) or len(row.args) != 1:
            return None
        layer = script.values.value_of(row.func).node
        name = script.name(layer.func) if isinstance(layer, cst.Call) else None
        if name is None or name.removeprefix("torch.nn.") not in _LAYERS:
            return None
        if elementwise(script, found, row.args[0].value) is None:
            return None
        tensor, func = script.code(found.tensor), script.code(row.func)
        message = f"`{func}` is called for every row of `{tensor}`: call `{func}({tensor})` once"
        return Finding(self.code, script.span(place), message)

    def _of_steps(self, script: Script, loop: cst.For) -> Finding | None:
        if not isinstance(loop.target, cst.Name) or not _is_known(script, loop.iter):
            return None
        calls = list(script.tree.within(loop.body, cst.Call))
        if any(script.loops.is_step(call) for call in calls):
            return None
        for call in calls:
            layer = script.values.value_of(call.func).node if len(call.args) == 2 else None
            name = script.name(layer.func) if isinstance(layer, cst.Call) else None
            if name in _RECURRENT and _steps_through(script, loop, call):
                short = f"nn.{_CELLS.get(name, name).rpartition('.')[2]}"
                named = script.code(call.func)
                how = f"`{short}` takes" if name in _CELLS else f"`{named}` can take"
                message = (
                    f"`{named}` is handed a known sequence step by step: {how} all of it in one "
                    "call"
                )
                return Finding(self.code, script.span(loop.iter), message)
        return None


def _stake(script: Script, node: cst.CSTNode) -> Impact | None:
    """Return the impact of what runs in each step, low beside a network or now and then."""
    runs = isinstance(node, cst.For) and script.loops.runs_module(node.body)
    small = runs or script.loops.generation.is_part(script.span(node))
    return None if script.loops.each_step(node) and not small else "low"


def _added(script: Script, line: cst.BaseSmallStatement) -> cst.BaseExpression | None:
    """Return the value that a line adds to a name, by `s += e` or `s = s + e`."""
    if isinstance(line, cst.AugAssign):
        return line.value if isinstance(line.operator, cst.AddAssign) else None
    if not isinstance(line, cst.Assign) or len(line.targets) != 1:
        return None
    value = line.value
    if not isinstance(value, cst.BinaryOperation) or not isinstance(value.operator, cst.Add):
        return None
    same = script.code(line.targets[0].target) == script.code(value.left)
    return value.right if same else None


def _appended(line: cst.BaseSmallStatement) -> cst.BaseExpression | None:
    """Return the value that a line appends to a list."""
    call = line.value if isinstance(line, cst.Expr) else None
    if not isinstance(call, cst.Call) or len(call.args) != 1:
        return None
    return call.args[0].value if method_of(call) == "append" else None


def _read_elsewhere(script: Script, loop: cst.For, found: Walk) -> bool:
    """Return whether code after a loop reads the last value of its target."""
    binding = script.scopes.stored(found.target)
    region = script.scopes.home(loop)
    uses = script.scopes.uses(binding, region) if binding is not None else iter(())
    return any(not script.tree.inside(use, loop) for use in uses)


def _is_known(script: Script, iterated: cst.BaseExpression) -> bool:
    """Return whether a loop iterates over a range, a tensor or its parts."""
    if not isinstance(iterated, cst.Call):
        return is_surely_tensor(script, iterated)
    return script.name(iterated.func) == "builtins.range" or method_of(iterated) in _PIECES


def _is_short(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a tensor is made with a handful of elements."""
    value = script.values.value_of(node).node
    if not isinstance(value, cst.Call) or not (script.name(value.func) or "").startswith("torch."):
        return False
    sizes = [arg.value for arg in value.args if isinstance(arg.value, (cst.Tuple, cst.List))]
    counts = (
        [script.values.value_of(each.value).literal for each in sizes[0].elements] if sizes else []
    )
    return len(counts) == 1 and type(counts[0]) is int and counts[0] <= _SHORT


def _steps_through(script: Script, loop: cst.For, call: cst.Call) -> bool:
    """Return whether a call's input depends only on the position, and its state only on itself."""
    if script.scopes.home(call) is not script.scopes.home(loop) or not isinstance(
        loop.target, cst.Name
    ):
        return False
    taken, state = call.args[0].value, call.args[1].value
    names = {name.value for name in script.tree.within(taken, cst.Name)}
    if loop.target.value not in names:
        return False
    outer = script.tree.parent(call)
    if not isinstance(outer, cst.Assign):
        return False
    parts = (
        [element.value for element in state.elements] if isinstance(state, cst.Tuple) else [state]
    )
    states = {part.value for part in parts if isinstance(part, cst.Name)}
    bound = {name.value for name in script.tree.within(outer.targets[0], cst.Name)}
    if len(states) != len(parts) or not states <= bound:
        return False
    changed = [
        name.value
        for name in script.tree.within(loop.body, cst.Name)
        if not script.scopes.reads(name) and not script.tree.inside(name, outer)
    ]
    return not (names | states) & set(changed) and not names & bound
