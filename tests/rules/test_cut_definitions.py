"""A definition that moves to another module makes no fix safer, and adds none that is safe.

Each function, class and named value at the top of the fixtures, and of the examples, is cut out in
turn and imported instead: what a rule looked at before is out of sight then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import libcst as cst
import pytest

from torchlint.config import Settings
from torchlint.engine import check_source
from torchlint.finding import Safety
from torchlint.registry import Registry, load_registry
from torchlint.semantic.script import Script
from torchlint.source import Source
from torchlint.testing import examples_of

REGISTRY: Registry = load_registry()
CODES = [head.code for head in REGISTRY.select(Settings(select=("ALL",))) if head.code > "TL002"]
FIXTURES = Path(__file__).parents[2] / "fixtures"
SCRIPTS = sorted(
    path
    for folder in ("rules", "scripts", "quiet")
    for path in (FIXTURES / folder).rglob("*.py")
    if path.name not in ("fast.py", "after.py")
)
LOADERS = ("TL101", "TL102", "TL204")

Fixes = dict[tuple[str, str], list[int]]
"""How safe the fixes are, the safest first, of the findings of one rule on lines of one text."""

NO_FIX = len(Safety)


def _cuts(text: str) -> Iterator[tuple[str, str]]:
    """Yield what is cut out, and the script that imports it."""
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        name = _defined(node)
        if name:
            decorators = getattr(node, "decorator_list", ())
            first = min([node.lineno, *(each.lineno for each in decorators)]) - 1
            imported = f"from elsewhere import {name}\n"
            yield name, "".join((*lines[:first], imported, *lines[node.end_lineno :]))


def _defined(node: ast.stmt) -> str:
    """Return the names that a statement defines, joined by commas."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return node.name
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return ""
    target = node.targets[0]
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    plain = [each.id for each in names if isinstance(each, ast.Name)]
    return ", ".join(plain) if len(plain) == len(names) else ""


def _fixes(text: str, settings: Settings) -> Fixes:
    source = Source("example.py", text)
    lines, order = text.splitlines(), list(Safety)
    found: Fixes = {}
    for finding in check_source(source, REGISTRY.select(settings), settings).findings:
        row = source.position(finding.span.start).row
        rank = order.index(finding.fix.safety) if finding.fix is not None else NO_FIX
        found.setdefault((finding.code, lines[row - 1].strip()), []).append(rank)
    return {place: sorted(ranks) for place, ranks in found.items()}


def _safer(before: Fixes, after: Fixes) -> list[tuple[str, str]]:
    """Return the findings whose fix became safer, and those that are new and have a safe one."""
    unsafe = list(Safety).index(Safety.UNSAFE)
    return [
        place
        for place, ranks in after.items()
        for number, rank in enumerate(ranks)
        if rank < unsafe and rank < (before.get(place, [])[number:] or [NO_FIX])[0]
    ]


def _fed(text: str) -> list[set[str]]:
    """Give, for each loader, the definitions that its dataset and collate function come from."""
    script = Script.parse(Source("example.py", text))
    return [
        {
            name.value
            for given in (site.given("dataset", 0), site.given("collate_fn", 6))
            if given is not None
            for value in script.values.origins.of(given.value).values
            for name in script.tree.within(value, cst.Name)
        }
        for site in script.calls.of("torch.utils.data.DataLoader")
    ]


@pytest.mark.parametrize("code", CODES)
def test_cutting_an_example_makes_no_fix_safer(code: str) -> None:
    for example in examples_of(REGISTRY.find(code).load()):
        settings = Settings(
            select=(code,),
            target_torch=example.settings.target_torch,
            target_device=example.settings.target_device,
        )
        before = _fixes(example.before, settings)
        for name, text in _cuts(example.before):
            assert not _safer(before, _fixes(text, settings)), (example.sentence, name)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_cutting_a_script_makes_no_fix_safer(path: Path) -> None:
    text, settings = path.read_text(encoding="utf-8"), Settings(select=("ALL",))
    before, fed = _fixes(text, settings), _fed(text)
    for name, cut in _cuts(text):
        after = _fixes(cut, settings)
        assert not _safer(before, after), name
        if fed and all(each.intersection(name.split(", ")) for each in fed):
            exact = [place for place, ranks in after.items() if ranks[0] == 0]
            assert not [place for place in exact if place[0] in LOADERS], name
