from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from torchlint.cli import main

PACK = Path(__file__).parent / "cli" / "pack"

TRAIN = """\
import torch

slow()
for batch in loader:
    risky(batch)
heavy()
"""


@dataclass(frozen=True)
class Shell:
    """A folder in which `python -m torchlint` is run with the tiny rule pack."""

    folder: Path

    def write(self, name: str, text: str | bytes) -> Path:
        """Put a file into the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def read(self, name: str) -> str:
        """Return the text of a file, line ends as they are."""
        return (self.folder / name).read_bytes().decode()

    def environment(self, **extra: str) -> dict[str, str]:
        """Return the environment of a run."""
        python_path = os.pathsep.join(filter(None, [str(PACK), os.environ.get("PYTHONPATH")]))
        kept = {
            key: value
            for key, value in os.environ.items()
            if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONUNBUFFERED")
        }
        return {**kept, "PYTHONPATH": python_path, "PYTHONIOENCODING": "utf-8", **extra}

    def run_bytes(
        self, *arguments: str, data: bytes = b"", environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run torchlint and give what it printed, in bytes."""
        return subprocess.run(
            [sys.executable, "-m", "torchlint", *arguments],
            cwd=self.folder,
            input=data,
            capture_output=True,
            check=False,
            env=self.environment(**(environment or {})),
        )

    def run(
        self, *arguments: str, text: str = "", environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run torchlint and give what it printed."""
        done = self.run_bytes(*arguments, data=text.encode(), environment=environment)
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def check(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run `torchlint check` with the rules of the tiny pack alone."""
        return self.run("check", "--select", "XY", "--no-cache", *arguments, text=text)

    def fix(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run `torchlint fix` with the rules of the tiny pack alone."""
        return self.run("fix", "--select", "XY", "--no-cache", *arguments, text=text)


class QuickShell(Shell):
    """A shell that runs torchlint in this process: no start-up, and nothing of its own."""

    def run_bytes(
        self, *arguments: str, data: bytes = b"", environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run torchlint and give what it printed, in bytes."""
        out, err = io.BytesIO(), io.BytesIO()
        code = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.syspath_prepend(PACK)
            for name in ("NO_COLOR", "FORCE_COLOR"):
                patch.delenv(name, raising=False)
            for name, value in (environment or {}).items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
            patch.setattr(sys, "stdout", io.TextIOWrapper(out, "utf-8", newline=""))
            patch.setattr(sys, "stderr", io.TextIOWrapper(err, "utf-8", newline=""))
            try:
                main(arguments)
            except SystemExit as end:
                code = int(end.code or 0)
            sys.stdout.flush()
            sys.stderr.flush()
            return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
