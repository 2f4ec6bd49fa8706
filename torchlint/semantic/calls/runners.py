"""Runners: calls that hand over a function with its arguments, for a library to run it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.calls.part import Part
from torchlint.semantic.syntax.methods import named_arguments, word_of

_SPAWN: Final = ("torch.multiprocessing", "torch_xla.distributed.xla_multiprocessing")


class _Runner(NamedTuple):
    """How a call names the function and its arguments: one sequence, or all that follow it.

    `own` are the arguments that the library passes before these, None where it depends on how many
    the function takes.
    """

    function: str
    place: int
    arguments: str | None
    own: int | None = 0


_STARTS: Final = _Runner("target", 1, "args")
_SPAWNS: Final = _Runner("fn", 0, "args", 1)
_NAMED: Final = {
    **dict.fromkeys(f"{each}.spawn" for each in _SPAWN),
    **dict.fromkeys(("torch.multiprocessing.start_processes", "torch.multiprocessing.spawn.spawn")),
}
_FUNCTIONS: Final = {
    **dict.fromkeys(_NAMED, _SPAWNS),
    "ignite.distributed.spawn": _Runner("fn", 1, "args", 1),
    "accelerate.notebook_launcher": _Runner("function", 0, "args"),
    "accelerate.debug_launcher": _Runner("function", 0, "args"),
}
_METHODS: Final = {
    "Process": _STARTS,
    "Thread": _STARTS,
    "add_event_handler": _Runner("handler", 1, None, None),
    "submit": _Runner("fn", 0, None),
    "launch": _Runner("function", 0, None, 1),
    "run": _Runner("func", 0, None, 1),
}
"""Classes and methods by their last word, which must name a function of the file."""


class Runners(Part):
    """Finds what libraries pass to the functions that they run."""

    def given(
        self, function: cst.FunctionDef, parameter: cst.Param
    ) -> Iterator[cst.BaseExpression]:
        """Yield what libraries are told to pass to a parameter of a function."""
        taken = list(function.params.params)
        if taken and self.functions.owner_of_self(taken[0]) is not None:
            taken = taken[1:]
        place = next((at for at, each in enumerate(taken) if each is parameter), None)
        for call, runner in self._handing_over(function) if place is not None else ():
            given = self._arguments(call, runner)
            own = int(len(taken) > len(given)) if runner.own is None else runner.own
            if place is not None and own <= place < own + len(given):
                if not any(map(_is_starred, given)):
                    yield given[place - own].value

    def _handing_over(self, function: cst.FunctionDef) -> Iterator[tuple[cst.Call, _Runner]]:
        """Yield the calls that hand over a function for a library to run."""
        for mention in self.functions.mentions(function.name.value):
            call = self.tree.taker(mention)
            if call is None:
                continue
            runner = _FUNCTIONS.get(self.names.name(call.func) or "") or _METHODS.get(word_of(call))
            if runner is not None and _function(call, runner) is mention:
                if self.functions.definition(mention) is function:
                    yield call, runner

    def _arguments(self, call: cst.Call, runner: _Runner) -> Sequence[cst.Arg | cst.BaseElement]:
        """Return the arguments that a call shows that it hands over with a function."""
        behind = _plain(call)[runner.place + 1 :]
        if runner.arguments is None:
            return behind
        given = [each.value for each in behind[:1]]
        given += named_arguments(call, runner.arguments or "")
        held = [
            self.scopes.only(each).assigned if type(each) is cst.Name else each for each in given
        ]
        return held[-1].elements if held and isinstance(held[-1], (cst.Tuple, cst.List)) else ()


def _function(call: cst.Call, runner: _Runner) -> cst.BaseExpression | None:
    """Return the function that a call hands over."""
    if spelled := named_arguments(call, runner.function):
        return spelled[0]
    plain = _plain(call)
    return plain[runner.place].value if runner.place < len(plain) else None


def _plain(call: cst.Call) -> list[cst.Arg]:
    return [each for each in call.args if each.keyword is None]


def _is_starred(each: cst.Arg | cst.BaseElement) -> bool:
    return isinstance(each, cst.StarredElement) or (isinstance(each, cst.Arg) and bool(each.star))
