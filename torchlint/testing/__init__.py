"""The test kit for rules: examples in the rule's class, golden files beside a script."""

from torchlint.testing.examples import Example, ExampleError, check_example, check_rule, examples_of
from torchlint.testing.golden import Golden, golden_of_rule, goldens, refresh

__all__ = [
    "Example",
    "ExampleError",
    "Golden",
    "check_example",
    "check_rule",
    "examples_of",
    "golden_of_rule",
    "goldens",
    "refresh",
]
