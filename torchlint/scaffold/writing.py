"""A new rule in a source tree: its code, its page, and a script with its pattern."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Final

from torchlint.registry import Registry, RuleHead
from torchlint.rule import Rule
from torchlint.scaffold.filling import filled, name_words
from torchlint.scaffold.refusal import ScaffoldError
from torchlint.testing import golden_of_rule
from torchlint.testing.checkout import Checkout

_CODE: Final = re.compile(r"TL[1-9][0-9]{2}")
_LAST: Final = 99


def free_code(tree: Checkout, family: int) -> str:
    """Return the first free code after those of a family; raises `ScaffoldError`."""
    taken = [int(path.name[3:5]) for path in tree.rules.glob(f"tl{family}[0-9][0-9]_*.py")]
    number = max(taken, default=0) + 1
    if number > _LAST:
        raise ScaffoldError(f"family {family} is full; choose a free code with --code")
    return f"TL{family}{number:02}"


def write_rule(tree: Checkout, name: str, code: str) -> list[Path]:
    """Write a rule and its golden files, and return their paths; raises `ScaffoldError`."""
    words = {**name_words(name, code), "gap": "\n"}
    _refuse(tree, name, code)
    stem = words["stem"]
    rule, page = tree.rules / f"{stem}.py", tree.rules / f"{stem}.md"
    slow = tree.fixtures / stem / "slow.py"
    for path in (rule, page, slow.parent):
        if path.exists():
            raise ScaffoldError(f"{path.relative_to(tree.root)} exists")
    slow.parent.mkdir(parents=True)
    rule.write_text(filled("rule.py.txt", words), encoding="utf-8")
    page.write_text(filled("rule.md.txt", words), encoding="utf-8")
    slow.write_text(filled("slow.py.txt", words), encoding="utf-8")
    registry = Registry((RuleHead.of(_imported(rule)),))
    return [rule, page, slow, *golden_of_rule(slow.parent).write(registry)]


def _refuse(tree: Checkout, name: str, code: str) -> None:
    if not _CODE.fullmatch(code):
        raise ScaffoldError(f"`{code}` is not a rule code: use TL and a number from 101 to 999")
    for path in sorted(tree.rules.glob("tl[0-9][0-9][0-9]_*.py")):
        other, _, words = path.stem.partition("_")
        if other.upper() == code or words.replace("_", "-") == name:
            raise ScaffoldError(f"{path.relative_to(tree.root)} has this code or name")


def _imported(file: Path) -> type[Rule]:
    """Import a rule from its file, since the installed pack may belong to another tree."""
    spec = spec_from_file_location(f"torchlint_rules.{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    (rule,) = (
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Rule) and each.__module__ == spec.name
    )
    return rule
