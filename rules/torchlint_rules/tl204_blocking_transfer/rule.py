"""TL204: a blocking copy makes the CPU wait until a batch is on the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    Edits,
    Finding,
    Fix,
    Frequency,
    Loader,
    Move,
    Note,
    Part,
    Role,
    Rule,
    Script,
    method_of,
)
from torchlint_rules.shared.pinning import Held, available, held, is_unpinned, unseen
from torchlint_rules.shared.wording import listed
from torchlint_rules.tl204_blocking_transfer.casts import cast_afterwards, uncast
from torchlint_rules.tl204_blocking_transfer.hostwrites import is_written_after
from torchlint_rules.tl204_blocking_transfer.tupleassignments import split_lines

_MOST_NAMES: Final = 4
"""How many copies the message of one finding names."""
_MOVERS: Final = ("accelerate", "lightning", "fastai")
"""Frameworks that put the batches of their loops on the device themselves."""
_OTHERS: Final = "other callers hand over what no loader made"
_OWN_CLASS: Final = (
    "if what moves is an object of a class that is not visible here, its method has to know the "
    "argument"
)


class BlockingTransfer(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the blocking copies of a batch, all of them together."""
        if available(script) is None:
            return
        waits: list[_Wait] = []
        due: list[Loader] | None = None
        for site in script.tree.in_file(script.calls.of_methods("to", "cuda")):
            call = site.node
            move = script.program.moves.move(call)
            if move is None or script.loaders.batches.is_lost(call) or _is_decided(script, call):
                continue
            if script.loops.owner(call) in _MOVERS:
                continue
            moved = uncast(move.moved)
            known = script.loaders.parts.of(moved)
            parts = known or script.loaders.parts_of_some_callers.of(moved)
            if not parts or any(_is_rare(script, part, call) for part in parts):
                continue
            if script.program.moves.is_never_cuda(move) and not script.program.moves.is_never_mps(
                move
            ):
                continue
            holds = {held(script, part, moved) for part in parts}
            if Held.OTHER in holds:
                continue
            if due is None:
                left = filter(partial(is_unpinned, script), script.loaders)
                due = [each for each in left if each.given("pin_memory") is None]
            pinned = any(part.loader.may_pin for part in parts)
            if not pinned and not any(part.loader in due for part in parts):
                continue
            if not is_written_after(script, move):
                value = _value(script, move)
                sure = moved is not move.moved or Held.UNSHOWN not in holds
                doubt = script.loaders.provenance.called_elsewhere(moved)
                doubt = doubt or ("" if known else _OTHERS)
                if not doubt and not pinned:
                    doubt = next(filter(None, (unseen(script, part.loader) for part in parts)), "")
                waits.append(_Wait(move, value, pinned, sure, doubt))
        for together in _batches(script, waits):
            yield self._finding(script, together)

    def _finding(self, script: Script, waits: list[_Wait]) -> Finding:
        names = list(dict.fromkeys(f"`{script.code(wait.move.moved)}`" for wait in waits))
        if len(names) > _MOST_NAMES:
            names[_MOST_NAMES - 1 :] = [f"{len(names) - _MOST_NAMES + 1} more"]
        value = next((wait.value for wait in waits if wait.value), "True")
        message = (
            f"this blocking copy makes the CPU wait until {listed(names)} "
            f"{'are' if names[1:] else 'is'} on the GPU; pass non_blocking={value}"
        )
        if not all(wait.pinned for wait in waits):
            message += " (needs pinned memory)"
        if any(cast_afterwards(script, wait.move) for wait in waits):
            message += ", and cast on the GPU: what a cast makes is not pinned"
        span, *others = (script.span(line[0].move.call) for line in _lines(script, waits))
        notes = tuple(Note(other, "and here") for other in others)
        return Finding(self.code, span, message, _fix(script, waits), notes)


class _Wait(NamedTuple):
    """A blocking copy, and the value of `non_blocking` that makes it asynchronous."""

    move: Move
    value: str | None
    pinned: bool
    is_tensor: bool
    """Whether the file shows that the moved value is a tensor."""
    doubt: str
    """Why the loader may be unable to pin it, or may be another one."""


def _batches(script: Script, waits: Sequence[_Wait]) -> list[list[_Wait]]:
    """Return the copies of each batch whose fix has the same class, whole lines of them.

    Those of a batch stand in one loop, or in one function without a loop.
    """
    batches: dict[tuple[int, bool], list[_Wait]] = {}
    for line in _lines(script, waits):
        loop = script.loops.batch_loop(line[0].move.call)
        place = loop.node if loop is not None else script.scopes.home(line[0].move.call)
        exact = all(wait.is_tensor and not wait.doubt for wait in line)
        batches.setdefault((id(place), exact), []).extend(line)
    return list(batches.values())


def _lines(script: Script, waits: Sequence[_Wait]) -> list[list[_Wait]]:
    """Return the copies of each statement, in source order."""
    lines: dict[int, list[_Wait]] = {}
    for wait in waits:
        lines.setdefault(id(script.tree.smallest_statement(wait.move.call)), []).append(wait)
    return list(lines.values())


def _is_decided(script: Script, call: cst.Call) -> bool:
    """Return whether a call passes, or may pass, `non_blocking`, or `.cpu()` waits at once."""
    site = script.calls.at(call)
    given = site.given("non_blocking")
    back = method_of(script.tree.parent(script.tree.parent(call))) == "cpu"
    return site.has_splat or given is not None or back


def _is_rare(script: Script, part: Part, call: cst.Call) -> bool:
    """Return whether a part is read from its loader, or moved, only now and then."""
    place = part.place
    around = next(script.loops.around(place), None)
    if isinstance(place, cst.Call) and (around is None or around.role is Role.EPOCH):
        return script.loops.frequency(call) is not Frequency.EVERY_PASS
    if isinstance(place, cst.For) and any(loop.node is place for loop in script.loops.around(call)):
        return script.loops.frequency(call, within=place) is Frequency.RARE
    return script.loops.frequency(call) is Frequency.RARE


def _value(script: Script, move: Move) -> str | None:
    """Return the value to pass: True, unless the device may be Apple's."""
    if script.program.moves.is_never_mps(move):
        return "True"
    device = move.device
    if isinstance(device, (cst.Name, cst.Attribute)) and script.program.moves.has_type(device):
        return f'{script.code(device)}.type == "cuda"'
    imported = script.edits.importing("torch", at=move.call)
    return f"{imported[0]}.cuda.is_available()" if imported is not None else None


def _fix(script: Script, waits: list[_Wait]) -> Fix | None:
    values = {wait.value for wait in waits}
    first = min((wait.move.call for wait in waits), key=script.tree.order)
    imported = script.edits.importing("torch", at=first)
    if None in values or imported is None or script.program.devices.framework != "none":
        return None
    edits = tuple(edit for line in _lines(script, waits) for edit in _passing(script, line))
    needed = imported[1] if any("is_available" in str(value) for value in values) else ()
    title = f"Pass non_blocking={waits[0].value}"
    reasons = [next((wait.doubt for wait in waits if wait.doubt), "")]
    reasons += [] if all(wait.is_tensor for wait in waits) else [_OWN_CLASS]
    if because := "; and ".join(filter(None, reasons)):
        return Fix.unsafe(title, edits, needed, because=because)
    return Fix.exact(title, edits, needed)


def _passing(script: Script, line: Sequence[_Wait]) -> Edits:
    """Return the edits that pass `non_blocking` in each copy of one statement."""
    given = {wait.move.call: f"non_blocking={wait.value}" for wait in line}
    moved_casts = [cast_afterwards(script, wait.move) for wait in line]
    if not any(moved_casts) and (split := split_lines(script, given)):
        return split
    return tuple(
        edit
        for wait, casting in zip(line, moved_casts, strict=True)
        for edit in (
            *script.edits.with_keyword(wait.move.call, "non_blocking", str(wait.value)),
            *casting,
        )
    )
