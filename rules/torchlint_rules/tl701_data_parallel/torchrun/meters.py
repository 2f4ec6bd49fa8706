"""Average meters: objects of this file that accumulate the arguments of `update`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from torchlint.api import Script, Share, Shares, receiver_of


@dataclass
class Meter:
    """The effect of one call on the fields of a meter."""

    call: cst.Call
    fields: dict[str, Share] = field(default_factory=dict)
    """The fields that accumulate."""
    last: dict[str, Share] = field(default_factory=dict)
    """The fields that hold the last value."""
    computed: dict[str, str] = field(default_factory=dict)
    """The fields computed from the others, with the code."""
    strange: bool = False
    """Whether the added values cannot be summed over processes."""

    def join(self, other: Meter) -> None:
        """Merge another call for the same meter."""
        self.strange |= other.strange or other.fields != self.fields or other.last != self.last

    def derived(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the fields computed from the others, with the code for a meter's name."""
        for to, code in self.computed.items():
            yield to, code.replace("self.", f"{name}.")


def meter_of(script: Script, shares: Shares, call: cst.Call) -> Meter | None:
    """Return the effect of a call on a meter whose class is in this file, None for other calls."""
    held = receiver_of(call)
    owner = script.functions.instance_of(held) if held is not None else None
    callee = script.functions.callee(call)
    if owner is None or callee is None or set(script.functions.bases(owner)) - {"builtins.object"}:
        return None
    meter = Meter(call)
    share = shares.called(call, callee)
    for line in callee.body.body:
        if not _is_plain(line) or not _take(script, meter, line, share):
            return None
    return meter if meter.fields else None


def _is_plain(line: cst.CSTNode) -> bool:
    return isinstance(line, cst.SimpleStatementLine)


def _take(
    script: Script, meter: Meter, line: cst.CSTNode, share: Callable[[cst.CSTNode], Share]
) -> bool:
    """Record one line of `update`; return False if it does more than store numbers."""
    assert isinstance(line, cst.SimpleStatementLine)
    for small in line.body:
        if isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString):
            continue
        if isinstance(small, cst.AugAssign) and isinstance(small.operator, cst.AddAssign):
            target = _field(small.target)
            if target is None:
                return False
            found = share(small.value)
            meter.fields[target] = Share.SUM if found is Share.SIZE else found
            meter.strange |= found in (Share.OWN, Share.ROWS, Share.COLUMNS)
            continue
        if not isinstance(small, cst.Assign) or len(small.targets) != 1:
            return False
        target = _field(small.targets[0].target)
        if target is None:
            return False
        if _is_computed(script, small.value, meter):
            meter.computed[target] = script.code(small.value)
            continue
        found = share(small.value)
        meter.last[target] = found
        meter.strange |= found in (Share.OWN, Share.ROWS, Share.COLUMNS)
    return True


def _field(node: cst.CSTNode) -> str | None:
    if not isinstance(node, cst.Attribute) or not isinstance(node.value, cst.Name):
        return None
    return node.attr.value if node.value.value == "self" else None


def _is_computed(script: Script, value: cst.BaseExpression, meter: Meter) -> bool:
    """Return whether a value is computed only from fields that accumulate."""
    attributes = list(script.tree.within(value, cst.Attribute))
    names = [name.value for name in script.tree.within(value, cst.Name)]
    read = {_field(each) for each in attributes}
    own = set(names) - {word for word in read if word} <= {"self", "max"}
    return bool(attributes) and own and read <= set(meter.fields)
