"""On Apple's devices, which lack float64, no fix brings it in."""

from __future__ import annotations

import dataclasses

import pytest

from torchlint.config import Settings
from torchlint.engine import check_source
from torchlint.registry import load_registry
from torchlint.source import Source
from torchlint.testing import Example, examples_of

REGISTRY = load_registry()
OF_CUDA = {"TL701"}
"""Makes processes that each have a GPU of CUDA's, and sums over them in float64."""
WIDE = (".double()", "float64")


def _fixed_in(example: Example, code: str, device: str) -> str:
    """Return what the fixes of a rule write in an example for a device."""
    settings = dataclasses.replace(example.settings, target_device=device)
    rules = REGISTRY.select(Settings(select=(code,)))
    findings = check_source(Source("example.py", example.before), rules, settings).findings
    edits = [edit for finding in findings if finding.fix for edit in finding.fix.edits]
    return "".join(edit.text for edit in edits)


def _is_wide(text: str) -> bool:
    return any(word in text for word in WIDE)


WIDENING = [
    (head.code, example)
    for head in REGISTRY.select(Settings(select=("ALL",)))
    for example in examples_of(head.load())
    if _is_wide(example.after) and not _is_wide(example.before)
]
"""The examples whose fix brings float64 in where nothing is known of the device."""


@pytest.mark.parametrize(
    ("code", "example"),
    [
        pytest.param(code, example, id=f"{code} {example.sentence}")
        for code, example in WIDENING
        if code not in OF_CUDA
    ],
)
def test_no_fix_for_apples_device_adds_in_float64(code: str, example: Example) -> None:
    assert _is_wide(_fixed_in(example, code, "cuda"))
    assert not _is_wide(_fixed_in(example, code, "mps"))


def test_some_fix_brings_float64_in_elsewhere() -> None:
    assert {code for code, _ in WIDENING} - OF_CUDA
