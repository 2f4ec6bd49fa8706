"""A new pack of rules: its own project, with one rule and its tests."""

from __future__ import annotations

import re
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Final

from torchlint import __version__
from torchlint.scaffold.filling import filled, name_words
from torchlint.scaffold.refusal import ScaffoldError

FIRST_RULE: Final = "backward-on-one-thread"
"""The rule of a pack whose author gave no name: the pattern in the template."""

_PACK: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_CODE: Final = re.compile(r"[A-Z]{2,5}[0-9]{3}")
_OURS: Final = re.compile(r"TL[0-9]")


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
    if not _CODE.fullmatch(code) or _OURS.match(code):
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
