from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_rules import rule_of, select

from torchlint.config import Settings
from torchlint.edit import Edit, Span, apply_edits
from torchlint.engine import fix_source
from torchlint.engine.fixproblem import fix_problem
from torchlint.finding import Finding, Fix
from torchlint.rule import Rule
from torchlint.source import Source

LINES = ("a = f(x, y)", "b = [x, (y + 1)]  # why", "if x:\n    c = 'é'", "d = x; e = y", "# note")
PIECES = ("z", "x", "", "(z)", "z, z", "# gone", ")", "'", "\n", "    ", "é", "y + ")


@dataclass(frozen=True)
class Plan:
    """A script and edits of it, each made by the fix of one rule, some by two."""

    text: str
    fixes: tuple[tuple[Edit, ...], ...]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a script and fixes with edits that do not overlap; the texts may be harmful."""
    newline = draw(st.sampled_from(("\n", "\r\n")))
    lines = draw(st.lists(st.sampled_from(LINES), min_size=1, max_size=5))
    text = "x = y = f = 1\n" + "".join(line + "\n" for line in lines)
    text = text.replace("\n", newline)
    cuts = draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=8, unique=True))
    spans = itertools.pairwise(sorted(cuts))
    edits = [
        Edit(Span(start, end if draw(st.booleans()) else start), draw(st.sampled_from(PIECES)))
        for start, end in spans
    ]
    groups = draw(st.lists(st.sets(st.sampled_from(edits), min_size=1), min_size=1, max_size=4))
    return Plan(text, tuple(tuple(sorted(group)) for group in groups))


def _rules(plan: Plan) -> list[type[Rule]]:
    """Return a rule for each fix, which speaks of the text as it was at first alone."""

    def found_by(edits: tuple[Edit, ...]) -> object:
        def found(rule: Rule, text: str) -> Iterator[Finding]:
            if text == plan.text:
                yield Finding(rule.code, edits[0].span, "edit this", Fix.exact("Edit", edits))

        return found

    return [
        rule_of(f"TL9{number:02}", f"rule-{number}", found_by(edits), ("x",))  # type: ignore[arg-type]
        for number, edits in enumerate(plan.fixes, start=10)
    ]


@given(plans())
@settings(deadline=None, max_examples=150)
def test_a_text_never_comes_to_harm(plan: Plan) -> None:
    before = Source("t.py", plan.text)
    result = fix_source(before, select(*_rules(plan)), Settings())
    made = [edit for each in result.applied if each.fix for edit in each.fix.edits]
    assert result.after.text == apply_edits(plan.text, made)
    assert result.changed == bool(made)
    if made:
        assert fix_problem(before, result.after, made) is None
    codes = {each.code for each in result.applied}
    for number, edits in enumerate(plan.fixes, start=10):
        assert set(edits) <= set(made) or f"TL9{number:02}" not in codes


@given(plans(), st.randoms())
@settings(deadline=None, max_examples=75)
def test_the_order_of_rules_does_not_matter(plan: Plan, random: object) -> None:
    rules = _rules(plan)
    first = fix_source(Source("t.py", plan.text), select(*rules), Settings())
    random.shuffle(rules)  # type: ignore[attr-defined]
    again = fix_source(Source("t.py", plan.text), select(*rules), Settings())
    assert (first.after, first.applied) == (again.after, again.applied)
    assert first.warnings == again.warnings


@given(plans())
@settings(deadline=None, max_examples=75)
def test_what_is_made_is_never_made_again(plan: Plan) -> None:
    result = fix_source(Source("t.py", plan.text), select(*_rules(plan)), Settings())
    if result.changed:
        again = fix_source(result.after, select(*_rules(plan)), Settings())
        assert not again.changed
