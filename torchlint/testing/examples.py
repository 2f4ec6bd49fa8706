"""A rule's own examples: reading them, and running each through the engine."""

from __future__ import annotations

import ast
import difflib
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from torchlint.config import Settings, target_version
from torchlint.engine import FileResult, FixResult, check_source, fix_source
from torchlint.engine.fixing import unchanged
from torchlint.engine.programs import Link, Programs, alone
from torchlint.page.document import Snippet
from torchlint.page.header import PageError
from torchlint.registry import Registry, RegistryError, RuleHead, Selection, load_registry
from torchlint.registry.catalogue import deprecation
from torchlint.registry.packs import rules_of
from torchlint.rule import Rule
from torchlint.source import Source

PATH: Final = "example.py"


class ExampleError(AssertionError):
    """An example that its rule fails, or that is malformed."""


@dataclass(frozen=True)
class Example:
    """One example: the input, the output of the fix, and the rows of findings.

    Lines above its code may change the settings: `target-torch: 2.2`, `target-device: cuda`,
    `options: workers=2`, and `select: TL801` for additional rules.
    """

    rule: type[Rule]
    sentence: str
    before: str
    after: str
    may: frozenset[int] = frozenset()
    """The rows where a finding may start: lines that begin with `-` or `!`."""
    must: frozenset[int] = frozenset()
    """The rows where a finding must start: lines that begin with `!`."""
    valid: bool = False
    settings: Settings = field(default_factory=Settings)
    beside: tuple[str, ...] = ()
    path: str = PATH
    others: Mapping[str, str] = field(default_factory=dict)
    """The texts of the other files that it is judged with, by path."""


def examples_of(rule: type[Rule]) -> Iterator[Example]:
    """Read every example of a rule, those with findings first; raises `ExampleError`."""
    try:
        page = rule.page()
    except PageError as error:
        raise ExampleError(str(error)) from None
    for snippet in page.reported:
        yield _reported(rule, snippet)
    for snippet in page.quiet:
        text = f"{snippet.code}\n"
        yield Example(rule, snippet.title, text, text, valid=True, **_shared(rule, snippet))


def check_rule(rule: type[Rule]) -> None:
    """Run every example of a rule; raises `ExampleError` for the first that fails."""
    for example in examples_of(rule):
        check_example(example)


def check_example(example: Example) -> None:
    """Run one example; raises `ExampleError`.

    The findings must be at the marked rows, and the fixes must give the output. Nothing is left
    to fix after them, and the engine reports no error: the output compiles and keeps its
    comments.
    """
    rules, settings = _selection(example), example.settings
    with _placed(example) as (path, link):
        source = Source(path, example.before)
        linked = link(source, settings)
        found = check_source(source, rules, settings, linked=linked)
        _check_findings(example, found)
        fixable = any(each.fix for each in found.findings)
        fixed = fix_source(source, rules, settings, link=link) if fixable else unchanged(found)
        _check_text(example, fixed)
        again = fix_source(fixed.after, rules, settings, link=link) if fixed.changed else fixed
    if again.after != fixed.after:
        raise _failure(example, "a second run changes more", _diff(fixed.after, again.after))


@contextmanager
def _placed(example: Example) -> Iterator[tuple[str, Link]]:
    """Yield the path of an example and what it is judged with; its other files are on the disk."""
    if not example.others:
        yield example.path, alone
        return
    with tempfile.TemporaryDirectory() as folder:
        files = {"pyproject.toml": "", **example.others, example.path: example.before}
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        yield str(Path(folder, example.path)), Programs().link


def _reported(rule: type[Rule], snippet: Snippet) -> Example:
    """Read an example with findings, whose lines begin with marks."""
    before: list[str] = []
    after: list[str] = []
    may, must = set(), set()
    for line in snippet.code.split("\n"):
        mark, code = line[:2].ljust(2), line[2:]
        if mark not in ("  ", "- ", "+ ", "! "):
            raise ExampleError(
                f"{rule.code}, {snippet.title!r}: no line may begin with {line[:2]!r}"
            )
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
        sentence=snippet.title,
        before="\n".join(before) + "\n",
        after="\n".join(after) + "\n",
        may=frozenset(may),
        must=frozenset(must),
        **_shared(rule, snippet),
    )


def _shared(rule: type[Rule], snippet: Snippet) -> dict[str, Any]:
    """Return what an example says about how it is judged."""
    return {
        "settings": _settings(rule, snippet),
        "beside": tuple(snippet.settings.get("select", "").split()),
        "path": snippet.path or PATH,
        "others": {path: f"{code}\n" for path, code in snippet.others.items()},
    }


def _settings(rule: type[Rule], snippet: Snippet) -> Settings:
    target = snippet.settings.get("target-torch")
    return Settings(
        fixable=(rule.code,),
        unsafe_fixes=True,
        target_torch=target_version(target) if target else None,
        target_device=snippet.settings.get("target-device", "auto"),
        rules={rule.name: _options(rule, snippet.settings.get("options", ""))},
    )


def _options(rule: type[Rule], written: str) -> dict[str, Any]:
    """Parse options such as `workers=2, only_hot=True`."""
    call = ast.parse(f"dict({written})", mode="eval").body
    assert isinstance(call, ast.Call)
    options = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    unknown = options.keys() - rule.options.keys()
    if unknown:
        raise ExampleError(f"{rule.code} has no option {', '.join(sorted(unknown))}")
    return options


def _selection(example: Example) -> Selection:
    """Select the rule of an example and its additional rules, from all registered rules."""
    registry = _installed()
    if registry is None:
        return Selection.of(example.rule)
    beside = [registry.find(code.strip(",")) for code in example.beside]
    heads = [RuleHead.of(example.rule), *beside]
    target = example.settings.target_torch
    return Selection(
        rules=tuple(head for head in heads if target is None or head.since <= target),
        known={**registry.known, example.rule.code: example.rule.name},
        complete=False,
    )


@cache
def _installed() -> Registry | None:
    """Return all rules, listed once, as that takes longer than most examples."""
    try:
        return load_registry()
    except RegistryError:
        return None


def _check_findings(example: Example, result: FileResult) -> None:
    if not result.is_whole:
        raise _failure(example, *result.errors, *result.warnings)
    source = Source(PATH, example.before)
    own = [each for each in result.findings if each.code == example.rule.code]
    rows = {source.position(finding.span.start).row for finding in own}
    problems = [f"{source.position(each.span.start).row}: {each.message}" for each in own] or [
        "nothing was found"
    ]
    if example.valid:
        if own:
            raise _failure(example, "it is valid, but has findings", *problems)
        return
    if not rows or not rows <= example.may or not example.must <= rows:
        expected = ", ".join(map(str, sorted(example.may)))
        raise _failure(example, f"findings are expected on rows {expected}", *problems)


def _check_text(example: Example, fixed: FixResult) -> None:
    if not fixed.is_whole:
        raise _failure(example, *fixed.errors, *fixed.warnings)
    if fixed.after.text != example.after:
        wanted = fixed.after.with_text(example.after)
        raise _failure(example, "the fixes give a different text", _diff(wanted, fixed.after))


def _failure(example: Example, *problems: str) -> ExampleError:
    heading = f"{example.rule.code}, {example.sentence!r}"
    return ExampleError("\n".join((heading, *problems, "in", example.before)))


def _diff(wanted: Source, got: Source) -> str:
    lines = difflib.unified_diff(
        wanted.text.splitlines(), got.text.splitlines(), "wanted", "got", lineterm=""
    )
    return "\n".join(lines)


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
