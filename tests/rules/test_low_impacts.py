"""Examples whose title says that the impact is low."""

from __future__ import annotations

import pytest

import torchlint
from torchlint.registry import load_registry
from torchlint.testing import Example, examples_of

_SAID = ": low impact"


def _examples() -> list[Example]:
    heads = load_registry().rules
    return [
        each for head in heads for each in examples_of(head.load()) if each.sentence.endswith(_SAID)
    ]


@pytest.mark.parametrize(
    "example", _examples(), ids=lambda each: f"{each.rule.code}: {each.sentence}"
)
def test_the_impact_is_low(example: Example) -> None:
    found = torchlint.check(example.before, select=[example.rule.code])
    assert {each.impact for each in found} == {"low"}
