"""A view depends on the project alone, not on how much of it was read, nor in which order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest
from projects import write

from torchlint.program import index as index_module
from torchlint.program.folder import Walk, walk
from torchlint.program.index import Index, digest
from torchlint.semantic.view import ALONE
from torchlint.source import Source

MODULES: Final = (
    "train.py",
    "run.py",
    "data.py",
    "tools/utils.py",
    "tools/__init__.py",
    "nets/__init__.py",
    "nets/data.py",
    "nets/deep/__init__.py",
    "nets/deep/utils.py",
    "src/lib/__init__.py",
    "src/lib/core.py",
    "tests/test_core.py",
)
IMPORTS: Final = (
    "from {0} import {1}",
    "from {0} import {1} as {2}",
    "from {0} import *",
    "import {0}",
    "import {0} as {2}",
    "from . import {2}",
    "from .{3} import {1}",
    "from .. import {3} as {2}",
    "from ..{3} import {1}",
    "try:\n    from {0} import {1}\nexcept ImportError:\n    {1} = None",
)


def generated(chance: random.Random) -> dict[str, str]:
    """Return a project whose modules import, use and hand on the names of each other at random."""
    words = ["f", "g", "h", "Net", "data", "utils"]
    dotted = [
        name.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in MODULES
    ]
    files = {}
    for name in chance.sample(MODULES, 9):
        lines = []
        for _ in range(chance.randrange(5)):
            module = chance.choice(dotted)
            last = module.rpartition(".")[2]
            line = chance.choice(IMPORTS)
            lines.append(line.format(module, chance.choice(words), chance.choice(words), last))
        for word in chance.sample(words, chance.randrange(4)):
            used = chance.sample(words, 2)
            chain = f"{chance.choice(dotted)}.{chance.choice(words)}"
            lines += [f"def {word}(x):", f"    {used[0]}(x), {used[1]}.{used[0]}, {chain}"]
            if chance.random() < 0.4:
                lines.append(f"    from {chance.choice(dotted)} import {chance.choice(words)}")
        lines += chance.sample(
            [
                "x.backward()",
                "loader = DataLoader(data)",
                "x.cuda()",
                "if __name__ == '__main__':\n    f(g)",
                "__all__ = ['f', 'Net']",
                "h = utils.f(data.g)",
            ],
            2,
        )
        files[name] = "\n".join(lines) + "\n"
    return files


@pytest.mark.parametrize("seed", range(20))
def test_a_file_alone_is_viewed_as_in_a_full_run(seed: int, tmp_path: Path) -> None:
    files = generated(random.Random(seed))
    whole = Index(write(tmp_path, files))
    whole.build()
    views = {name: whole.view(tmp_path / name) for name in files}
    for name, view in views.items():
        assert Index(tmp_path).view(tmp_path / name) == view


def test_generated_projects_hang_together(tmp_path: Path) -> None:
    linked = 0
    for seed in range(10):
        root = write(tmp_path / str(seed), generated(random.Random(seed)))
        index = Index(root)
        linked += sum(len(index.view(Path(each)).modules) for each in index.files)
    assert linked > 30


@pytest.mark.parametrize("seed", range(40, 52))
def test_the_order_of_files_changes_no_view(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = generated(random.Random(seed))
    write(tmp_path, files)
    index = Index(tmp_path)
    index.build()
    views = {name: index.view(tmp_path / name) for name in files}

    def shuffled(root: str) -> Walk:
        found = walk(root)
        entries = list(found.files.items())
        random.Random(seed).shuffle(entries)
        return found._replace(files=dict(entries))

    monkeypatch.setattr(index_module, "walk", shuffled)
    other = Index(tmp_path)
    other.build()
    for name in sorted(files, reverse=True):
        assert digest(other.view(tmp_path / name)) == digest(views[name])


@pytest.mark.parametrize("seed", range(60, 75))
def test_a_text_that_is_given_counts_as_if_it_were_on_the_disk(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    before, after = generated(chance), generated(chance)
    name = sorted(after)[0]
    index = Index(write(tmp_path, before))
    if chance.random() < 0.5:
        index.build()
    source = Source(str(tmp_path / name), after[name])
    given = index.view(tmp_path / name, source)
    old = {each: index.view(tmp_path / each) for each in before}
    index.change(tmp_path / name, source)
    changed = {each: index.view(tmp_path / each) for each in {**before, name: ""}}
    index.change(tmp_path / name, None)
    assert {each: index.view(tmp_path / each) for each in before} == old
    write(tmp_path, {name: after[name]})
    index.refresh()
    now = {each: index.view(tmp_path / each) for each in {**before, name: ""}}
    assert now[name] == given
    assert now == changed
    assert Index(tmp_path).view(tmp_path / name) == given


def test_kept_outlines_are_used_while_their_files_stay(tmp_path: Path) -> None:
    files = generated(random.Random(7))
    index = Index(write(tmp_path, files))
    index.build()
    views = {name: index.view(tmp_path / name) for name in files}
    data = index.dump()
    later = Index(tmp_path)
    later.load(data)
    assert later.missing() == []
    assert {name: later.view(tmp_path / name) for name in files} == views
    later.build()
    assert {name: later.view(tmp_path / name) for name in files} == views
    first = sorted(files)[0]
    write(tmp_path, {first: "x = 1\n" * 99})
    later = Index(tmp_path)
    later.load(data)
    assert later.missing() == [first]


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b"[1]", b"[2,{}]", b'[1,{"a.py":[0,0,3]}]', b"\xff", b"[1,[1]]", b"null"],
)
def test_damaged_outlines_are_made_again(damage: bytes, tmp_path: Path) -> None:
    index = Index(write(tmp_path, {"a.py": "x = 1\n"}))
    index.load(damage)
    index.build()
    assert index.missing() == []
    assert index.view(tmp_path / "a.py") == ALONE


def test_damaged_parts_of_kept_outlines_are_made_again(tmp_path: Path) -> None:
    index = Index(write(tmp_path, {"a.py": "from b import f\nf(DataLoader)\n", "b.py": "f = 1\n"}))
    index.build()
    view = index.view(tmp_path / "a.py")
    assert view.modules
    data = index.dump()
    for damaged in (data.replace(b"assignment", b"x"), data.replace(b'"f"', b"1")):
        other = Index(tmp_path)
        other.load(damaged)
        other.build()
        assert other.view(tmp_path / "a.py").path == view.path
