from __future__ import annotations

from pathlib import Path

import pytest
from tiny_rules import replacing

from torchlint.finding import Safety
from torchlint.registry import Registry, RuleHead
from torchlint.testing import goldens, refresh


@pytest.fixture
def registry() -> Registry:
    rules = (
        replacing(r"x\b", "z", "TL902", "first"),
        replacing(r"y\b", "w", "TL903", "second", Safety.UNSAFE),
    )
    return Registry(tuple(RuleHead.of(rule) for rule in rules))


def test_golden_files_are_written_and_read(tmp_path: Path, registry: Registry) -> None:
    rule = tmp_path / "rules" / "tl903_second"
    script = tmp_path / "scripts" / "both"
    for folder, name in ((rule, "slow.py"), (script, "before.py")):
        folder.mkdir(parents=True)
        (folder / name).write_bytes(b"x = 1\r\ny = 2\r\n")
    changed = refresh(tmp_path, registry)
    assert sorted(path.name for path in changed) == [
        "after.py",
        "fast.py",
        "findings.txt",
        "findings.txt",
    ]
    assert (rule / "findings.txt").read_text() == "2:1 TL903 y\\b is here (unsafe fix)\n"
    assert (rule / "fast.py").read_bytes() == b"x = 1\r\nw = 2\r\n"
    assert (script / "findings.txt").read_text().count("\n") == 2
    assert (script / "after.py").read_bytes() == b"z = 1\r\ny = 2\r\n"
    assert refresh(tmp_path, registry) == []
    for golden in goldens(tmp_path):
        assert golden.fixed_twice(registry) == golden.fixed(registry)
