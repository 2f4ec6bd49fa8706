"""What git leaves out, by the `.gitignore` files from the top of the repository down."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from torchlint.record import Record

if TYPE_CHECKING:
    from torchlint.engine.wildmatch import Line

__all__ = ["Ignored"]


class Ignored(Record):
    """The lines in force in one folder, the last one of the nearest file first."""

    files: tuple[tuple[str, tuple[Line, ...]], ...] = ()
    wholly: bool = False
    """Whether the folder itself is left out, or one around it."""

    @classmethod
    def above(cls, folder: str) -> Ignored:
        """Give what is in force in a folder by the files above it, within its repository."""
        absolute = Path(os.path.abspath(folder))  # noqa: PTH100
        top = next(
            (each for each in (absolute, *absolute.parents) if (each / ".git").exists()), absolute
        )
        ignored = cls()._with(top / ".git" / "info" / "exclude", str(top))
        for parent in reversed((absolute, *absolute.parents)):
            if parent.is_relative_to(top):
                if parent != top and ignored.match(str(parent), True):
                    return ignored._replace(wholly=True)
                ignored = ignored.below(str(parent)) if parent != absolute else ignored
        return ignored

    def below(self, folder: str) -> Ignored:
        """Give what is in force in a folder, by its own file too."""
        return self._with(Path(folder) / ".gitignore", os.path.abspath(folder))  # noqa: PTH100

    def match(self, path: str, is_folder: bool) -> bool:
        """Whether git leaves out a path: the nearest file that speaks of it decides."""
        if self.wholly or not self.files:
            return self.wholly
        absolute = os.path.abspath(path).replace(os.sep, "/")  # noqa: PTH100
        for folder, lines in self.files:
            relative = absolute[len(folder.rstrip(os.sep)) + 1 :]
            for line in lines:
                if line.matches(relative, is_folder):
                    return line.leaves_out
        return False

    def _with(self, file: Path, folder: str) -> Ignored:
        """Add the lines of a file; a link is none, here as in git."""
        if file.is_symlink() or not file.is_file():
            return self
        try:
            text = file.read_text(encoding="utf-8-sig", errors="surrogateescape")
        except OSError:
            return self
        if not any(line.strip() and not line.startswith("#") for line in text.splitlines()):
            return self
        from torchlint.engine.wildmatch import lines_of

        return self._replace(files=((folder, tuple(lines_of(text))[::-1]), *self.files))
