"""The places of parameters are those of the installed torch."""

from __future__ import annotations

import inspect
import pydoc

import pytest

from torchlint.semantic.values.signatures import _FUNCTIONS, place

pytest.importorskip("torch")

_OLD = ("torch.autograd.Variable", "torch.cuda.memory._record_memory_history")
"""What takes other arguments than its signature says, or says them by `*args`."""


@pytest.mark.parametrize("name", [each for each in _FUNCTIONS if each.startswith("torch.")])
def test_places_are_those_of_torch(name: str) -> None:
    made = pydoc.locate(name)
    try:
        parameters = list(inspect.signature(made).parameters)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        pytest.skip("written in C++")
    if name in _OLD or parameters[:1] == ["args"]:
        pytest.skip("its signature hides the parameters")
    known = _FUNCTIONS[name].split()
    assert parameters[: len(known)] == known


def test_a_method_has_places_where_no_function_is_known() -> None:
    assert place(None, "backward", "retain_graph") == 1
    assert place("torch.autograd.grad", "grad", "inputs") == 1
    assert place(None, "unheard_of", "x") is None
    assert place("torch.save", "save", "unheard_of") is None
