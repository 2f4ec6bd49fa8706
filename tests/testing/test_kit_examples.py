from __future__ import annotations

import pytest
from tiny_rules import broken, finding, replacing

from torchlint.rule import Rule
from torchlint.testing import ExampleError, check_rule, examples_of


def _with(rule: type[Rule], **examples: dict[str, str]) -> type[Rule]:
    return type("Copy", (rule,), {"__doc__": rule.__doc__, **examples})


FINE = {
    "a call": """
          y = 1
        - x = 2
        + z = 2

        - f(x)
        + f(z)
        """
}


def test_examples_that_hold() -> None:
    rule = _with(replacing(r"x\b", "z"), invalid=FINE, valid={"no x": "\n    xy = 1\n"})
    check_rule(rule)
    first, second = examples_of(rule)
    assert first.before == "y = 1\nx = 2\n\nf(x)\n"
    assert first.after == "y = 1\nz = 2\n\nf(z)\n"
    assert first.may == frozenset({2, 4})
    assert not first.must
    assert not first.valid
    assert (second.before, second.after, second.valid) == ("xy = 1\n", "xy = 1\n", True)


def test_a_line_that_is_flagged_and_stays() -> None:
    check_rule(_with(finding("x"), invalid={"it": "\n    ! x = 1\n"}, valid={"none": "y"}))


@pytest.mark.parametrize(
    ("rule", "invalid", "valid", "said"),
    [
        (finding("x"), "! y = 1", "y", "nothing was found"),
        (finding("x"), "! x = 1\n! y = 1", "y", "findings are expected on rows 1, 2"),
        (finding("x"), "! x = 1\n  x = 2", "y", "findings are expected on rows 1\n1: x is here"),
        (finding("x"), "! x = 1", "x = 1", "it is valid, but has findings"),
        (replacing(r"x\b", "z"), "- x = 1\n+ y = 1", "y", "-y = 1\n+z = 1"),
        (replacing(r"x\b", "z"), "! x = 1", "y", "the fixes give a different text"),
        (replacing("x = 1", "x = ("), "- x = 1\n+ x = 2", "y", "does not compile"),
        (replacing("x = 1  # a", "z = 1"), "- x = 1  # a\n+ z = 1", "y", "loses the comment `# a`"),
        (replacing("x", "xx"), "- x = 1\n+ xx = 1", "y", "did not settle"),
        (broken(), "! x = 1", "y", "internal error in TL903"),
        (finding("x"), "* x = 1", "y", "no line may begin with '* '"),
        (finding("x"), "# options: many=2\n! x = 1", "y", "has no option many"),
    ],
)
def test_an_example_that_does_not_hold(
    rule: type[Rule], invalid: str, valid: str, said: str
) -> None:
    copy = _with(rule, invalid={"the bad one": invalid}, valid={"the good one": valid})
    with pytest.raises(ExampleError) as caught:
        check_rule(copy)
    assert said in str(caught.value)


def test_the_first_lines_set_what_an_example_is_judged_under() -> None:
    header = "# target-torch: 2.2\n# target-device: cuda\n# options: workers=2, deep=True\n"
    rule = _with(finding("x"), invalid={"it": header + "! x = 1"}, valid={"none": "y"})
    rule.options = {"workers": 4, "deep": False}
    rule.since = (2, 2)
    (example, _) = examples_of(rule)
    assert example.before == "x = 1\n"
    assert (example.settings.target_torch, example.settings.target_device) == ((2, 2), "cuda")
    assert example.settings.rules == {"reporting": {"workers": 2, "deep": True}}
    check_rule(rule)
    rule.since = (2, 3)
    with pytest.raises(ExampleError, match="nothing was found"):
        check_rule(rule)
