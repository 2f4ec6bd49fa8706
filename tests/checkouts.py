from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_CACHES = shutil.ignore_patterns("__pycache__")


@dataclass(frozen=True)
class Copy:
    """A copy of the source tree, and runs of Python that take torchlint from it."""

    root: Path

    @classmethod
    def made_in(cls, folder: Path, *names: str) -> Copy:
        """Copy the package, the rules and the named files and folders."""
        needed = (
            "pyproject.toml",
            "zensical.toml",
            "torchlint",
            "rules/torchlint_rules",
            "fixtures/readme",
        )
        for name in (*needed, *names):
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=_CACHES)
            else:
                shutil.copy(ROOT / name, folder / name)
        return cls(folder)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python at the top of the tree."""
        path = os.pathsep.join(str(self.root / name) for name in ("", "rules", "tests"))
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
            encoding="utf-8",
        )

    def passes(self, *arguments: str) -> None:
        """Run Python, which must end well."""
        done = self.python(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
