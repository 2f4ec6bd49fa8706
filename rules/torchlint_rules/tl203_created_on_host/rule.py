"""TL203: a tensor is created on the host in every step and then copied to the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    TENSORS,
    CallSite,
    Edit,
    Edits,
    Finding,
    Fix,
    Kind,
    Move,
    Rule,
    Script,
    Span,
    State,
    receiver_of,
)
from torchlint_rules.shared.grouping import joined
from torchlint_rules.shared.targets import target_of
from torchlint_rules.tl203_created_on_host.drawnarrays import chosen_constructors, is_chosen
from torchlint_rules.tl203_created_on_host.hostcomputed import computed
from torchlint_rules.tl203_created_on_host.hosttensors import ARRAY, COUNTED, REPEATED, Made, made

_WIDTH: Final = 100
_COUNTED: Final = ("builtins.enumerate", "builtins.zip", "builtins.reversed")
_WAITING: Final = ("non_blocking", "copy")
_LIKE: Final = ("type_as", "type")
_TAKES_DTYPE: Final = frozenset("zeros ones eye".split())
_GENERATOR: Final = "the GPU's random generator gives other numbers than the CPU's"
_ROUNDING: Final = "a GPU may round the last digit differently"
_IMPORTED: Final = "`{}` comes from another module and may be a dtype, which `device=` refuses"


class CreatedOnHost(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every tensor that each step creates on the host and moves."""
        yield from joined(script, self._found(script), ("tensor", "tensors"))

    def _found(self, script: Script) -> Iterator[tuple[cst.CSTNode, Finding]]:
        if not script.program.devices.can_use_accelerator:
            return
        moves = script.calls.of_methods("to", "cuda", "type_as", "type", "copy_")
        for site in script.tree.in_file((*moves, *chosen_constructors(script))):
            found = _transfer(script, site)
            if found is None or not script.loops.each_step(site.node):
                continue
            if _drives_loop(script, site.node):
                continue
            made_by = script.code(found.made.site.node.func)
            message = (
                f"`{made_by}(...)` is made on the host and copied to the device in every step; "
                f"{_cure(found.made, found.where)}"
            )
            notes = script.loops.repetition.notes_on_callers(site.node)
            finding = Finding(self.code, script.span(site.node), message, found.fix, notes)
            yield script.scopes.home(site.node), finding


class _Transfer(NamedTuple):
    """What makes a tensor that is copied to the device, the device if known, and a fix."""

    made: Made
    where: str | None = None
    fix: Fix | None = None


def _transfer(script: Script, site: CallSite) -> _Transfer | None:
    """Return what a call copies to the device, None if the host did not make it for that."""
    move = script.program.moves.move(site.node)
    if is_chosen(script, site.node):
        drawn = made(script, site.node)
        return _Transfer(drawn) if drawn is not None else None
    if move is None:
        taken = _taken_along(script, site)
        found = computed(script, taken) if taken is not None else None
        return _Transfer(found) if found is not None else None
    found, named, apart = made(script, move.moved), None, None
    if found is None:
        named = _named(script, move.moved)
        apart = _moved_under_guard(script, site.node) if named is None else None
        line = named or apart
        found = made(script, line.value) if line is not None else None
    if found is None:
        found = computed(script, move.moved)
        return _Transfer(found) if found is not None else None
    away = script.scopes.home(found.site.node) is not script.scopes.home(site.node)
    where = _device(script, move) if apart is None and not away else None
    return _Transfer(found, where, _fix(script, move, found, where, named))


def _taken_along(script: Script, site: CallSite) -> cst.BaseExpression | None:
    """Return what a call copies to where another tensor is: `x.to(y)`, `self.x.copy_(y)`."""
    given = site.node.args[0].value if len(site.node.args) == 1 else None
    given = receiver_of(given, "type") if site.method == "type" else given  # x.type(y.type())
    if given is None or site.name is not None:
        return None
    if site.method == "copy_":
        holder = site.receiver.value if isinstance(site.receiver, cst.Attribute) else None
        return given if holder is not None and script.kind(holder) is Kind.MODULE else None
    tensors = (*TENSORS, Kind.UNKNOWN) if site.method in _LIKE else TENSORS
    on_device = script.kind(given) in tensors and not script.values.placement.on_host(given)
    return site.receiver if on_device and site.method in ("to", *_LIKE) else None


def _named(script: Script, moved: cst.BaseExpression) -> cst.Assign | None:
    """Return the line of the same block that creates the moved tensor, if nothing else reads it."""
    line, last = script.scopes.line_for(moved), script.tree.statement(moved)
    if line is None or not isinstance(last, cst.SimpleStatementLine):
        return None
    block = script.tree.parent(script.tree.statement(line))
    return line if block is script.tree.parent(last) else None


def _moved_under_guard(script: Script, call: cst.Call) -> cst.Assign | None:
    """Return the line that creates what a branch moves (`if cuda: x = x.cuda()`), read after it."""
    moved, found = cst.ensure_type(call.func, cst.Attribute).value, target_of(script, call)
    branch = script.tree.parent(script.tree.parent(script.tree.statement(call)))
    binding = script.scopes.only(moved)
    line = binding.node
    if found is None or not isinstance(line, cst.Assign) or len(line.targets) != 1:
        return None
    if script.code(found[1]) != script.code(moved):
        return None
    if not isinstance(branch, cst.If) or branch.orelse is not None:
        return None
    if script.tree.parent(branch) is not script.tree.parent(script.tree.statement(line)):
        return None
    uses = script.scopes.uses(binding, script.scopes.home(line))
    at = script.tree.order(moved)
    return line if all(script.tree.order(use) >= at for use in uses) else None


def _drives_loop(script: Script, call: cst.Call) -> bool:
    """Return whether a loop of Python goes through what moves, and nothing else reads it."""
    line = script.tree.parent(call)
    if not isinstance(line, cst.Assign):
        return _is_gone_through(script, call)
    stored = [script.scopes.stored(each.target) for each in line.targets]
    reads = [use for each in stored if each is not None for use in script.scopes.uses(each)]
    return bool(reads) and all(_is_gone_through(script, name) for name in reads)


def _is_gone_through(script: Script, node: cst.CSTNode) -> bool:
    """Return whether an expression is what a loop goes through, as it is or counted."""
    around = script.tree.parent(node)
    while isinstance(around, (cst.Arg, cst.Call)) and not (
        isinstance(around, cst.Call) and script.name(around.func) not in _COUNTED
    ):
        node, around = around, script.tree.parent(around)
    return isinstance(around, (cst.For, cst.CompFor)) and around.iter is node


def _cure(found: Made, where: str | None) -> str:
    """Return what to do in place of making a tensor on the host."""
    if found.last in ("sample", "rsample"):
        return "give the distribution parameters on the device, then it draws there"
    if found.last == COUNTED:
        return f"count there: `torch.arange(..., device={where or '...'})`"
    if found.last == REPEATED:
        return f"fill it there: `torch.full(..., device={where or '...'})`"
    if found.last == ARRAY:
        return "let torch draw it there (`torch.randn`, `torch.rand`, `torch.randint`)"
    how = "with `torch.empty`, `torch.full` or `torch.randn` and" if found.legacy else "with"
    return f"make it there {how} device={where or '...'}"


def _device(script: Script, move: Move) -> str | None:
    """Return the value for `device`, None if the move means something else."""
    if move.device is None:
        return '"cuda"'
    text = script.code(move.device)
    if move.method == "to" or script.program.moves.has_type(move.device):
        return text
    return text if script.values.value_of(move.device).is_literal else None


def _fix(
    script: Script, move: Move, made: Made, where: str | None, named: cst.Assign | None
) -> Fix | None:
    start, tail = script.span(move.moved).end, script.tree.bare(move.call).end
    dtype = script.calls.at(move.call).given("dtype", 1) if move.method == "to" else None
    known = {move.device_arg, dtype}
    others = [
        arg
        for arg in move.call.args
        if arg not in known and (arg.keyword is None or arg.keyword.value not in _WAITING)
    ]
    drawn = made.last in ("sample", "rsample")
    becomes_leaf = made.site.argument("requires_grad").state is not State.ABSENT
    if (
        where is None
        or made.legacy
        or made.apart
        or drawn
        or becomes_leaf
        or others
        or "#" in script.tree.source.text[start:tail]
    ):
        return None
    if named is not None and not _is_known_at(script, move, named):
        return None
    added = f"device={where}"
    kept = ""
    if dtype is not None:
        written = script.code(dtype.value)
        direct = made.site.node is (move.moved if named is None else named.value)
        untyped = made.site.argument("dtype").state is State.ABSENT
        if direct and untyped and made.last in _TAKES_DTYPE:
            added += f", dtype={written}"
        else:
            kept = f".to({written})"
    saved = tail - start - len(kept) if named is None else 0
    edits = _with_device(script, made.site.node, added, saved)
    cut = script.edits.unlinked(move.call, kept)
    if not kept and _stands_in_parentheses(script, move):
        outer, inner = script.span(move.moved), script.tree.bare(move.moved)
        cut = (Edit(Span(outer.start, inner.start), ""), Edit(Span(inner.end, tail), ""))
    if named is not None and not kept and _only_renames(script, move, named):
        if not script.edits.stands_alone(script.tree.statement(move.call)):
            return None
        cut = script.edits.drop(script.tree.statement(move.call))
    title = f"Make it on the device: device={where}"
    if made.random:
        return Fix.unsafe(title, edits, cut, because=_GENERATOR)
    if made.rounds:
        return Fix.close(title, edits, cut, because=_ROUNDING)
    if move.device is not None and _is_imported(script, move.device):
        because = _IMPORTED.format(script.code(move.device))
        return Fix.unsafe(title, edits, cut, because=because)
    return Fix.exact(title, edits, cut)


def _is_imported(script: Script, device: cst.BaseExpression) -> bool:
    """Return whether a device comes from a module that is not visible here."""
    if script.kind(device) is Kind.DEVICE or script.values.visibility.is_of_library(device):
        return False
    return script.name(device) is not None


def _stands_in_parentheses(script: Script, move: Move) -> bool:
    """Return whether parentheses around arithmetic become unnecessary without the move."""
    inner = script.tree.bare(move.moved)
    return (
        isinstance(move.moved, (cst.BinaryOperation, cst.Comparison))
        and len(move.moved.lpar) == 1
        and not move.call.func.lpar
        and isinstance(script.tree.parent(move.call), (cst.Assign, cst.Arg, cst.Return))
        and "\n" not in script.source.text[inner.start : inner.end]
    )


def _only_renames(script: Script, move: Move, named: cst.Assign) -> bool:
    """Return whether a line would be `x = x` without its move."""
    line = script.tree.parent(move.call)
    return (
        isinstance(line, cst.Assign)
        and len(line.targets) == 1
        and script.code(line.targets[0].target) == script.code(named.targets[0].target)
    )


def _is_known_at(script: Script, move: Move, named: cst.Assign) -> bool:
    """Return whether the device of a move is the same at the line that creates the tensor."""
    if move.device is None:
        return True
    at = script.tree.order(named)
    return all(
        binding.at < at
        for name in script.tree.within(move.device, cst.Name)
        for binding in script.scopes.reaching(name)
    )


def _with_device(script: Script, call: cst.Call, added: str, saved: int) -> Edits:
    """Add `device` to a call whose line becomes `saved` characters shorter after it."""
    end = script.span(call.args[-1].value).end
    line, last = script.edits.line_start(end), script.edits.line_end(end)
    code = script.tree.source.text[line:last].partition("#")[0].rstrip()
    if script.span(call).start >= line and len(code) - saved + len(added) + 2 <= _WIDTH:
        return script.edits.insert(end, f", {added}")
    name, _, value = added.partition("=")
    return script.edits.with_keyword(call, name, value)
