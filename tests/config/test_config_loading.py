from __future__ import annotations

from pathlib import Path

import pytest

from torchlint.config import ConfigError, Settings, load
from torchlint.config.settings import DEFAULT_EXCLUDE, option_names


def _write(folder: Path, text: str, name: str = "pyproject.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def test_every_option_in_its_toml_form(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    file = _write(
        tmp_path,
        """
        select = ["TL1"]
        extend-select = ["TL211"]
        ignore = ["TL103"]
        extend-ignore = []
        fixable = ["ALL"]
        unfixable = ["TL101"]
        extend-safe-fixes = ["TL401"]
        extend-unsafe-fixes = ["TL501"]
        exclude = ["old"]
        extend-exclude = ["new"]
        per-file-ignores = { "tests/*" = ["TL2"] }
        results-only = ["probes"]
        target-torch = "2.4"
        target-device = "cuda"
        preview = true
        severity = { TL4 = "note" }
        required-version = ">=0"
        sort = "impact"
        show-low = true
        fail-on = "high"
        unsafe-fixes = true
        ignore-suppressions = true
        program = false
        project-root = "inner"
        src = ["lib"]
        respect-gitignore = false
        force-exclude = true
        output-format = "json-lines"
        output-file = "out/report.json"
        statistics = true
        baseline = "known.json"
        exit-zero = true
        jobs = 2
        file-timeout = 2.5
        no-cache = true
        cache-dir = ".cache"
        quiet = true
        verbose = true
        color = "never"
        [rules.loader-without-workers]
        workers = 2
        """,
        "torchlint.toml",
    )
    (tmp_path / "lib").mkdir()
    settings = load(tmp_path / "a.py")
    assert settings == Settings(
        root=tmp_path,
        config_file=file,
        select=("TL1",),
        extend_select=("TL211",),
        ignore=("TL103",),
        unfixable=("TL101",),
        extend_safe_fixes=("TL401",),
        extend_unsafe_fixes=("TL501",),
        exclude=("old",),
        extend_exclude=("new",),
        per_file_ignores={"tests/*": ("TL2",)},
        results_only=("probes",),
        target_torch=(2, 4),
        target_device="cuda",
        preview=True,
        severity={"TL4": "note"},
        required_version=">=0",
        sort="impact",
        show_low=True,
        fail_on="high",
        unsafe_fixes=True,
        ignore_suppressions=True,
        program=False,
        project_root=tmp_path / "inner",
        src=("lib",),
        respect_gitignore=False,
        force_exclude=True,
        output_format="json-lines",
        output_file=tmp_path / "out" / "report.json",
        statistics=True,
        baseline=tmp_path / "known.json",
        exit_zero=True,
        jobs=2,
        file_timeout=2.5,
        no_cache=True,
        cache_dir=tmp_path / ".cache",
        quiet=True,
        verbose=True,
        color="never",
        rules={"loader-without-workers": {"workers": 2}},
    )
    assert {settings.source_of(option) for option in option_names()} == {str(file)}


def test_the_nearest_file_upwards_wins(tmp_path: Path) -> None:
    _write(tmp_path, '[tool.torchlint]\nselect = ["TL1"]\n')
    _write(tmp_path / "a", "[tool.other]\n")
    _write(tmp_path / "a" / "b", 'select = ["TL2"]\n', "torchlint.toml")
    _write(tmp_path / "a" / "b", '[tool.torchlint]\nselect = ["TL3"]\n')
    (tmp_path / "a" / "b" / "c").mkdir()
    assert load(tmp_path / "a" / "x.py").select == ("TL1",)
    assert load(tmp_path / "a").root == tmp_path
    assert load(tmp_path / "a" / "b" / "c" / "x.py").select == ("TL2",)


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert (settings.select, settings.exclude) == (None, DEFAULT_EXCLUDE)
    assert settings.source_of("select") == "default"


def test_a_file_that_is_named_or_none_at_all(tmp_path: Path) -> None:
    _write(tmp_path, '[tool.torchlint]\nselect = ["TL1"]\n')
    named = _write(tmp_path / "conf", 'select = ["TL2"]\n', "mine.toml")
    assert load(tmp_path, config_file=named).select == ("TL2",)
    assert load(tmp_path, isolated=True).select is None


def test_the_command_line_lies_over_the_file(tmp_path: Path) -> None:
    _write(tmp_path, '[tool.torchlint]\nextend-exclude = ["a"]\nextend-select = ["TL2"]\n')
    settings = load(tmp_path, {"extend_exclude": ("b",), "unsafe_fixes": True})
    assert settings.extend_exclude == ("a", "b")
    assert settings.extend_select == ("TL2",)
    assert settings.source_of("unsafe_fixes") == "command line"
    assert load(tmp_path, {"select": ("TL3",)}).extend_select == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nselct = []\n", r"torchlint\.toml:2: unknown key `selct`, did you mean `select`\?"),
        ("ignore = 'TL1'\n", r"torchlint\.toml:1: `ignore`: must be a list of strings"),
        ("target-torch = 2.4\n", r":1: `target-torch`: must be a version in quotes"),
        ("target-torch = 'two'\n", r":1: `target-torch`: `two` is not a version of torch"),
        ("target-device = 'cud'\n", r"must be one of auto, cuda.*did you mean `cuda`\?"),
        ("output-format = 'jsn'\n", r"`output-format`: must be one of full.*mean `json`\?"),
        ("color = true\n", r"`color`: must be one of auto, always, never$"),
        ("output-file = 1\n", r"`output-file`: must be a path in quotes"),
        ("baseline = ''\n", r"`baseline`: must be a path in quotes"),
        ("cache-dir = ['a']\n", r"`cache-dir`: must be a path in quotes"),
        ("jobs = 0\n", r"`jobs`: must be a whole number above 0"),
        ("jobs = true\n", r"`jobs`: must be a whole number above 0"),
        ("file-timeout = -1\n", r"`file-timeout`: must be seconds, 1000000 at most, or 0"),
        ("file-timeout = nan\n", r"`file-timeout`: must be seconds, 1000000 at most, or 0"),
        ("file-timeout = true\n", r"`file-timeout`: must be seconds, 1000000 at most, or 0"),
        ("statistics = 'yes'\n", r"`statistics`: must be true or false"),
        ("quite = true\n", r"unknown key `quite`, did you mean `quiet`\?"),
        ("unsafe-fixes = 'yes'\n", r"`unsafe-fixes`: must be true or false"),
        ("per-file-ignores = ['a']\n", r"must be a table of patterns"),
        ("per-file-ignores = { 'a' = 'TL2' }\n", r"needs a list of codes for each pattern"),
        ("[tool.torchlint]\njobs = 2\n", r"`tool`: torchlint\.toml has no heading"),
        ("baseline = '../a'\n", r"outside of the folder of this file, which a configuration"),
        ("[rules]\nworkers = 2\n", r":1: `rules`: must hold one table for each rule"),
        ("\nselect = [\n", r"torchlint\.toml:2: not valid TOML: "),
        ("\n\nselect 1\n", r"torchlint\.toml:3: not valid TOML: "),
    ],
)
def test_what_cannot_be_followed_is_named_with_its_line(
    tmp_path: Path, text: str, said: str
) -> None:
    _write(tmp_path, text, "torchlint.toml")
    with pytest.raises(ConfigError, match=said):
        load(tmp_path)


def test_the_table_in_pyproject_must_be_one(tmp_path: Path) -> None:
    _write(tmp_path, "[tool]\ntorchlint = 1\n")
    with pytest.raises(ConfigError, match=r"`tool\.torchlint` must be a table"):
        load(tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*gone\.toml: No such file"):
        load(tmp_path, config_file=tmp_path / "gone.toml")
    binary = tmp_path / "torchlint.toml"
    binary.write_bytes(b"a = 1\n\xff")
    with pytest.raises(ConfigError, match=r"torchlint\.toml:2: not UTF-8 text"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("project", "target"),
    [
        ('[project]\ndependencies = ["numpy", "torch>=2.1,<3"]', (2, 1)),
        ('[project]\ndependencies = ["torch ~= 2.3"]', (2, 3)),
        ('[project]\ndependencies = ["torch==2.2.*"]', (2, 2)),
        ('[project]\ndependencies = ["torch == 2.2.1"]', (2, 2)),
        ('[project]\ndependencies = ["torch>1.13"]', (1, 13)),
        ('[project]\ndependencies = ["torch>=2"]', (2, 0)),
        ('[project]\ndependencies = ["torch"]', None),
        ('[project]\ndependencies = ["torch<2.4"]', None),
        ('[project]\ndependencies = ["torchvision>=0.15", "torch-geometric>=2.4"]', None),
        (
            "[project]\ndependencies = [\"torch>=2.5; sys_platform == 'darwin'\", "
            "\"torch>=2.2; sys_platform != 'darwin'\"]",
            (2, 2),
        ),
        ('[project.optional-dependencies]\ngpu = ["torch>=2.4"]', (2, 4)),
        ('[dependency-groups]\ntrain = ["torch>=2.6", {include-group = "x"}]', (2, 6)),
        ('[tool.poetry.dependencies]\ntorch = "^2.1"', (2, 1)),
        ('[tool.poetry.dependencies]\ntorch = {version = "~2.2", source = "x"}', (2, 2)),
        ('[tool.poetry.dependencies]\ntorch = "2.3.1"', (2, 3)),
        ('[project]\ndependencies = ["torch>=2.1"]\n[tool.torchlint]\ntarget-torch="2.6"', (2, 6)),
        ("[project]\ndependencies = ['torch>>1']", None),
        ("[project]\nname = 'torch-thing'\ndependencies = 'torch'", None),
    ],
)
def test_the_target_follows_the_projects_own_requirement(
    tmp_path: Path, project: str, target: tuple[int, int] | None
) -> None:
    _write(tmp_path, project)
    (tmp_path / "src").mkdir()
    assert load(tmp_path / "src" / "a.py").target_torch == target
    assert load(tmp_path, isolated=True).target_torch is None


@pytest.mark.parametrize(
    ("name", "text", "target"),
    [
        ("requirements.txt", "numpy\ntorch==1.12.1+cu113  # as on the cluster\n", (1, 12)),
        ("requirements.txt", "--extra-index-url https://x.org\ntorch >= 2.1\n", None),
        ("requirements.txt", "torch >= 2.1, < 2.5\n", (2, 1)),
        ("requirements.txt", "torch~=2.1.0\n", (2, 1)),
        ("requirements.txt", "torch==2.4.0 \\\n    --hash=sha256:00\n", (2, 4)),
        ("requirements.txt", "torch==2.4.0 --hash=sha256:00\n", (2, 4)),
        ("requirements.txt", "torchvision==0.13\ntorch\n# torch==1.4\n", None),
        ("requirements.txt", "torch @ https://x.org/torch-2.0-any.whl\n", None),
        ("requirements.txt", "torch @ https://[x/torch-2.0-cp39-cp39-any.whl\n", None),
        (
            "requirements.txt",
            "torch @ https://x.org/torch-1.10.0%2Bcu11-cp39-cp39-any.whl\n",
            (1, 10),
        ),
        ("requirements-cuda11.txt", "torch==1.7.1+cu110\n", (1, 7)),
        ("setup.cfg", "[options]\ninstall_requires =\n    numpy\n    torch>=1.12\n", (1, 12)),
        ("setup.py", "setup(install_requires=['numpy', 'torch>=1.13'])\n", (1, 13)),
        ("setup.py", "NEEDS = ['torch~=2.2']\nsetup(install_requires=NEEDS)\n", (2, 2)),
        ("setup.py", "setup(install_requires=['torch>=0.4.1'])\n", None),
        ("setup.py", "setup(install_requires=['torch>=0.4.1,<1.8'])\n", (0, 4)),
        ("setup.py", "setup(  # 'torch>=1.7'\n", None),
        ("environment.yml", "dependencies:\n  - pytorch=1.12.1=py3.9_cuda\n", (1, 12)),
        ("environment.yml", "dependencies:\n  - pytorch::pytorch>=2.0,<3\n", (2, 0)),
        ("environment.yml", "dependencies:\n  - pytorch 1.13 py3.8_0\n", (1, 13)),
        ("environment.yml", "dependencies:\n  - pytorch-cuda=11.8\n  - pytorch\n", None),
        ("conda_env_gpu.yml", "dependencies:\n  - pytorch=1.13.0\n", (1, 13)),
        ("environment.yaml", "- pip:\n  - 'torch == 2.3.*'\n", (2, 3)),
    ],
)
def test_the_other_files_of_a_project_say_which_torch_it_needs(
    tmp_path: Path, name: str, text: str, target: tuple[int, int] | None
) -> None:
    _write(tmp_path, "[tool.black]\n")
    _write(tmp_path, text, name)
    (tmp_path / "src").mkdir()
    assert load(tmp_path / "src" / "a.py").target_torch == target


def test_what_a_package_needs_counts_more_than_what_is_installed(tmp_path: Path) -> None:
    _write(tmp_path, "torch==2.6\n", "requirements.txt")
    assert load(tmp_path).target_torch == (2, 6)
    _write(tmp_path, '[project]\ndependencies = ["torch>=2.1"]')
    settings = load(tmp_path)
    assert settings.target_torch == (2, 1)
    assert settings.sources["target_torch"] == f"{tmp_path / 'pyproject.toml'} (torch requirement)"


def test_a_source_folder_that_is_not_there_is_an_error_with_its_line(tmp_path: Path) -> None:
    _write(tmp_path, 'ignore = ["TL4"]\nsrc = ["."]\n', "torchlint.toml")
    assert load(tmp_path).src == (".",)
    _write(tmp_path, 'src = [\n  ".",\n  "gone",\n]\n', "torchlint.toml")
    with pytest.raises(ConfigError, match=r"torchlint\.toml:3: `src`: there is no folder gone"):
        load(tmp_path)


def test_the_search_for_torch_ends_where_the_project_begins(tmp_path: Path) -> None:
    _write(tmp_path, "torch==1.12\n", "requirements.txt")
    _write(tmp_path / "inner", "[project]\nname = 'inner'\n")
    assert load(tmp_path / "inner").target_torch is None


def test_a_file_of_requirements_written_by_powershell_is_read(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.2\n", encoding="utf-16")
    assert load(tmp_path).target_torch == (2, 2)
