"""Settings from a base file, the environment, and the version that they require."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from torchlint import __version__
from torchlint.config import ConfigError, load
from torchlint.config.settings import key_of, option_names
from torchlint.config.values import schema
from torchlint.engine.project import Project
from torchlint.registry import load_registry


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_extends_another(tmp_path: Path) -> None:
    base = written(
        tmp_path,
        "base.toml",
        'select = ["TL1"]\nextend-ignore = ["TL103"]\njobs = 3\n'
        'severity = { TL1 = "note", TL2 = "error" }\n[rules.loader-without-workers]\nworkers = 2\n',
    )
    own = written(
        tmp_path,
        "src/torchlint.toml",
        'extend = "../base.toml"\njobs = 5\nextend-ignore = ["TL104"]\n'
        'severity = { TL1 = "warning" }\n',
    )
    settings = load(tmp_path / "src")
    assert settings.select == ("TL1",)
    assert settings.jobs == 5
    assert settings.extend_ignore == ("TL103", "TL104")
    assert settings.severity == {"TL1": "warning", "TL2": "error"}
    assert settings.rules == {"loader-without-workers": {"workers": 2}}
    assert (settings.config_file, settings.bases) == (own, (base,))
    assert settings.root == tmp_path / "src"
    assert settings.source_of("select") == str(base)
    assert settings.source_of("jobs") == str(own)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('extend = "gone.toml"', "torchlint.toml:1: `extend`: there is no file"),
        ('extend = "torchlint.toml"', "extends this file in turn"),
        ("extend = 3", "must be a path in quotes"),
    ],
)
def test_a_wrong_base_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    written(tmp_path, "torchlint.toml", text)
    with pytest.raises(ConfigError, match=said):
        load(tmp_path)


def test_two_files_that_extend_each_other_are_an_error(tmp_path: Path) -> None:
    written(tmp_path, "torchlint.toml", 'extend = "a.toml"')
    written(tmp_path, "a.toml", 'extend = "torchlint.toml"')
    with pytest.raises(ConfigError, match="in turn"):
        load(tmp_path)


def test_an_error_in_a_base_names_the_base(tmp_path: Path) -> None:
    written(tmp_path, "torchlint.toml", 'extend = "a.toml"')
    written(tmp_path, "a.toml", "\njbos = 3\n")
    with pytest.raises(ConfigError, match=r"a\.toml:2: unknown key `jbos`, did you mean `jobs`"):
        load(tmp_path)


def test_variables_stand_above_files_and_below_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "torchlint.toml", 'jobs = 3\nselect = ["TL1"]\n')
    for name, value in {
        "OUTPUT_FORMAT": "json",
        "SELECT": "TL2, TL3",
        "JOBS": "4",
        "FILE_TIMEOUT": "1.5",
        "NO_CACHE": "1",
        "CACHE_DIR": "/tmp/x",
        "QUIET": "",
    }.items():
        monkeypatch.setenv(f"TORCHLINT_{name}", value)
    settings = load(tmp_path, {"jobs": 7})
    assert settings.output_format == "json"
    assert settings.select == ("TL2", "TL3")
    assert (settings.jobs, settings.file_timeout) == (7, 1.5)
    assert (settings.no_cache, settings.quiet) == (True, False)
    assert settings.cache_dir == Path("/tmp/x")
    assert settings.source_of("select") == "environment"


@pytest.mark.parametrize(("name", "value"), [("JOBS", "many"), ("QUIET", "maybe"), ("SORT", "x")])
def test_a_wrong_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"TORCHLINT_{name}", value)
    with pytest.raises(ConfigError, match=f"TORCHLINT_{name}: must be"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("wanted", "is_met"),
    [(__version__, True), (">=0.1", True), ("9.1", False), (">=9", False), ("~=0.1.0", True)],
)
def test_a_required_version_is_held(tmp_path: Path, wanted: str, is_met: bool) -> None:
    written(tmp_path, "torchlint.toml", f'required-version = "{wanted}"')
    project = Project(load_registry())
    if is_met:
        assert project.settings(tmp_path).required_version == wanted
    else:
        with pytest.raises(ConfigError, match=f"the project wants {wanted}"):
            project.settings(tmp_path)


def test_a_required_version_is_a_version(tmp_path: Path) -> None:
    written(tmp_path, "torchlint.toml", 'required-version = "newest"')
    with pytest.raises(ConfigError, match="must be a version of torchlint"):
        load(tmp_path)


def test_the_schema_has_every_setting_and_accepts_what_is_valid() -> None:
    made = json.loads(json.dumps(schema({"jobs": "Number of processes."})))
    jsonschema.Draft7Validator.check_schema(made)
    assert set(made["properties"]) == {"extend", *map(key_of, option_names())}
    assert made["properties"]["jobs"]["description"] == "Number of processes."
    jsonschema.validate({"select": ["TL1"], "fail-on": "high", "jobs": 2}, made)
    for wrong in ({"jobs": 0}, {"sort": "x"}, {"unknown": 1}, {"severity": {"TL1": "bad"}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, made)
