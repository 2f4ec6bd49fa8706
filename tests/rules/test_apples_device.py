"""On Apple's devices, which lack float64, no fix brings it in."""

from __future__ import annotations

import dataclasses

import pytest

from torchlint.config import Settings
from torchlint.engine import check_source
from torchlint.registry import load_registry
from torchlint.source import Source
from torchlint.testing import examples_of

REGISTRY = load_registry()
HEADS = [
    head for head in REGISTRY.select(Settings(select=("ALL",))) if not head.code.startswith("TL0")
]
OF_CUDA = {"TL701"}
"""Makes processes that each have a GPU of CUDA's, and sums over them in float64."""
WIDE = (".double()", "float64")


def _widening(device: str) -> set[str]:
    """Return the rules that bring float64 into one of their examples."""
    found = set()
    for head in HEADS:
        for example in examples_of(head.load()):
            settings = dataclasses.replace(example.settings, target_device=device)
            rules = REGISTRY.select(Settings(select=(head.code,)))
            for finding in check_source(
                Source("example.py", example.before), rules, settings
            ).findings:
                written = "".join(edit.text for edit in finding.fix.edits) if finding.fix else ""
                if any(word in written for word in WIDE):
                    found.add(head.code)
    return found


@pytest.mark.parametrize(("device", "some"), [("mps", False), ("cuda", True)])
def test_no_fix_for_apples_device_adds_in_float64(device: str, some: bool) -> None:
    assert bool(_widening(device) - OF_CUDA) is some
