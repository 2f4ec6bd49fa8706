"""A new rule in a source tree: its code, its page, and a script with its pattern."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import Final

from torchlint import __version__
from torchlint.registry import Registry, RuleHead
from torchlint.rule import Rule
from torchlint.testing import golden_of_rule
from torchlint.testing.checkout import Checkout

_CODE: Final = re.compile(r"TL[1-9][0-9]{2}")
_LAST: Final = 99
FIRST_RULE: Final = "backward-on-one-thread"
"""The rule of a pack whose author gave no name: the pattern in the template."""

_PACK: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_CODE_OF_A_PACK: Final = re.compile(r"[A-Z]{2,5}[0-9]{3}")
_OURS: Final = re.compile(r"TL[0-9]")
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TEMPLATES: Final = Path(__file__).parent


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


def write_pack(folder: Path, pack: str, name: str | None, code: str | None) -> list[Path]:
    """Write a project into `folder/pack` and return its files; raises `ScaffoldError`."""
    if not _PACK.fullmatch(pack):
        raise ScaffoldError(
            f"`{pack}` is not a pack name: use lower-case words with hyphens, such as"
            " `torchlint-acme`"
        )
    package = pack.replace("-", "_")
    if iskeyword(package) or find_spec(package) is not None:
        raise ScaffoldError(f"`{package}` is taken: another module or keyword has this name")
    root = folder / pack
    if root.exists():
        raise ScaffoldError(f"{pack} exists")
    words = _words(pack, package, name or FIRST_RULE, code or _code_of(pack))
    made = {
        "pyproject.toml": filled("pack/pyproject.toml.txt", words),
        "README.md": filled("pack/README.md.txt", words),
        f"{package}/__init__.py": filled("pack/package.py.txt", words),
        f"{package}/{words['stem']}.py": filled("rule.py.txt", words),
        f"{package}/{words['stem']}.md": filled("rule.md.txt", words),
        "tests/test_rules.py": filled("pack/test_rules.py.txt", words),
    }
    for file, text in made.items():
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [root / file for file in made]


def _words(pack: str, package: str, name: str, code: str) -> dict[str, str]:
    if not _CODE_OF_A_PACK.fullmatch(code) or _OURS.match(code):
        raise ScaffoldError(
            f"`{code}` is not a rule code for a pack: use two to five letters, not TL, and three"
            " digits, such as ACME101 (--code)"
        )
    return {
        **name_words(name, code),
        "gap": "",
        "pack": pack,
        "package": package,
        "version": __version__,
    }


def _code_of(pack: str) -> str:
    """Return a code made of a pack's letters, such as ACME101 for `torchlint-acme`."""
    own = pack.removeprefix("torchlint-")
    return re.sub(r"[^a-z]", "", own)[:5].upper() + "101"


def filled(template: str, words: Mapping[str, str]) -> str:
    """Return the text of a template with its words filled in."""
    text = (_TEMPLATES / template).read_text(encoding="utf-8")
    return Template(text).substitute(words)


def name_words(name: str, code: str) -> dict[str, str]:
    """Return the words for the name and the code of a rule; raises `ScaffoldError`."""
    if not _NAME.fullmatch(name):
        raise ScaffoldError(
            f"`{name}` is not a rule name: use lower-case words with hyphens, such as `slow-thing`"
        )
    return {
        "code": code,
        "name": name,
        "class_name": name.title().replace("-", ""),
        "stem": f"{code.lower()}_{name.replace('-', '_')}",
    }


class ScaffoldError(Exception):
    """A rule or pack that cannot be written; the message says why, and nothing was written."""
