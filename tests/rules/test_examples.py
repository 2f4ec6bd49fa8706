"""Every example of every rule, through the engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torchlint.registry import load_registry
from torchlint.testing import Example, check_example, examples_of


def _parameters() -> Iterator[object]:
    for head in load_registry().rules:
        for example in examples_of(head.load()):
            yield pytest.param(example, id=f"{head.code}: {example.sentence}")


@pytest.mark.parametrize("example", list(_parameters()))
def test_the_example_holds(example: Example) -> None:
    check_example(example)
