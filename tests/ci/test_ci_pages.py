"""The configurations on the pages about CI are ones that the tools take."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import yaml

ROOT = Path(__file__).parents[2]
SCHEMAS = Path(__file__).parent / "schemas"


def _blocks(page: str) -> list[Any]:
    text = (ROOT / "docs" / "guide" / f"{page}.md").read_text(encoding="utf-8")
    return [
        yaml.safe_load(body)
        for body in re.findall(r"^```yaml[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


def test_workflows_use_the_inputs_that_the_action_has() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    steps = [step for flow in _blocks("github") for step in flow["jobs"]["torchlint"]["steps"]]
    ours = [step for step in steps if step["uses"].startswith("torchlint/")]
    assert len(ours) == 3
    for step in ours:
        assert step.get("with", {}).keys() <= action["inputs"].keys()
    page = (ROOT / "docs" / "guide" / "github.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)
    assert set(rows) == action["inputs"].keys()


def test_gitlab_takes_the_page_and_the_template_has_its_variables() -> None:
    schema = json.loads((SCHEMAS / "gitlab-ci.json").read_text(encoding="utf-8"))
    template = yaml.safe_load((ROOT / "templates" / "torchlint.gitlab-ci.yml").read_text("utf-8"))
    include, override = _blocks("gitlab")
    jsonschema.validate(include, schema)
    merged = {"torchlint": {**template["torchlint"], **override["torchlint"]}}
    jsonschema.validate(merged, schema)
    assert override["torchlint"]["variables"].keys() <= template["torchlint"]["variables"].keys()


def test_pre_commit_takes_the_page(tmp_path: Path) -> None:
    config, arguments = _blocks("pre-commit")
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    known = {hook["id"] for hook in hooks}
    for hook in (*config["repos"][0]["hooks"], *arguments):
        assert hook["id"] in known
    config["repos"][0]["hooks"] = arguments
    written = tmp_path / "config.yaml"
    written.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "pre_commit", "validate-config", str(written)]
    assert subprocess.run(command, check=False).returncode == 0
