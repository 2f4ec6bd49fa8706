"""What git leaves out, by the `.gitignore` files from the top of the repository down."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

__all__ = ["Ignored"]


class Ignored(NamedTuple):
    """The patterns in force in one folder, those of the nearest file first."""

    specs: tuple[tuple[str, GitIgnoreSpec], ...] = ()

    @classmethod
    def above(cls, folder: str) -> Ignored:
        """Give what is in force in a folder by the files above it, within its repository."""
        absolute = Path(os.path.abspath(folder))  # noqa: PTH100
        top = next(
            (each for each in (absolute, *absolute.parents) if (each / ".git").exists()), absolute
        )
        ignored = cls()._with(top / ".git" / "info" / "exclude", str(top))
        for parent in reversed(absolute.parents):
            if parent.is_relative_to(top):
                ignored = ignored.below(str(parent))
        return ignored

    def below(self, folder: str) -> Ignored:
        """Give what is in force in a folder, by its own file too."""
        return self._with(Path(folder) / ".gitignore", os.path.abspath(folder))  # noqa: PTH100

    def match(self, path: str, is_folder: bool) -> bool:
        """Whether git leaves out a path: the nearest file that speaks of it decides."""
        if not self.specs:
            return False
        absolute = os.path.abspath(path).replace(os.sep, "/")  # noqa: PTH100
        for folder, spec in self.specs:
            relative = absolute[len(folder.rstrip(os.sep)) + 1 :] + ("/" if is_folder else "")
            verdict = spec.check_file(relative).include
            if verdict is not None:
                return verdict
        return False

    def _with(self, file: Path, folder: str) -> Ignored:
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return self
        if not any(line.strip() and not line.startswith("#") for line in lines):
            return self
        from pathspec import GitIgnoreSpec

        return Ignored(((folder, GitIgnoreSpec.from_lines(lines)), *self.specs))
