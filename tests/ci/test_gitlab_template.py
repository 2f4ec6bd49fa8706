"""The GitLab template: valid, and its script run in a shell as a runner runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
TEMPLATE = yaml.safe_load((ROOT / "templates" / "torchlint.gitlab-ci.yml").read_text("utf-8"))
JOB = TEMPLATE["torchlint"]
REPORT = JOB["artifacts"]["reports"]["codequality"]
SLOW = "import torch\n\ntorch.autograd.set_detect_anomaly(True)\n"
TOOLS = {
    "python": '#!/bin/sh\necho "$@" > installed\n',
    "pip": '#!/bin/sh\necho "$@" > installed\n',
    "torchlint": f'#!/bin/sh\nexec "{sys.executable}" -m torchlint "$@"\n',
}


def test_the_template_is_valid() -> None:
    schema = json.loads((Path(__file__).parent / "schemas" / "gitlab-ci.json").read_text())
    jsonschema.validate(TEMPLATE, schema)


@pytest.mark.parametrize(
    ("arguments", "code", "found"),
    [(".", 1, ["TL801"]), (". --exit-zero", 0, ["TL801"]), (". --ignore TL801", 0, [])],
)
def test_the_report_is_there_whatever_was_found(
    tmp_path: Path, arguments: str, code: int, found: list[str]
) -> None:
    project, tools = tmp_path / "project", tmp_path / "tools"
    project.mkdir()
    tools.mkdir()
    (project / "slow.py").write_text(SLOW)
    variables = {**JOB["variables"], "TORCHLINT_ARGS": arguments}
    assert _run("\n".join(JOB["script"]), project, tools, variables) == code
    assert (project / "installed").read_text() == "-m pip install --quiet torchlint\n"
    report = json.loads((project / REPORT).read_text())
    assert [entry["check_name"] for entry in report] == found


def test_the_page_says_how_to_do_without_the_template(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guide" / "gitlab.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "slow.py").write_text(SLOW)
    tools = tmp_path / "tools"
    tools.mkdir()
    assert _run(script, tmp_path, tools, {}) == 1
    assert (tmp_path / "installed").read_text() == "install torchlint\n"
    report = json.loads((tmp_path / REPORT).read_text())
    assert [entry["check_name"] for entry in report] == ["TL801"]


def _run(script: str, folder: Path, tools: Path, variables: dict[str, str]) -> int:
    """Run a script as a runner does, with a pip that installs nothing; return its exit code."""
    for name, text in TOOLS.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, **variables, "PATH": path}
    return subprocess.run(["sh", "-e", "-c", script], cwd=folder, env=env, check=False).returncode
