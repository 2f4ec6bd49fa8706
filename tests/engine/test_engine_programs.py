"""Files are checked and fixed with the definitions of other modules of their project."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from small_program import DATA, HELPERS, TRAIN, found, project, write

from torchlint.engine import Project, check_bytes, check_paths, fix_paths
from torchlint.engine import jobs as work
from torchlint.engine.programs import Programs
from torchlint.engine.results import FileResult
from torchlint.finding import Note

ALL = [("helpers.py", 5, "TL203"), ("train.py", 8, "TL204")]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return write(tmp_path)


def _check(files: list[Path], using: Project | None = None, **options: object) -> list[FileResult]:
    return list(check_paths(files, using or project(), **options))  # type: ignore[arg-type]


def test_findings_rest_on_other_modules(files: list[Path]) -> None:
    assert found(_check(files)) == ALL
    assert found(_check(files, project(program=False))) == []


def test_a_finding_of_another_file_is_left_to_that_file(files: list[Path]) -> None:
    for file in files:
        assert found(_check([file])) == [each for each in ALL if each[0] == file.name]


def test_the_loop_of_another_module_is_a_note(files: list[Path]) -> None:
    (result,) = _check([files[1]])
    note = Note.elsewhere("the loop that runs this in every step", str(files[2]), 7)
    assert result.findings[0].notes == (note,)


@pytest.mark.parametrize("given", ["helpers.py", "./helpers.py", "../here/helpers.py"])
def test_a_note_names_a_file_as_the_user_named_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    (tmp_path / "here").mkdir()
    write(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    (result,) = _check([Path(given)])
    assert result.findings[0].notes[0].place == f"{str(Path(given)).replace('helpers', 'train')}:7"


def test_results_depend_neither_on_the_order_nor_on_the_number_of_processes(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "WORTH_FORKING", 0)
    for jobs in (1, 2, 3):
        mixed = random.Random(jobs).sample(files, len(files))
        assert sorted(found(_check(mixed, jobs=jobs))) == ALL


def test_many_files_are_checked_with_the_same_views(files: list[Path], tmp_path: Path) -> None:
    more = [tmp_path / f"other{number:03}.py" for number in range(160)]
    for number, file in enumerate(more):
        file.write_text(f"import torch\n\nVALUE = {number}\n")
    for jobs in (1, 2):
        assert found(_check([*more, *files], jobs=jobs)) == ALL


@pytest.mark.parametrize("name", ["data.py", "helpers.py", "train.py"])
def test_a_text_in_memory_is_judged_as_its_file_in_a_full_run(
    files: list[Path], tmp_path: Path, name: str
) -> None:
    using, path = project(), tmp_path / name
    rules, settings = using.selection(path), using.settings(path)
    data = path.read_bytes()
    path.write_text("import torch\n")
    result = check_bytes(data, str(path), rules, settings, link=Programs().link)
    assert found([result]) == [each for each in ALL if each[0] == name]


def test_a_text_without_a_path_is_judged_alone(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rules, settings = project().selection(Path()), project().settings(Path())
    result = check_bytes(TRAIN.encode(), "-", rules, settings, link=Programs().link)
    assert found([result]) == []


def test_a_cached_result_counts_until_what_is_linked_changes(
    files: list[Path], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    assert found(_check(files, cache_dir=cache)) == ALL
    (kept,) = cache.glob("*.json")
    before = kept.read_bytes()
    assert found(_check(files, cache_dir=cache)) == ALL
    assert kept.read_bytes() == before
    files[0].write_text(DATA.replace(", pin_memory=True", ", pin_memory=False"))
    assert found(_check(files, cache_dir=cache)) == ALL[:1]
    files[2].write_text(TRAIN.partition("for batch")[0] + "noisy(torch.ones(4))\n")
    assert found(_check(files, cache_dir=cache)) == []


def test_what_no_file_names_is_looked_for_where_it_is_linked(tmp_path: Path) -> None:
    """Look at a module that never names torch, if torch code calls it."""
    write(tmp_path, without="helpers.py")
    (tmp_path / "helpers.py").write_text('def noisy(batch):\n    return batch.to("cuda")\n')
    (tmp_path / "train.py").write_text(TRAIN.replace('batch.to("cuda")', "batch"))
    assert ("helpers.py", 2, "TL204") in found(_check([tmp_path / "helpers.py"]))


def test_a_fix_that_needs_that_of_another_file_is_made_in_the_same_run(tmp_path: Path) -> None:
    files = write(tmp_path)
    files[0].write_text(DATA.replace(", pin_memory=True", ""))
    using = project(select=("TL102", "TL204"), unsafe_fixes=True)
    data, _, train = fix_paths(files, using)
    assert "pin_memory=torch.cuda.is_available()" in data.after.text
    assert train.after.text.count("non_blocking=True") == 2
    assert not data.left
    assert not train.left
    assert train.before.text == TRAIN


def test_fixes_stay_in_their_file(tmp_path: Path) -> None:
    files = write(tmp_path)
    data, helpers, train = fix_paths(files, project(unsafe_fixes=True))
    assert not data.changed
    assert helpers.after.text == HELPERS.replace(
        'torch.zeros(4).to("cuda")', 'torch.zeros(4, device="cuda")'
    )
    assert train.after.text.count("non_blocking=True") == 2
