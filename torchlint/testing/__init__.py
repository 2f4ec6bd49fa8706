"""The test kit for rules: examples on the rule's page, golden files beside a script.

`test_rules = rule_tests("torchlint_acme")` makes test cases of every example of a pack.
"""

from torchlint.testing.examples import (
    Example,
    ExampleError,
    check_example,
    check_rule,
    examples_of,
    rule_tests,
)
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
    "rule_tests",
]
