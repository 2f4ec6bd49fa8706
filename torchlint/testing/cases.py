"""The examples of a package of rules as pytest cases."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from torchlint.registry import RegistryError, RuleHead
from torchlint.registry.catalogue import deprecation
from torchlint.registry.packs import rules_of
from torchlint.testing.examples import ExampleError, check_example, examples_of


@dataclass(frozen=True)
class Case:
    """One check of a pack: `run` raises `ExampleError` or `RegistryError`."""

    name: str
    run: Callable[[], None]


def rule_tests(package: str) -> Callable[[Case], None]:
    """Return a pytest test with a case for every rule of a package and for each example.

    A test file only needs the line `test_rules = rule_tests("torchlint_acme")`.
    """
    import pytest

    @pytest.mark.parametrize("case", [pytest.param(each, id=each.name) for each in _cases(package)])
    def test(case: Case) -> None:
        try:
            case.run()
        except (ExampleError, RegistryError) as error:
            pytest.fail(str(error), pytrace=False)

    return test


def _cases(package: str) -> Iterator[Case]:
    """Yield the cases of a package, with a failing case for what cannot be read."""
    try:
        heads = list(rules_of(package, package))
    except RegistryError as error:
        yield _failing(package, error)
        return
    if not heads:
        yield _failing(package, RegistryError(f"the package {package} holds no rules"))
    for text in deprecation(package, heads):
        warnings.warn(text, DeprecationWarning, stacklevel=2)
    for head in heads:
        yield from _cases_of(head)


def _cases_of(head: RuleHead) -> Iterator[Case]:
    try:
        head.read()
        examples = list(examples_of(head.load()))
    except (RegistryError, ExampleError) as error:
        yield _failing(head.code, error)
        return
    for example in examples:
        yield Case(f"{head.code}: {example.sentence}", partial(check_example, example))


def _failing(name: str, error: ExampleError | RegistryError) -> Case:
    def fail() -> None:
        raise error

    return Case(name, fail)
