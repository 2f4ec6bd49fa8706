"""A pack that is broken: named in one line, and fatal for itself alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_shell import Shell

RULE = '''
"""A rule of a pack."""

from torchlint.api import Finding, Rule, Span
{first}

class Theirs(Rule):
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

    code = "{code}"
    name = "their-rule"
    summary = "theirs"
    impact = "low"
    safety = None
    about = ("anomaly",)
    needs = {needs}
    {extra}
    invalid = {{"a": "x"}}
    valid = {{"b": "x"}}

    def check(self, script):
        {body}
'''
SCRIPT = "import torch\n\ntorch.autograd.set_detect_anomaly(True)\n"
OURS = "TL801 [anomaly-detection]"


def _pack(
    folder: Path,
    file: str = "xyz101_their_rule",
    *,
    init: str = "",
    pack: str = "xyz",
    first: str = "",
    code: str = "XYZ101",
    needs: str = '("anomaly",)',
    extra: str = "",
    body: str = "yield Finding('XYZ101', Span(0, 1), 'theirs')",
) -> dict[str, str]:
    """Write an installed pack; give the environment that it is installed in."""
    package = f"{pack}pack"
    info = folder / "site" / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[torchlint.rules]\n{pack} = {package}\n")
    (info.parent / package).mkdir()
    (info.parent / package / "__init__.py").write_text(init)
    text = RULE.format(first=first, code=code, needs=needs, extra=extra, body=body)
    (info.parent / package / f"{file}.py").write_text(text)
    return {"PYTHONPATH": str(folder / "site")}


def _checked(shell: Shell, environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    for name in ("a.py", "b.py"):
        shell.write(name, SCRIPT)
    done = shell.run(
        *("check", "--isolated", "--no-cache", "--output-format", "concise", *arguments),
        *("a.py", "b.py"),
        environment=environment,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Give a shell without the tiny pack of the other tests."""
    return Shell(tmp_path)


def test_a_sound_pack_is_heard_beside_ours(shell: Shell) -> None:
    code, out, err = _checked(shell, _pack(shell.folder))
    assert (code, err) == (1, "")
    assert out.count("XYZ101 [their-rule] theirs") == out.count(OURS) == 2


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            {"first": "import no_such_thing"},
            "xyzpack.xyz101_their_rule cannot be imported: "
            "ModuleNotFoundError: No module named 'no_such_thing'",
        ),
        (
            {"first": "raise SystemExit(0)"},
            "xyzpack.xyz101_their_rule cannot be imported: SystemExit: 0",
        ),
        (
            {"first": "def ("},
            "xyzpack.xyz101_their_rule cannot be imported: SyntaxError: invalid syntax "
            "(xyz101_their_rule.py, line 5)",
        ),
        (
            {"init": "raise ValueError('two\\nlines')"},
            "xyzpack.xyz101_their_rule cannot be imported: ValueError: two lines",
        ),
        (
            {"code": "XYZ1"},
            "xyzpack.xyz101_their_rule cannot be imported: RuleError: rule Theirs: 'XYZ1' or "
            "'their-rule' is malformed",
        ),
        (
            {"code": "XYZ102"},
            "xyzpack.xyz101_their_rule promises code 'XYZ101', its rule has 'XYZ102'",
        ),
        (
            {"file": "xyz1_their_rule"},
            "xyzpack.xyz1_their_rule: `XYZ1` is no code: two to five letters and three digits, "
            "such as ABC101",
        ),
        (
            {"needs": '"anomaly"'},
            "xyzpack.xyz101_their_rule: `needs` must be a tuple of strings, it is 'anomaly'",
        ),
        (
            {"extra": "since = 2"},
            "xyzpack.xyz101_their_rule: `since` must be two numbers such as (2, 4), it is 2",
        ),
    ],
)
def test_a_broken_pack_is_named_in_one_line(shell: Shell, parts: dict[str, str], said: str) -> None:
    environment = _pack(shell.folder, **parts)
    code, out, err = _checked(shell, environment)
    assert err == f"error: rule pack `xyz`: {said}\n"
    assert (code, out.count(OURS)) == (2, 2)


@pytest.mark.parametrize("command", [("rules",), ("audit", "a.py")])
def test_other_commands_go_on_without_a_broken_pack(shell: Shell, command: tuple[str, ...]) -> None:
    shell.write("a.py", SCRIPT)
    done = shell.run(*command, environment=_pack(shell.folder, first="import no_such_thing"))
    assert done.returncode == 2
    assert done.stderr.startswith("error: rule pack `xyz`: xyzpack.xyz101_their_rule cannot be")
    assert done.stderr.count("\n") == 1
    assert "TL801" in done.stdout


def test_a_rule_that_fails_is_named_for_each_file(shell: Shell) -> None:
    environment = _pack(shell.folder, body="raise KeyError('no')")
    code, out, err = _checked(shell, environment)
    lines = err.splitlines()
    assert (code, out.count(OURS)) == (2, 2)
    assert [line.partition(" with ")[0] for line in lines] == [
        "error: INTERNAL ERROR in XYZ101: it failed on a.py",
        "error: INTERNAL ERROR in XYZ101: it failed on b.py",
    ]


@pytest.mark.parametrize(
    ("file", "clash"),
    [
        ("tl801_their_rule", "TL801 anomaly-detection and TL801 their-rule"),
        ("xyz101_anomaly_detection", "TL801 anomaly-detection and XYZ101 anomaly-detection"),
    ],
)
def test_a_clash_is_refused_by_name(shell: Shell, file: str, clash: str) -> None:
    code, out, err = _checked(shell, _pack(shell.folder, file))
    assert (code, out) == (2, "")
    assert err == f"error: rule packs `torchlint` and `xyz` clash: {clash}\n"


def test_two_packs_of_others_that_clash(shell: Shell) -> None:
    _pack(shell.folder)
    code, out, err = _checked(shell, _pack(shell.folder, pack="abc"))
    assert (code, out) == (2, "")
    assert err == (
        "error: rule packs `abc` and `xyz` clash: XYZ101 their-rule and XYZ101 their-rule\n"
    )
