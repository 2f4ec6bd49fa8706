"""A rule's own examples: reading them, and running each through the engine."""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from torchlint.config import Settings, target_version
from torchlint.engine import FileResult, FixResult, check_source, fix_source
from torchlint.registry import RegistryError, RuleHead, Selection, load_registry
from torchlint.rule import Rule
from torchlint.source import Source

__all__ = ["Example", "ExampleError", "check_example", "check_rule", "examples_of"]

PATH: Final = "example.py"
_HEADER: Final = re.compile(r"# (target-torch|target-device|options|select): *(.*)")


class ExampleError(AssertionError):
    """An example that its rule does not live up to, or that is not well formed."""


@dataclass(frozen=True)
class Example:
    """One snippet: the input, the output of the fix, and the rows where findings may be.

    The first lines of a snippet may set what it is judged under: `# target-torch: 2.2`,
    `# target-device: cuda`, `# options: workers=2`, and `# select: TL801` for rules that are
    applied beside the one that the example is of.
    """

    rule: type[Rule]
    sentence: str
    before: str
    after: str
    may: frozenset[int] = frozenset()
    """The rows where a finding may start: lines that begin with `-` or `!`."""
    must: frozenset[int] = frozenset()
    """The rows where one must start: lines that begin with `!`."""
    valid: bool = False
    settings: Settings = field(default_factory=Settings)
    beside: tuple[str, ...] = ()


def examples_of(rule: type[Rule]) -> Iterator[Example]:
    """Read every example of a rule, those with findings first; raises `ExampleError`."""
    for sentence, snippet in rule.invalid.items():
        yield _read(rule, sentence, snippet, valid=False)
    for sentence, snippet in rule.valid.items():
        yield _read(rule, sentence, snippet, valid=True)


def check_rule(rule: type[Rule]) -> None:
    """Run every example of a rule; raises `ExampleError` for the first that fails."""
    for example in examples_of(rule):
        check_example(example)


def check_example(example: Example) -> None:
    """Run one example; raises `ExampleError`.

    The findings are where the example has them, the fixes make its output, nothing is left to
    fix after them, and the engine has no complaint: the output compiles and keeps its comments.
    """
    rules = _selection(example)
    source = Source(PATH, example.before)
    _check_findings(example, check_source(source, rules, example.settings))
    fixed = fix_source(source, rules, example.settings)
    _check_text(example, fixed)
    again = fix_source(fixed.after, rules, example.settings)
    if again.changed:
        raise _failure(example, "a second run changes more", _diff(fixed.after, again.after))


def _read(rule: type[Rule], sentence: str, snippet: str, *, valid: bool) -> Example:
    lines = textwrap.dedent(snippet.lstrip("\n")).rstrip().split("\n")
    header: dict[str, str] = {}
    while lines and (match := _HEADER.fullmatch(lines[0].strip())) is not None:
        header[match[1]] = match[2]
        del lines[0]
    if header:
        lines = textwrap.dedent("\n".join(lines)).split("\n")
    settings, beside = _settings(rule, header), tuple(header.get("select", "").split())
    if valid:
        text = "\n".join(lines) + "\n"
        return Example(rule, sentence, text, text, valid=True, settings=settings, beside=beside)
    before: list[str] = []
    after: list[str] = []
    may, must = set(), set()
    for line in lines:
        mark, code = line[:2].ljust(2), line[2:]
        if mark not in ("  ", "- ", "+ ", "! "):
            raise ExampleError(f"{rule.code}, {sentence!r}: no line may begin with {line[:2]!r}")
        if mark != "+ ":
            before.append(code)
        if mark in ("  ", "+ ", "! "):
            after.append(code)
        if mark in ("- ", "! "):
            may.add(len(before))
        if mark == "! ":
            must.add(len(before))
    return Example(
        rule=rule,
        sentence=sentence,
        before="\n".join(before) + "\n",
        after="\n".join(after) + "\n",
        may=frozenset(may),
        must=frozenset(must),
        settings=settings,
        beside=beside,
    )


def _settings(rule: type[Rule], header: dict[str, str]) -> Settings:
    target = header.get("target-torch")
    return Settings(
        fixable=(rule.code,),
        unsafe_fixes=True,
        target_torch=target_version(target) if target else None,
        target_device=header.get("target-device", "auto"),
        rules={rule.name: _options(rule, header.get("options", ""))},
    )


def _options(rule: type[Rule], written: str) -> dict[str, Any]:
    """Read `workers=2, only_hot=True`."""
    call = ast.parse(f"dict({written})", mode="eval").body
    assert isinstance(call, ast.Call)
    options = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    unknown = options.keys() - rule.options.keys()
    if unknown:
        raise ExampleError(f"{rule.code} has no option {', '.join(sorted(unknown))}")
    return options


def _selection(example: Example) -> Selection:
    """Select the rule of an example and those beside it, in a catalogue of all there are."""
    try:
        registry = load_registry()
    except RegistryError:
        return Selection.of(example.rule)
    beside = [registry.find(code.strip(",")) for code in example.beside]
    heads = [RuleHead.of(example.rule), *beside]
    target = example.settings.target_torch
    return Selection(
        rules=tuple(head for head in heads if target is None or head.since <= target),
        known={**registry.known, example.rule.code: example.rule.name},
        complete=False,
    )


def _check_findings(example: Example, result: FileResult) -> None:
    if result.errors:
        raise _failure(example, *result.errors)
    source = Source(PATH, example.before)
    own = [each for each in result.findings if each.code == example.rule.code]
    rows = {source.position(finding.span.start).row for finding in own}
    said = [f"{source.position(each.span.start).row}: {each.message}" for each in own] or [
        "nothing was found"
    ]
    if example.valid:
        if own:
            raise _failure(example, "it is valid, but has findings", *said)
        return
    if not rows or not rows <= example.may or not example.must <= rows:
        expected = ", ".join(map(str, sorted(example.may)))
        raise _failure(example, f"findings belong on the rows {expected}", *said)


def _check_text(example: Example, fixed: FixResult) -> None:
    if fixed.errors:
        raise _failure(example, *fixed.errors)
    if fixed.after.text != example.after:
        wanted = fixed.after.with_text(example.after)
        raise _failure(example, "the fixes make another text", _diff(wanted, fixed.after))


def _failure(example: Example, *said: str) -> ExampleError:
    heading = f"{example.rule.code}, {example.sentence!r}"
    return ExampleError("\n".join((heading, *said, "in", example.before)))


def _diff(wanted: Source, got: Source) -> str:
    lines = difflib.unified_diff(
        wanted.text.splitlines(), got.text.splitlines(), "wanted", "got", lineterm=""
    )
    return "\n".join(lines)
