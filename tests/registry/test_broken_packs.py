"""A pack that is broken: named in one line, and fatal for itself alone."""

from __future__ import annotations

import os
from pathlib import Path
from shutil import make_archive, rmtree
from typing import Any

import pytest
from cli_shell import Shell
from pack_pages import page

RULE = '''
"""A rule of a pack."""

from torchlint.api import Finding, Rule, Span
{first}

class Theirs(Rule):
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
    header: dict[str, str] | None = None,
    written: str | None = None,
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
    module = info.parent / package / f"{file}.py"
    module.write_text(RULE.format(first=first, body=body))
    code, _, name = file.partition("_")
    parts = {"about": "[anomaly]", "needs": "[anomaly]", **(header or {})}
    text = page(code.upper(), name.replace("_", "-"), **parts)
    module.with_suffix(".md").write_text(text if written is None else written)
    return {"PYTHONPATH": str(folder / "site")}


def _checked(shell: Shell, environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    for name in ("a.py", "b.py"):
        shell.write(name, SCRIPT)
    done = shell.run(
        *("check", "--isolated", "--no-cache", "--show-low", "--output-format", "concise"),
        *(*arguments, "a.py", "b.py"),
        environment=environment,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a shell without the tiny pack of the other tests."""
    return Shell(tmp_path)


def test_a_sound_pack_is_heard_beside_ours(shell: Shell) -> None:
    code, out, err = _checked(shell, _pack(shell.folder))
    assert (code, err) == (1, "")
    assert out.count("XYZ101 [their-rule] low: theirs") == out.count(OURS) == 2


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
            {"file": "xyz1_their_rule"},
            "xyzpack.xyz1_their_rule: `XYZ1` is no code: two to five letters and three digits, "
            "such as ABC101",
        ),
    ],
)
def test_a_broken_pack_is_named_in_one_line(shell: Shell, parts: dict[str, Any], said: str) -> None:
    environment = _pack(shell.folder, **parts)
    code, out, err = _checked(shell, environment)
    assert err == f"error: rule pack `xyz`: {said}\n"
    assert (code, out.count(OURS)) == (2, 2)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"header": {"code": "XYZ1"}}, ":2: `code` must be two to five letters and three digits"),
        (
            {"header": {"code": "XYZ102"}},
            " is the page of XYZ102 their-rule, its file name is that of XYZ101 their-rule",
        ),
        ({"header": {"needs": "anomaly"}}, ":7: `needs` must be a list such as [a, b], it is "),
        ({"header": {"since": "2"}}, ":9: `since` must be a version such as 2.4, it is 2"),
        ({"header": {"impact": ""}}, ":8: the header has no `impact`"),
        ({"written": ""}, ":1: a page begins with a header between two lines of `---`"),
    ],
)
def test_a_broken_page_is_named_with_its_line(
    shell: Shell, parts: dict[str, Any], said: str
) -> None:
    code, out, err = _checked(shell, _pack(shell.folder, **parts))
    page = shell.folder / "site/xyzpack/xyz101_their_rule.md"
    assert err.startswith(f"error: rule pack `xyz`: {page}{said}")
    assert err.count("\n") == 1
    assert (code, out.count(OURS)) == (2, 2)


def test_a_page_with_a_part_missing_fails_when_the_rule_is_loaded(shell: Shell) -> None:
    whole = page("XYZ101", "their-rule", about="[anomaly]", needs="[anomaly]")
    cut = whole.replace("## When not to\nNever.\n\n", "")
    code, out, err = _checked(shell, _pack(shell.folder, written=cut))
    assert err == (
        f"error: rule pack `xyz`: {shell.folder / 'site/xyzpack/xyz101_their_rule.md'}:17: "
        "`## When not to` must stand here\n"
    )
    assert (code, out.count(OURS)) == (2, 2)


def test_a_page_without_a_module_is_named(shell: Shell) -> None:
    environment = _pack(shell.folder)
    (shell.folder / "site/xyzpack/xyz101_their_rule.py").unlink()
    code, out, err = _checked(shell, environment)
    assert err.startswith("error: rule pack `xyz`: xyzpack.xyz101_their_rule cannot be imported: ")
    assert (code, out.count(OURS)) == (2, 2)


def test_a_pack_in_an_archive_is_named(shell: Shell) -> None:
    _pack(shell.folder)
    site = shell.folder / "site"
    make_archive(str(shell.folder / "packed"), "zip", site)
    rmtree(site / "xyzpack")
    path = os.pathsep.join((str(site), str(shell.folder / "packed.zip")))
    code, out, err = _checked(shell, {"PYTHONPATH": path})
    assert err == ("error: rule pack `xyz`: xyzpack lies in an archive: install it in a folder\n")
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
    assert (code, out.count(OURS)) == (1, 2)
    assert [line.partition(": KeyError")[0] for line in lines] == [
        "warning: internal error in XYZ101 on a.py (please report)",
        "warning: internal error in XYZ101 on b.py (please report)",
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
