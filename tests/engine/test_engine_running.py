from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pack_pages import page
from tiny_rules import broken, replacing, rule_of

from torchlint.engine import FileResult, Project, check_paths, fix_paths
from torchlint.engine import jobs as work
from torchlint.engine.files import WORTH_REMEMBERING
from torchlint.engine.processes import Died, can_fork
from torchlint.engine.workers import Workers
from torchlint.finding import Finding
from torchlint.registry import Registry, RuleHead
from torchlint.rule import Rule

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")


def _project(*rules: type[Rule], **overrides: object) -> Project:
    heads = tuple(RuleHead.of(rule) for rule in rules)
    return Project(Registry(heads), {"select": ("ALL",), **overrides}, isolated=True)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setattr(work, "WORTH_FORKING", 0)
    paths = []
    for number in range(12):
        path = tmp_path / f"f{number:02}.py"
        path.write_text("y = 0\n" * ((number * 7) % 12) + f"x = {number}\n")
        paths.append(path)
    (tmp_path / "f05.py").write_text("nothing\n")
    (tmp_path / "f06.py").write_bytes(b"x = '\xff'\n")
    return [*paths, tmp_path / "gone.py"]


def _summary(result: FileResult) -> tuple[object, ...]:
    return (Path(result.path).name, result.findings, result.errors, result.source, result.warnings)


@needs_fork
def test_results_are_the_same_in_any_number_of_processes(files: list[Path]) -> None:
    project = _project(replacing("x", "z"))
    alone = [_summary(each) for each in check_paths(files, project, jobs=1)]
    assert [each[0] for each in alone] == [path.name for path in files]
    assert len(alone[4][1]) == 1  # type: ignore[arg-type]
    assert "gone.py cannot be read: No such file" in alone[-1][2][0]  # type: ignore[index]
    for jobs in (2, 5, 40):
        assert [_summary(each) for each in check_paths(files, project, jobs=jobs)] == alone


@needs_fork
def test_fixes_are_the_same_in_any_number_of_processes(files: list[Path]) -> None:
    project = _project(replacing("x", "z"))
    alone = list(fix_paths(files, project, jobs=1))
    assert list(fix_paths(files, project, jobs=3)) == alone
    assert alone[3].after.text.endswith("z = 3\n")
    assert alone[3].before.text.endswith("x = 3\n")
    assert not alone[5].changed


@needs_fork
def test_a_process_that_dies_takes_one_file_with_it(files: list[Path]) -> None:
    def found(rule: Rule, text: str) -> Iterator[Finding]:
        if "x = 8\n" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from ()

    assert can_fork(), "a thread that another test left would make the rule end this process"
    results = list(check_paths(files, _project(rule_of("TL905", "deadly", found, ("x",))), jobs=2))
    told = {Path(each.path).name: each for each in results if not each.is_whole}
    assert told.keys() == {"f08.py", "gone.py"}
    assert not told["f08.py"].errors
    assert "was killed by SIGKILL" in told["f08.py"].warnings[0]
    assert "internal error" in told["f08.py"].warnings[0]


@needs_fork
def test_results_that_nobody_wants_leave_no_process(files: list[Path]) -> None:
    workers: Workers[int] = Workers(lambda number: number, [1] * 9, 3)
    results = workers.results()
    assert not isinstance(next(results)[1], Died)
    results.close()  # type: ignore[attr-defined]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@needs_fork
@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_each_item_is_done_once_whatever_the_weights(jobs: int) -> None:
    weights = [1_000, *([0] * 4_000), 70, *range(50)]
    workers: Workers[int] = Workers(lambda number: -number, weights, jobs)
    results = list(workers.results())
    assert sorted(number for number, _ in results) == list(range(len(weights)))
    assert all(result == -number for number, result in results)


@needs_fork
def test_what_is_heavy_comes_first_and_the_rest_in_its_order() -> None:
    weights = [1] * 100
    weights[70], weights[30] = 500, 900
    workers: Workers[int] = Workers(lambda number: number, weights, 1)
    done = [number for number, _ in workers.results()]
    assert done == [30, 70, *(number for number in range(100) if number not in (30, 70))]


@needs_fork
def test_every_process_may_die_and_the_rest_is_done() -> None:
    def deadly(number: int) -> int:
        if number % 7 == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    results = dict(Workers(deadly, [1] * 60, 3).results())
    assert len(results) == 60
    died = {number for number, result in results.items() if isinstance(result, Died)}
    assert died == {number for number in range(60) if number % 7 == 3}


@needs_fork
@pytest.mark.parametrize("forks", [0, 1])
def test_what_the_system_gives_no_process_for_is_done_here(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, forks: int
) -> None:
    project = _project(replacing("x", "z"))
    alone = [_summary(each) for each in check_paths(files, project, jobs=1)]
    left = [True] * forks
    fork = os.fork

    def scarce() -> int:
        if left:
            left.pop()
            return fork()
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", scarce)
    assert [_summary(each) for each in check_paths(files, project, jobs=3)] == alone
    assert not left


def test_an_error_that_names_no_file_is_told_once(tmp_path: Path, files: list[Path]) -> None:
    module = tmp_path / "xy100_absent.py"
    written = tmp_path / "xy100_absent.md"
    written.write_text(page("XY100", "absent", about="[x]", needs="[x]"))
    head = RuleHead("XY100", "absent", "theirs", "no_such.xy100_absent", str(module), str(written))
    project = Project(Registry((head,)), isolated=True)
    errors = [error for each in check_paths(files[:-1], project) for error in each.errors]
    (error,) = errors
    assert error.startswith("rule pack `theirs`: no_such.xy100_absent cannot be imported")


def _counted(count: list[str]) -> type[Rule]:
    def found(rule: Rule, text: str) -> Iterator[Finding]:
        count.append(text)
        yield from replacing("x", "z").check(rule, _Script(text))  # type: ignore[arg-type]

    return rule_of("TL902", "counted", found, ("x",))


class _Script:
    def __init__(self, text: str) -> None:
        from torchlint.source import Source

        self.source = Source("", text)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_a_file_that_did_not_change_is_not_looked_at_again(files: list[Path], cache: Path) -> None:
    asked: list[str] = []
    project = _project(_counted(asked))
    first = [_summary(each) for each in check_paths(files, project, jobs=1, cache_dir=cache)]
    assert len(asked) == 10
    again = [_summary(each) for each in check_paths(files, project, jobs=1, cache_dir=cache)]
    assert again == first
    assert len(asked) == 10
    files[2].write_text("x = 22\n")
    list(check_paths(files, project, jobs=1, cache_dir=cache))
    assert asked[10:] == ["x = 22\n"]
    assert (cache / ".gitignore").read_text() == "*\n"


def test_what_a_result_depends_on_is_in_its_name(files: list[Path], cache: Path) -> None:
    asked: list[str] = []
    rule = _counted(asked)
    for overrides in ({}, {"target_torch": (2, 1)}, {"unfixable": ("ALL",)}, {}):
        list(check_paths(files, _project(rule, **overrides), jobs=1, cache_dir=cache))
    assert len(asked) == 30


def test_a_fix_uses_what_a_check_found(files: list[Path], cache: Path) -> None:
    asked: list[str] = []
    project = _project(_counted(asked), unfixable=("ALL",))
    list(check_paths(files, project, jobs=1, cache_dir=cache))
    assert not any(each.changed for each in fix_paths(files, project, jobs=1, cache_dir=cache))
    assert len(asked) == 10


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[1, 2]", b"\xff\x00", b"[" * 100_000, None],
    ids=["empty", "cut", "other", "binary", "deep", "entries"],
)
def test_a_damaged_cache_is_made_anew(files: list[Path], cache: Path, damage: bytes | None) -> None:
    project = _project(replacing("x", "z"))
    first = [_summary(each) for each in check_paths(files, project, jobs=1, cache_dir=cache)]
    (kept,) = cache.glob("*.json")
    if damage is None:
        damage = json.dumps({key: ["no", 1] for key in json.loads(kept.read_bytes())}).encode()
    kept.write_bytes(damage)
    again = [_summary(each) for each in check_paths(files, project, jobs=1, cache_dir=cache)]
    assert again == first
    assert json.loads(kept.read_bytes()) != damage


def test_a_cache_that_cannot_be_written_is_none(files: list[Path], cache: Path) -> None:
    cache.write_text("a file is in the way")
    project = _project(replacing("x", "z"))
    assert len(list(check_paths(files, project, jobs=1, cache_dir=cache))) == len(files)


def test_what_could_not_be_finished_is_not_kept(files: list[Path], cache: Path) -> None:
    for _ in range(2):
        results = list(check_paths(files, _project(broken("x")), jobs=1, cache_dir=cache))
        assert sum("TL903" in "".join(each.warnings) for each in results) == 10


@pytest.fixture
def many(tmp_path: Path) -> list[Path]:
    """Files of which most are clean."""
    paths = [tmp_path / f"g{number:02}.py" for number in range(WORTH_REMEMBERING)]
    for number, path in enumerate(paths):
        path.write_text("x = 1\n" if number < 5 else "y = 1\n" if number < 10 else "nothing\n")
    return paths


def _finding_x(asked: list[str]) -> type[Rule]:
    def found(rule: Rule, text: str) -> Iterator[Finding]:
        asked.append(text)
        yield from replacing("x", "z").check(rule, _Script(text))  # type: ignore[arg-type]

    return rule_of("TL902", "counted", found, ("x", "y"))


def test_what_is_in_the_cache_is_asked_of_no_rule(many: list[Path], cache: Path) -> None:
    asked: list[str] = []
    project = _project(_finding_x(asked))
    first = list(check_paths(many, project, jobs=1, cache_dir=cache))
    assert len(asked) == 10
    again = list(check_paths(many, project, jobs=1, cache_dir=cache))
    assert [each.findings for each in again] == [each.findings for each in first]
    assert len(asked) == 10
    fixed = list(fix_paths(many, project, jobs=1, cache_dir=cache))
    assert [each.changed for each in fixed] == [number < 5 for number in range(50)]
    assert sorted(asked[10:]) == ["x = 1\n"] * 5


@needs_fork
def test_many_files_are_the_same_in_any_number_of_processes(
    many: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "WORTH_FORKING", 0)
    project = _project(_finding_x([]))
    alone = [_summary(each) for each in check_paths(many, project, jobs=1)]
    assert [bool(each[3]) for each in alone] == [number < 5 for number in range(50)]
    assert [_summary(each) for each in check_paths(many, project, jobs=3)] == alone
    fixed = list(fix_paths(many, project, jobs=1))
    assert list(fix_paths(many, project, jobs=3)) == fixed
    assert [each.after.text for each in fixed[:6]] == ["z = 1\n"] * 5 + [""]


def test_what_is_kept_is_of_the_text_that_was_checked(
    many: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = _project(_finding_x([]))
    results = check_paths(many, project, jobs=1, cache_dir=cache)
    many[0].write_text("y = 1\n")  # between the look at all files and the work on this one
    many[7].write_text("x = 1\n")
    found = [number for number, each in enumerate(results) if each.findings]
    assert found == [1, 2, 3, 4, 7]
    many[0].write_text("x = 1\n")
    many[7].write_text("y = 1\n")
    results = check_paths(many, project, jobs=1, cache_dir=cache)
    assert [number for number, each in enumerate(results) if each.findings] == [0, 1, 2, 3, 4]


def test_a_clean_file_that_was_touched_is_read(many: list[Path], cache: Path) -> None:
    project = _project(_finding_x([]))
    list(check_paths(many, project, jobs=1, cache_dir=cache))
    times = many[7].stat()
    many[7].write_text("x = 1\n")
    os.utime(many[7], ns=(times.st_atime_ns, times.st_mtime_ns))
    other = many[8].with_name("other")
    other.write_text("x = 1\n")
    other.replace(many[8])
    results = list(check_paths(many, project, jobs=1, cache_dir=cache))
    assert [number for number, each in enumerate(results) if each.findings] == [0, 1, 2, 3, 4, 7, 8]


def test_clean_is_clean_for_the_same_settings_alone(many: list[Path], cache: Path) -> None:
    asked: list[str] = []
    for rule, overrides in (
        (_finding_x(asked), {}),
        (_finding_x(asked), {"target_torch": (2, 1)}),
        (_finding_x(asked), {"target_torch": (2, 1)}),
    ):
        list(check_paths(many, _project(rule, **overrides), jobs=1, cache_dir=cache))
    assert len(asked) == 20


@pytest.mark.parametrize("text", ["name = 'no network here'\n", "import torch\n"])
def test_a_file_of_no_concern_costs_no_imports(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.py").write_text(text)
    program = (
        "import sys; from pathlib import Path\n"
        "from torchlint.engine import Project, check_paths\n"
        "from torchlint.registry import load_registry\n"
        "project = Project(load_registry(), isolated=True)\n"
        "results = list(check_paths([Path(sys.argv[1])], project))\n"
        "assert not results[0].errors and not results[0].findings, results\n"
        "heavy = {'libcst', 'torch', 'numpy', 'rich', 'importlib.metadata',"
        " 'torchlint.rule', 'torchlint.semantic.script', 'packaging', 'tomllib', 'hashlib',"
        " 'shutil', 'difflib', 'torchlint.engine.checking',"
        " 'torchlint.engine.fixing', 'torchlint.suppress',"
        " 'torchlint.notebook.notebook'}\n"
        "print(*sorted(heavy & sys.modules.keys()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a.py")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.stdout.strip() == ""
