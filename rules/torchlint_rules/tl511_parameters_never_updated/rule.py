"""TL511: parameters that never learn, though a script trains."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from torchlint.api import Edit, Finding, Fix, Kind, Note, Rule, Script, Span
from torchlint_rules.shared.grouping import joined
from torchlint_rules.tl511_parameters_never_updated.cutlosses import cut_losses
from torchlint_rules.tl511_parameters_never_updated.listed import listed
from torchlint_rules.tl511_parameters_never_updated.replaced import replaced
from torchlint_rules.tl511_parameters_never_updated.unregistered import unregistered

_CALLED = {"backward": (Kind.LOSS, "gradient"), "step": (Kind.OPTIMIZER, "update")}


class ParametersNeverUpdated(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Report losses without a graph, parameters that no network holds, and missing calls."""
        for cut in cut_losses(script):
            fix = (
                Fix.unsafe("Use the loss itself", cut.edits, because="the network starts to learn")
                if cut.edits
                else None
            )
            note = Note(script.span(cut.backward), "goes backward here")
            yield Finding(self.code, script.span(cut.node), cut.message, fix, (note,))
        found = (
            (each.owner, Finding(self.code, script.span(each.node), each.message, each.fix))
            for each in chain(unregistered(script), listed(script))
        )
        yield from joined(script, found, ("part", "parts"))
        for late in replaced(script):
            what, network = script.code(late.target), script.code(late.network)
            message = (
                f"{late.optimizer.label} took the parameters of `{network}` before `{what}` was "
                "made, whose weights never learn: make the optimizer after it"
            )
            note = Note(script.span(late.optimizer.node), "made too early here")
            yield Finding(self.code, script.span(late.target), message, None, (note,))
        yield from self._uncalled(script)

    def _uncalled(self, script: Script) -> Iterator[Finding]:
        """Yield the lines that name the backward pass or the step without calling it."""
        for word, (kind, missing) in _CALLED.items():
            for line in script.functions.uncalled(word):
                if script.kind(line.value) is not kind or not script.tree.is_own(line):
                    continue
                what, end = script.code(line), script.span(line).end
                message = f"`{what}` without parentheses calls nothing: no {missing} happens here"
                edits = (Edit(Span(end, end), "()"),)
                fix = Fix.unsafe("Call it", edits, because="the network starts to learn")
                yield Finding(self.code, script.span(line), message, fix)
