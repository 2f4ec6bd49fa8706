"""Rules of a few lines for tests of what stands around rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from torchlint.edit import Edit, Span
from torchlint.finding import Finding, Fix, Safety
from torchlint.registry import Selection
from torchlint.rule import Rule
from torchlint.semantic.script import Script

PAGE = """
## What it does
Nothing outside of tests.

## Why it is slow
It is not.

## When not to
Always.

## Fix safety
As the test says.
"""


def rule_of(
    its_code: str,
    its_name: str,
    found: Callable[[Rule, str], Iterator[Finding]],
    its_needs: tuple[str, ...],
    **parts: Any,
) -> type[Rule]:
    """Return a rule that looks at nothing but the text."""

    def check(self: Rule, script: Script) -> Iterator[Finding]:
        return found(self, script.source.text)

    body = {
        "__doc__": PAGE,
        "code": its_code,
        "name": its_name,
        "summary": its_name,
        "impact": "low",
        "safety": Safety.EXACT,
        "about": its_needs,
        "needs": its_needs,
        "invalid": {"it is there": "x"},
        "valid": {"it is not": "x"},
        "check": check,
    }
    return type(its_name.title().replace("-", ""), (Rule,), {**body, **parts})


def finding(word: str) -> type[Rule]:
    """Return TL901, which reports a word and has no fix."""

    def found(rule: Rule, text: str) -> Iterator[Finding]:
        for match in re.finditer(rf"\b{word}\b", text):
            yield Finding(rule.code, Span(*match.span()), f"{word} is here")

    return rule_of("TL901", "reporting", found, (word,))


def replacing(
    old: str,
    new: str,
    code: str = "TL902",
    name: str = "replacing",
    safety: Safety = Safety.EXACT,
) -> type[Rule]:
    """Return a rule that replaces every match of a pattern."""

    def found(rule: Rule, text: str) -> Iterator[Finding]:
        for match in re.finditer(old, text):
            span = Span(*match.span())
            fix = Fix(f"Write {new}", (Edit(span, match.expand(new)),), safety, "a test")
            yield Finding(rule.code, span, f"{old} is here", fix)

    return rule_of(code, name, found, (re.match(r"\W*(\w*)", old)[1],))  # type: ignore[index]


def broken(word: str = "x") -> type[Rule]:
    """Return TL903, which fails on whatever it is asked about."""

    def found(rule: Rule, text: str) -> Iterator[Finding]:
        raise KeyError("no such thing")
        yield

    return rule_of("TL903", "broken", found, (word,))


def select(*rules: type[Rule]) -> Selection:
    """Select rules together with the two of the engine."""
    from torchlint_rules.tl001_unparsable_file import UnparsableFile
    from torchlint_rules.tl002_unused_suppression import UnusedSuppression

    return Selection.of(UnparsableFile, UnusedSuppression, *rules)
