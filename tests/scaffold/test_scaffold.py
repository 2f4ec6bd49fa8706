"""`torchlint new`: what it writes passes every check that a finished rule passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkouts import Copy

STEM = "tl850_slow_thing"
RULE = f"rules/torchlint_rules/{STEM}.py"
FIXTURE = f"fixtures/rules/{STEM}"
NEW = ("-m", "torchlint", "new")
CHECKS = {
    "ruff": ("-m", "ruff", "check", "--no-cache", RULE),
    "ruff format": ("-m", "ruff", "format", "--no-cache", "--check", RULE),
    "mypy": ("-m", "mypy", "--strict", RULE),
    "import-linter": (
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
        "--no-cache",
    ),
    "examples": ("-m", "pytest", "-n0", "tests/rules/test_examples.py", "-k", "TL850"),
    "fixtures": ("-m", "pytest", "-n0", "tests/fixtures", "-k", STEM),
    "quiet": ("-m", "torchlint", "check", "--isolated", "--no-cache", f"{FIXTURE}/fast.py"),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """Return a tree with a new rule in it."""
    files = ("tests/scriptruns.py", "tests/processes.py")
    tests = ("tests/rules", "tests/fixtures", "tests/trainings", *files)
    copy = Copy.made_in(tmp_path_factory.mktemp("tree"), *tests)
    done = copy.python(*NEW, "slow-thing", "--code", "TL850")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        RULE,
        RULE.replace(".py", ".md"),
        *(f"{FIXTURE}/{name}" for name in ("slow.py", "findings.txt", "fast.py")),
    ]
    return copy


@pytest.mark.parametrize("check", CHECKS)
def test_the_new_rule_passes(tree: Copy, check: str) -> None:
    tree.passes(*CHECKS[check])


def test_the_new_rule_finds_something(tree: Copy) -> None:
    done = tree.python(
        *("-m", "torchlint", "check", "--isolated", "--no-cache", "--output-format", "concise"),
        f"{FIXTURE}/slow.py",
    )
    assert done.returncode == 1, done.stderr
    assert ": TL850 " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("slow-thing", "--family", "8"), f"{RULE} has this code or name"),
        (("other-thing", "--code", "TL850"), f"{RULE} has this code or name"),
        (("Slow_Thing", "--family", "8"), "`Slow_Thing` is not a rule name"),
        (("other-thing", "--code", "TL12"), "`TL12` is not a rule code"),
        (("other-thing",), "give either --family or --code"),
    ],
)
def test_nothing_is_written_over(tree: Copy, arguments: tuple[str, ...], said: str) -> None:
    before = {path: path.read_bytes() for path in _files(tree)}
    done = tree.python(*NEW, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {said}")
    assert before == {path: path.read_bytes() for path in _files(tree)}


def test_a_family_goes_on_behind_its_last_code(tree: Copy) -> None:
    done = tree.python(*NEW, "next-thing", "--family", "8")
    assert done.stdout.startswith("rules/torchlint_rules/tl851_next_thing.py\n")


def test_outside_of_a_source_tree(tree: Copy, tmp_path: Path) -> None:
    done = Copy(tree.root).python("-c", f"import os; os.chdir({str(tmp_path)!r})\n{MAIN}")
    assert done.returncode == 2
    assert done.stderr.startswith("error: not a torchlint source tree")
    assert not list(tmp_path.iterdir())


MAIN = "from torchlint.cli import main; main(['new', 'slow-thing', '--family', '8'])"


def _files(tree: Copy) -> list[Path]:
    return sorted(path for path in tree.root.rglob("tl8*") if path.is_file())
