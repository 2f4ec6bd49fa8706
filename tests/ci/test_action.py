"""The GitHub Action: valid, pinned, and its own steps run in a shell as a runner runs them.

What comes from elsewhere (setting Python up, the upload) is written down, not done; instead of
an installation, a stub of `python -m venv` leads to the torchlint under test.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
SLOW = "import torch\n\ntorch.autograd.set_detect_anomaly(True)\n"
FAST = "import torch\n"
RUNNER = {"runner.temp": "/temp", "runner.os": "Linux", "github.sha": "0a1b"}
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
PYTHON = """\
#!/bin/sh
case "$2" in
  venv)
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python"
    printf '#!/bin/sh\\nexec "{python}" -m torchlint "$@"\\n' > "$3/bin/torchlint"
    chmod +x "$3/bin/torchlint"
    ;;
  pip) printf '%s\\n' "$@" > "$RUNNER_TEMP/pip" ;;
  *) exec "{python}" "$@" ;;
esac
"""


@dataclass
class Runner:
    """A folder with a project in it, and what became of the steps that ran there."""

    folder: Path
    inputs: dict[str, str]
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    used: list[dict[str, Any]] = field(default_factory=list)
    printed: str = ""

    def run(self) -> int:
        """Run the steps until one fails, and give its exit code."""
        temp = self.folder / "temp"
        temp.mkdir()
        python = self.folder / "python"
        python.write_text(PYTHON.format(python=sys.executable))
        python.chmod(0o755)
        self.outputs["python"] = {"python-path": str(python)}
        for step in STEPS:
            if not self._holds(step.get("if", "true")):
                continue
            if "uses" in step:
                self.used.append({key: self._filled(value) for key, value in _flat(step)})
            else:
                code = self._shell(step, temp)
                if code:
                    return code
        return 0

    def _shell(self, step: dict[str, Any], temp: Path) -> int:
        output = temp / "output"
        output.write_text("")
        script = temp / "script.sh"
        script.write_text(step["run"])
        done = subprocess.run(
            [*BASH, str(script)],
            cwd=self.folder / "project",
            env={
                **os.environ,
                "RUNNER_TEMP": str(temp),
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(temp / "summary.md"),
                "GITHUB_ACTION_PATH": str(ROOT),
                "GITHUB_WORKSPACE": str(self.folder / "project"),
                **{key: self._filled(value) for key, value in step.get("env", {}).items()},
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.printed += done.stdout
        pairs = (line.partition("=") for line in output.read_text().splitlines())
        self.outputs.setdefault(step.get("id", ""), {}).update({key: v for key, _, v in pairs})
        return done.returncode

    def _filled(self, value: str) -> str:
        return re.sub(r"\$\{\{ (.+?) \}\}", lambda match: self._value(match[1]), value)

    def _value(self, expression: str) -> str:
        if expression in RUNNER:
            return RUNNER[expression]
        kind, _, rest = expression.partition(".")
        if kind == "inputs":
            return self.inputs[rest]
        match = re.fullmatch(r"steps\.([\w-]+)\.outputs\.([\w-]+)", expression)
        assert match is not None, expression
        return self.outputs[match[1]].get(match[2], "")

    def _holds(self, condition: str) -> bool:
        if condition == "true":
            return True
        parts = [part.partition(" == ") for part in condition.split(" && ")]
        return all(self._value(left) == right.strip("'") for left, _, right in parts)


def _flat(step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "uses", step["uses"].partition("@")[0]
    for key, value in step.get("with", {}).items():
        yield key, str(value)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a script that is slow and one that is not."""
    monkeypatch.delenv("GITHUB_BASE_REF", raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "slow.py").write_text(SLOW)
    (folder / "a file.py").write_text(FAST)
    return folder


def _run(project: Path, **inputs: str) -> tuple[int, Runner]:
    defaults = {name: str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
    runner = Runner(project.parent, {**defaults, **inputs})
    return runner.run(), runner


def test_the_action_is_valid() -> None:
    schema = json.loads((Path(__file__).parent / "schemas" / "github-action.json").read_text())
    jsonschema.validate(ACTION, schema)


def test_other_actions_are_pinned_to_a_commit() -> None:
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert len(used) == 3
    for each in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)


def test_no_input_becomes_part_of_a_script() -> None:
    for step in STEPS:
        assert "${{" not in step.get("run", "")


def test_findings_become_annotations_and_fail_the_job(project: Path) -> None:
    code, runner = _run(project)
    assert code == 1
    assert "::error title=torchlint (TL801),file=slow.py,line=3," in runner.printed
    assert [step["uses"] for step in runner.used] == ["actions/setup-python", "actions/cache"]


def test_the_summary_of_the_job_shows_the_findings(project: Path) -> None:
    _run(project)
    summary = project.parent / "temp" / "summary.md"
    assert summary.read_text().startswith("### torchlint: 1 finding in 1 file (1 high)\n")


def test_packages_and_results_are_kept_where_they_are_written(project: Path) -> None:
    _, runner = _run(project)
    kept = runner.used[1]
    assert kept["path"] == "/temp/torchlint-kept"
    assert kept["key"].startswith(kept["restore-keys"])
    assert kept["key"].endswith("-0a1b")
    assert any((project.parent / "temp/torchlint-kept/results").iterdir())
    assert not (project / ".torchlint_cache").exists()


def test_nothing_is_kept_if_it_is_not_wanted(project: Path) -> None:
    _, runner = _run(project, cache="false")
    assert [step["uses"] for step in runner.used] == ["actions/setup-python"]


def test_torchlint_runs_in_the_working_directory(project: Path) -> None:
    inner = project / "an inner one"
    inner.mkdir()
    (inner / "train.py").write_text(SLOW)
    (inner / "torchlint.toml").write_text('exclude = ["slow.py"]\n')
    code, runner = _run(project, **{"working-directory": inner.name})
    assert code == 1
    assert runner.printed.count("::error") == 1
    assert "file=an inner one/train.py,line=3," in runner.printed
    assert "an inner one/train.py" in (project.parent / "temp" / "summary.md").read_text()


def test_a_working_directory_that_is_not_there_fails_in_one_line(project: Path) -> None:
    code, runner = _run(project, **{"working-directory": "nowhere"})
    assert code == 2
    assert "::error::there is no folder `nowhere`" in runner.printed


def test_no_summary_is_written_if_it_is_not_wanted(project: Path) -> None:
    assert _run(project, summary="false", **{"fail-on": "high"})[0] == 1
    assert not (project.parent / "temp" / "summary.md").exists()


def _git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True)


def _commit_all(folder: Path) -> None:
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--message", "all")


def test_only_findings_since_a_revision_fail_the_job(project: Path) -> None:
    _git(project, "init", "--quiet")
    _commit_all(project)
    code, runner = _run(project, since="HEAD")
    assert (code, runner.printed) == (0, "")


@pytest.mark.parametrize(("since", "old"), [("base", False), ("", True)])
def test_a_pull_request_is_asked_about_the_lines_that_it_changes(
    project: Path, monkeypatch: pytest.MonkeyPatch, since: str, old: bool
) -> None:
    _git(project, "init", "--quiet", "--initial-branch", "main")
    _commit_all(project)
    _git(project, "checkout", "--quiet", "-b", "change")
    (project / "new.py").write_text(SLOW)
    _commit_all(project)
    project.rename(project.with_name("origin"))
    origin = project.with_name("origin").as_uri()
    _git(
        project.parent, "clone", "--quiet", "--depth", "1", "--branch", "change", origin, "project"
    )
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    code, runner = _run(project, since=since)
    assert code == 1
    assert "new.py" in runner.printed
    assert ("slow.py" in runner.printed) is old


def test_a_base_that_is_out_of_reach_is_told(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _git(project, "init", "--quiet")
    _commit_all(project)
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    code, runner = _run(project)
    assert code == 1
    assert "::warning::git cannot reach `origin/main`, so all findings count" in runner.printed


def test_sarif_is_written_and_uploaded_and_the_job_fails(project: Path) -> None:
    code, runner = _run(project, format="sarif", args="slow.py")
    assert code == 1
    upload = runner.used[-1]
    assert upload["uses"] == "github/codeql-action/upload-sarif"
    written = json.loads(Path(upload["sarif_file"]).read_text())
    assert [each["ruleId"] for each in written["runs"][0]["results"]] == ["TL801"]


def test_sarif_may_stay_where_it_is(project: Path) -> None:
    code, runner = _run(project, format="sarif", upload="false", args="--exit-zero .")
    assert code == 0
    assert [step["uses"] for step in runner.used] == ["actions/setup-python", "actions/cache"]
    assert Path(runner.outputs["check"]["sarif-file"]).is_file()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("'a file.py'", 0),
        ("--ignore TL801 .", 0),
        (". --select 'TL801'", 1),
        ("$(touch made) `touch made` ; touch made", 2),
        ("no-such-file.py", 2),
        ("'unfinished", 1),
    ],
)
def test_arguments_are_words_of_a_shell_and_no_more(
    project: Path, arguments: str, code: int
) -> None:
    given, runner = _run(project, args=arguments)
    assert given == code, runner.printed
    assert not (project / "made").exists()
    assert len(runner.used) == 2
    if "unfinished" in arguments:
        assert runner.printed == "::error::the input `args` cannot be read: No closing quotation\n"


def test_an_unknown_format_is_refused(project: Path) -> None:
    code, runner = _run(project, format="xml")
    assert code == 2
    assert "::error::the input `format` must be `github` or `sarif`, not `xml`" in runner.printed


@pytest.mark.parametrize(("version", "installed"), [("", str(ROOT)), ("1.2.3", "torchlint==1.2.3")])
def test_the_version_is_what_pip_installs(project: Path, version: str, installed: str) -> None:
    _, runner = _run(project, version=version, args="--exit-zero .")
    words = (runner.folder / "temp" / "pip").read_text().splitlines()
    assert words[:3] == ["-m", "pip", "install"]
    assert words[-1] == installed
