"""Every example of every rule, through the engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torchlint.registry import RegistryError, RuleHead, load_registry
from torchlint.testing import Example, ExampleError, check_example, examples_of

HEADS = load_registry().rules


def _examples(head: RuleHead) -> list[Example]:
    """Give the examples of a rule, none for one that cannot be read: another test names it."""
    try:
        return list(examples_of(head.load()))
    except (RegistryError, ExampleError):
        return []


def _parameters() -> Iterator[object]:
    for head in HEADS:
        for example in _examples(head):
            yield pytest.param(example, id=f"{head.code}: {example.sentence}")


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.code)
def test_the_rule_can_be_read(head: RuleHead) -> None:
    assert list(examples_of(head.load()))


@pytest.mark.parametrize("example", list(_parameters()))
def test_the_example_holds(example: Example) -> None:
    check_example(example)
