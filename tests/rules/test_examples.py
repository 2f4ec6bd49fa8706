"""Every example of every rule, through the engine."""

from torchlint.testing import rule_tests

test_the_example_holds = rule_tests("torchlint_rules")
