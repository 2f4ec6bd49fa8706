"""A pack whose pages stand in Python is read once more, with a warning."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_shell import Shell

RULE = '''
from torchlint.api import Finding, Rule, Span


class Theirs{number}(Rule):
    """
    ## What it does
    It.

    ## Why it is slow
    So.

    ## When not to
    Never.

    ## Fix safety
    None.
    """

    code = "XYZ{number}"
    name = "their-rule-{number}"
    summary = "theirs"
    impact = "low"
    safety = None
    needs = ("torch",)
    invalid = {{"a sentence": "! import torch"}}
    valid = {{"another": "x"}}

    def check(self, script):
        yield Finding(self.code, Span(0, 1), "theirs")
'''
WARNING = (
    "warning: rule pack `xyz`: the page of xyz101_their_rule_101 and 1 more stands in Python, which"
    " the next release of torchlint does not read: write xyz101_their_rule_101.md beside it\n"
)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a shell where such a pack is installed."""
    info = tmp_path / "site" / "xyzpack-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: xyzpack\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torchlint.rules]\nxyz = xyzpack\n")
    package = info.parent / "xyzpack"
    package.mkdir()
    (package / "__init__.py").touch()
    for number in (101, 102):
        (package / f"xyz{number}_their_rule_{number}.py").write_text(RULE.format(number=number))
    (tmp_path / "train.py").write_text("import torch\n")
    return Shell(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("check", "--output-format", "concise", "train.py"), "XYZ101 [their-rule-101] theirs"),
        (("fix", "train.py"), "Nothing to fix."),
        (("rules",), "their-rule-102"),
        (("explain", "--examples", "XYZ102"), "a sentence:\n\n```diff\n! import torch\n```"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_it_is_heard_with_one_line_each_time(
    shell: Shell, arguments: tuple[str, ...], shown: str
) -> None:
    path = str(shell.folder / "site")
    for _ in "12":
        done = shell.run(*arguments, environment={"PYTHONPATH": path})
        assert shown in done.stdout + done.stderr
        assert done.stderr.count("warning:") == 1
        assert WARNING in done.stderr
        assert done.returncode < 2
