"""The Dockerfile: what it copies is enough to build torchlint, and PyTorch comes only on demand.

No daemon is needed: the instructions are read, and the installation is tried on the files copied.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "templates" / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
STEPS = re.findall(r"^([A-Z]+) (.*)$", TEXT, re.MULTILINE)


def test_what_is_copied_is_enough_to_build_the_package(tmp_path: Path) -> None:
    for what, words in STEPS:
        if what == "COPY":
            *sources, target = words.split()
            for source in sources:
                _copy(ROOT / source, tmp_path, target)
    folder = tmp_path / "torchlint"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as built:
        names = set(built.namelist())
    assert {"torchlint/__main__.py", "torchlint_rules/evidence.json"} <= names


def _copy(source: Path, root: Path, target: str) -> None:
    place = root / target.lstrip("/")
    if source.is_dir():
        shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)


def test_torch_is_installed_only_when_asked_for_and_for_cpus() -> None:
    (install,) = [words for what, words in STEPS if what == "RUN" and "pip" in words]
    assert re.search(
        r'if \[ -n "\$VERIFY" \]; then pip install torch --index-url \S+/cpu; fi', install
    )
    assert ("ARG", 'VERIFY=""') in STEPS


def test_it_runs_torchlint_as_a_user_without_rights() -> None:
    assert ("ENTRYPOINT", '["torchlint"]') in STEPS
    assert ("CMD", '["check", "."]') in STEPS
    assert ("USER", "torchlint") in STEPS


def test_every_instruction_is_one_and_every_command_is_shell() -> None:
    lines = [line for line in TEXT.splitlines() if line and not line.startswith("#")]
    assert len(lines) == len(STEPS)
    known = {"FROM", "ARG", "ENV", "COPY", "RUN", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
    assert {what for what, _ in STEPS} <= known
    for what, words in STEPS:
        if what == "RUN":
            subprocess.run(["sh", "-n", "-c", words], check=True)
        elif what in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(word, str) for word in json.loads(words))


def test_the_guide_builds_and_runs_the_image_as_the_file_says() -> None:
    page = (ROOT / "docs" / "guide" / "github.md").read_text(encoding="utf-8")
    build, run = re.findall(r"^docker .*$", page, re.MULTILINE)
    assert f"#   {build}\n" in (ROOT / "templates" / "Dockerfile").read_text(encoding="utf-8")
    assert run.startswith('docker run --rm -v "$PWD:/work" torchlint check ')
