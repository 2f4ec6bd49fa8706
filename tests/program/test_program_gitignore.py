"""`.gitignore` files say what they say to git, and no line of theirs holds up a run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from torchlint.program.folder import Ignored, IgnoreFile

NAMES = ("a", "b", "ab", "aab", "b a", "a-b", "]", "[a]", "!a", "A", "a.b", "#a", "a\\b")
PIECES = ("a", "b", "A", "*", "?", "-", ".", "[ab]", "[a-b]")
names = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)
names = names.filter(lambda name: "**" not in name)
paths = st.lists(names | st.just("**"), min_size=1, max_size=3).map("/".join)
lines = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(("", "", "!")),
    st.sampled_from(("", "/")),
    paths,
    st.sampled_from(("", "", "/")),
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a repository with names of every kind, two folders deep."""
    top = tmp_path_factory.mktemp("ignored")
    subprocess.run(["git", "init", "--quiet", str(top)], check=True)
    for first in NAMES:
        (top / first / "b" / "ab").mkdir(parents=True)
        for name in NAMES:
            (top / first / f"{name}.py").touch()
            (top / first / "b" / "ab" / name).touch()
    return top


def _left_out(folder: Path, ignored: Ignored, top: Path) -> Iterator[str]:
    """Yield what a walk leaves out, and all that is below it."""
    ignored = ignored.below(str(folder))
    for path in folder.iterdir():
        if path.name in (".git", ".gitignore"):
            continue
        if ignored.match(str(path), path.is_dir()):
            yield str(path.relative_to(top))
            yield from (str(each.relative_to(top)) for each in path.rglob("*"))
        elif path.is_dir():
            yield from _left_out(path, ignored, top)


def _by_git(top: Path) -> set[str]:
    """Ask git of every path."""
    asked = [str(path.relative_to(top)) for path in top.rglob("*") if ".git" not in path.parts]
    done = subprocess.run(
        ["git", "-c", "core.ignorecase=false", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=top,
        input="\0".join(f"./{name}" for name in asked if name != ".gitignore"),
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
    )
    assert done.returncode in (0, 1), done.stderr
    return {name.removeprefix("./") for name in done.stdout.split("\0") if name}


def test_lines_say_what_they_say_to_git(repository: Path) -> None:
    @given(st.lists(lines, min_size=1, max_size=4))
    @example(["a/**/ab/*", "!a/b/ab/a"])
    @example(["**/b/**", "!b"])
    @example(["a*b", "\\#a", "\\!a", "a\\\\b"])
    @settings(
        max_examples=int(os.environ.get("TORCHLINT_EXAMPLES", "60")),
        derandomize="TORCHLINT_EXAMPLES" not in os.environ,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    def same(written: list[str]) -> None:
        text = "\n".join(written) + "\n"
        (repository / ".gitignore").write_text(text, encoding="utf-8")
        ours = set(_left_out(repository, Ignored(), repository))
        assert ours == _by_git(repository), text

    same()


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("*a" * 40 + "b", "a" * 250),
        ("**/a/" * 20 + "b", "a/" * 900 + "c"),
        ("**/*a*a*a/" * 10 + "b", f"{'a' * 100}/" * 30 + "c"),
        ("[a-z]*" * 40 + "/b", "a" * 250),
    ],
    ids=["stars", "folders", "both", "sets"],
)
def test_no_line_takes_long(line: str, path: str) -> None:
    """As plain stars in one expression these would go on for years."""
    assert not IgnoreFile(line).leaves_out(path, False)


@pytest.mark.parametrize("line", ["*" * 60 + "!", "a" + "**a" * 20, "!" + "***" * 20 + "x"])
def test_runs_of_stars_take_no_time(line: str) -> None:
    assert IgnoreFile(line).leaves_out("a" * 90 + "/" + "b" * 90 + ".py", False) is None
