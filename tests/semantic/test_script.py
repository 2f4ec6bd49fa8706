from __future__ import annotations

import gc
import re
from operator import attrgetter
from pathlib import Path

from torchlint.semantic.script import Script, forget
from torchlint.source import Source

_GUIDE = Path(__file__).parents[2] / "docs/guide/semantic.md"
_LOOP = """
import torch
for epoch in range(3):
    for x, y in loader:
        loss = net(x)
        loss.backward()
        optimizer.step()
        total += loss.item()
"""


def _script() -> Script:
    return Script.parse(Source("train.py", _LOOP))


def test_a_script_has_few_members() -> None:
    assert len(_public(_script())) <= 25


def test_the_guide_names_what_the_collections_answer() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (.+) \|$", _GUIDE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 10
    for collection, examples in rows:
        for path in re.findall(r"`([\w.]+)", examples):
            attrgetter(f"{collection}.{path}")(_script())


def test_nothing_of_a_forgotten_script_stays() -> None:
    gc.collect()
    gc.disable()
    try:
        script = _script()
        list(script.readings.within(script.tree.module))
        forget(script)
        del script
        assert gc.collect() == 0
    finally:
        gc.enable()


def _public(found: object) -> list[str]:
    return [name for name in dir(found) if not name.startswith("_")]
