"""Numbers that are read from the device and written into a tensor there: a part of TL201, TL202."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Form, Frequency, Reading, Role, Script, State

_MADE: Final = ("torch.zeros", "torch.empty", "torch.ones", "torch.full")
_HOST: Final = ("cpu", None)


def stored_numbers(script: Script, code: str, role: Role) -> Iterator[Finding]:
    """Yield a finding for each read of a batch loop whose number goes back to the device."""
    if not script.readings.are_in_file or not script.program.devices.can_use_accelerator:
        return
    for loop in script.loops.of(role):
        for read in script.readings.within(loop.node.body):
            held = holder_on_device(script, read)
            if held is None or script.loops.frequency(read.node) is not Frequency.EVERY_PASS:
                continue
            kept = f"{script.tree.brief(read.tensor)}.detach()"
            message = (
                f"`{script.tree.brief(read.node)}` waits for the device in every batch, and "
                f"`{held}` takes the number back there: store `{kept}`"
            )
            yield Finding(code, script.span(read.node), message, _detached(script, read))


def _detached(script: Script, read: Reading) -> Fix | None:
    """Return the fix that stores the tensor itself, None where a comment would be lost."""
    if "#" in script.code(read.node):
        return None
    edits = script.edits.replace(read.node, f"{script.code(read.tensor)}.detach()")
    return Fix.exact("Store the tensor", edits)


def holder_on_device(script: Script, read: Reading) -> str | None:
    """Return the tensor on the device of which an item is set to what is read."""
    line = script.tree.parent(read.node)
    if read.form is not Form.NUMBER or not isinstance(line, cst.Assign) or len(line.targets) != 1:
        return None
    target = line.targets[0].target
    if not isinstance(target, cst.Subscript) or not isinstance(target.value, cst.Name):
        return None
    made = script.scopes.only(target.value).value
    if not isinstance(made, cst.Call) or script.name(made.func) not in _MADE:
        return None
    device = script.calls.at(made).argument("device")
    if device.state is State.ABSENT or any(device.equals(host) for host in _HOST):
        return None
    if script.values.placement.on_host(read.tensor) or not isinstance(
        read.tensor, (cst.Name, cst.Call)
    ):
        return None
    return target.value.value
