"""How much `pip install torchlint` puts on a disk."""

from __future__ import annotations

import sys
from importlib.metadata import distribution, requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
MOST = 40_000_000


def _needed(name: str) -> set[str]:
    """Return the packages that a package needs, and what those need, without extras."""
    read = [Requirement(line) for line in requires(name) or ()]
    direct = {each.name for each in read if each.marker is None or each.marker.evaluate()}
    return direct.union(*(_needed(each) for each in direct))


def _size(name: str) -> int:
    files = (file.locate() for file in distribution(name).files or ())
    return sum(Path(str(file)).stat().st_size for file in files if Path(str(file)).is_file())


def test_the_default_installation_is_below_40_megabytes() -> None:
    needed = _needed("torchlint")
    assert not needed & {"torch", "numpy", "rich", "jinja2"}
    found = [*(ROOT / "torchlint").rglob("*.*"), *(ROOT / "rules" / "torchlint_rules").rglob("*.*")]
    tag = sys.implementation.cache_tag
    own = [each for each in found if each.suffix != ".pyc" or f".{tag}." in each.name]
    assert sum(file.stat().st_size for file in own) + sum(map(_size, needed)) < MOST
