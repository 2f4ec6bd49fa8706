"""TL604: training that continues in evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Duty, Edits, Finding, Fix, Mode, Note, Rule, Script, StuckMode

_DELIBERATE: Final = frozenset(
    "mc mcdropout montecarlo bayes bayesian uncertainty generator discriminator gan netg netd "
    "gen disc teacher frozen".split()
)
_ONE_LETTER: Final = frozenset("G D".split())
BECAUSE: Final = (
    "dropout works again and batch norm takes the statistics of the batch, from the second round on"
)


class TrainingModeNotRestored(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every `eval()` that stays in effect during training."""
        for stuck in script.modules.stuck_modes.all:
            owned = script.loops.is_done(stuck.training.node, Duty.MODES)
            if owned or not _matters(script, stuck):
                continue
            name = script.code(stuck.network)
            round_ = "batch" if stuck.outer is stuck.training else "epoch"
            said = f"nothing calls `{name}.train()` after this: from here on"
            if _is_restored_later(script, stuck):
                said = f"nothing calls `{name}.train()` before the next epoch: until then"
            message = (
                f"{said} `{name}` trains in evaluation mode, without dropout and with frozen batch "
                f"norm; call it before the next {round_}"
            )
            found = _fix(script, stuck)
            fix = Fix.unsafe(found[0], found[1], because=BECAUSE) if found else None
            notes = [Note(script.span(stuck.network), f"`{name}` is trained here")]
            place = stuck.switch
            if script.modules.stuck_modes.is_shared(stuck):
                notes.append(Note(script.span(place), "evaluation mode begins here"))
                place = stuck.at
            yield Finding(self.code, script.span(place), message, fix, tuple(notes))


def _matters(script: Script, stuck: StuckMode) -> bool:
    network = stuck.network
    if script.modules.modes.depends_on_mode(network) is False:
        return False
    text = script.code(network)
    if _DELIBERATE.intersection(script.names.words(text)) or text in _ONE_LETTER:
        return False
    return script.modules.modes.mode(stuck.training.node, network) is not Mode.EVAL


def _is_restored_later(script: Script, stuck: StuckMode) -> bool:
    """Return whether a loop around the batches switches the network back in each of its passes."""
    modes = script.modules.modes
    return stuck.outer is stuck.training and any(
        switch.mode is Mode.TRAIN
        and modes.same_network(switch.network, stuck.network)
        and not script.tree.inside(switch.call, stuck.training.node)
        for loop in script.loops.around(stuck.training.node)
        for switch in modes.switches(loop.node.body)
    )


def _fix(script: Script, stuck: StuckMode) -> tuple[str, Edits] | None:
    name = script.code(stuck.network)
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    line, title = f"{name}.train()", "Switch back to training mode"
    if stuck.outer is stuck.training:
        edits = _behind_evaluation(script, stuck, line)
    elif script.scopes.home(stuck.outer.node) is script.scopes.home(stuck.training.node):
        edits = script.edits.first_in(stuck.outer.node.body, line)
    elif script.edits.stands_alone(stuck.training.node):
        edits = script.edits.before(stuck.training.node, line)
    else:
        edits = None
    return (title, edits) if edits else None


def _behind_evaluation(script: Script, stuck: StuckMode, line: str) -> Edits | None:
    """Insert a line after an evaluation in a batch loop."""
    statement = script.tree.statement(stuck.at)
    block = script.tree.parent(statement)
    if block is stuck.outer.node.body:
        return script.edits.first_in(stuck.outer.node.body, line)
    if not isinstance(block, cst.IndentedBlock):
        return None
    last = block.body[-1] if stuck.at is stuck.switch else statement
    leaving = (cst.Break, cst.Continue, cst.Return, cst.Raise)
    if isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], leaving):
        return None
    return script.edits.after(last, line) if script.edits.stands_alone(last) else None
