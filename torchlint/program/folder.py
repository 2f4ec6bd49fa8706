"""The root folder of a project, and the scripts and notebooks below it."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from torchlint.caching import cached_method
from torchlint.program import argumentfiles

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

MOST_FILES: Final = 5_000
MOST_BYTES: Final = 50_000_000
"""The limits of a project; the files of a larger one are analyzed alone."""

_MARKS: Final = ("pyproject.toml", "setup.cfg", ".git")
"""Files and folders that mark the root of a project."""
_BUILDING: Final = re.compile(rb"setuptools|distutils|\bimport setup\b|skbuild|Extension|\A\s*\Z")
"""What a `setup.py` contains that builds a project; others are modules with that name."""
_SKIPPED: Final = frozenset(
    "__pycache__ __pypackages__ _build buck-out build dist node_modules site-packages venv".split()
)
"""Names of folders that contain third-party code or generated files."""
_MOST_STEPS: Final = 1_000_000
"""How many positions the stars of a line may be tried at on one path."""
_MOST_KEPT: Final = 8192
"""How many patterns are kept: a project is walked more than once, for files and for folders."""
_STARS: Final = re.compile(r"\*+")
_RUNS: Final = re.compile(r"(?<![\\*])(?:\*{3,}|(?<=[^/!])\*\*|\*\*(?=[^/*]))")
"""Stars that mean what one star means: more than two, or two beside other characters."""
_SPACES: Final = re.compile(r"(?<!\\) +$")
_ALL_BELOW: Final = re.compile(r"/\*\*(?=/?$)")
"""The end of a pattern for everything below a folder; pathspec matches the folder itself, too."""


class Stamp(NamedTuple):
    """When a file was changed last, in nanoseconds, and how many bytes it has."""

    changed: int
    size: int


class Layout(NamedTuple):
    """The root folder of a project, and where else its modules are looked up.

    `sources` are folders relative to the root, each with its last `/`.
    """

    root: str
    sources: tuple[str, ...] = ()


def project_of(path: str) -> str:
    """Return the root folder of the project that a file belongs to.

    Without a marker it is the current folder if that contains the file, else the file's folder.
    """
    parents = Path(os.path.realpath(path)).parents
    for each in parents:
        if any((each / mark).exists() for mark in _MARKS) or is_built(each):
            return str(each)
    here = Path(os.path.realpath(Path.cwd()))
    return str(here if here in parents else parents[0])


def is_built(folder: Path) -> bool:
    """Return whether the `setup.py` of a folder builds a project."""
    script = folder / "setup.py"
    try:
        return script.is_file() and _BUILDING.search(script.read_bytes()) is not None
    except OSError:
        return False


class Walk(NamedTuple):
    """The scripts and notebooks below a folder, by path relative to it, and the folders walked.

    `arguments` are the paths of small YAML and JSON files.
    """

    files: dict[str, Stamp]
    folders: tuple[str, ...]
    arguments: tuple[str, ...] = ()


def walk(root: str) -> Walk:
    """Find the scripts and notebooks below a folder.

    Links, hidden folders, virtual environments, folders that git ignores and a copy of torch are
    left out. The search ends after `MOST_FILES` files.
    """
    found: dict[str, Stamp] = {}
    walked: list[str] = []
    arguments: list[str] = []
    folders = [(root, "", Ignored.above(root))]
    while folders and len(found) <= MOST_FILES:
        folder, prefix, ignored = folders.pop()
        try:
            with os.scandir(folder) as scan:
                entries = list(scan)
        except OSError:
            continue
        names = {entry.name for entry in entries}
        if prefix and ("pyvenv.cfg" in names or is_foreign(prefix, names)):
            continue
        if ".gitignore" in names:
            ignored = ignored.below(folder)
        walked.append(folder)
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                is_skipped = name.startswith(".") or name in _SKIPPED
                if not is_skipped and not ignored.match(entry.path, True):
                    folders.append((entry.path, f"{prefix}{name}/", ignored))
            elif name.endswith((".py", ".ipynb")) and entry.is_file(follow_symlinks=False):
                state = entry.stat(follow_symlinks=False)
                found[prefix + name] = Stamp(state.st_mtime_ns, state.st_size)
            elif _may_hold_arguments(entry) and len(arguments) <= argumentfiles.MOST_FILES:
                arguments.append(prefix + name)
    if len(arguments) > argumentfiles.MOST_FILES:
        arguments.clear()
    return Walk(dict(sorted(found.items())), tuple(sorted(walked)), tuple(sorted(arguments)))


def _may_hold_arguments(entry: os.DirEntry[str]) -> bool:
    return (
        entry.name.endswith((*argumentfiles.ENDINGS, argumentfiles.COMMANDS))
        and entry.is_file(follow_symlinks=False)
        and entry.stat(follow_symlinks=False).st_size <= argumentfiles.MOST_BYTES
    )


def is_foreign(prefix: str, names: Iterable[str]) -> bool:
    """Return whether a folder with these files is the package torch in its own repository.

    Its names keep the meaning that they have for other projects.
    """
    return prefix in ("torch/", "src/torch/") and "__init__.py" in names


class IgnoreFile:
    """The lines of one `.gitignore`."""

    def __init__(self, text: str) -> None:
        bare = (_SPACES.sub("", line.removesuffix("\r")) for line in text.split("\n"))
        lines = [_ALL_BELOW.sub("/**/*", _RUNS.sub("*", line)) for line in bare]
        self._of_files = _Lines([line for line in lines if not line.endswith("/")])
        self._of_folders = _Lines([line.removesuffix("/") for line in lines])

    def leaves_out(self, path: str, is_folder: bool) -> bool | None:
        """Return whether a path below the folder of this file is ignored, None if no line matches.

        A line with so many stars that matching would be slow is skipped.
        """
        return (self._of_folders if is_folder else self._of_files).decision(path)


class _Lines:
    """The lines that apply to files, or those that apply to folders."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = [(line, len(_STARS.findall(line)) + 1) for line in lines]
        self._most = max((stars for _, stars in self._lines), default=0)

    def decision(self, path: str) -> bool | None:
        """Return what the last matching line decides (True: ignored), None if none matches."""
        steps = (most for most in range(self._most, 1, -1) if comb(len(path), most) <= _MOST_STEPS)
        return self._spec(next(steps, 1)).check_file(path).include

    @cached_method
    def _spec(self, stars: int) -> GitIgnoreSpec:
        """Return the matcher for the lines with at most that many stars."""
        from pathspec import GitIgnoreSpec

        kept = (line for line, many in self._lines if many <= stars)
        return GitIgnoreSpec(pattern for line in kept for pattern in _patterns(line))


@lru_cache(maxsize=_MOST_KEPT)
def _patterns(line: str) -> tuple[GitIgnoreSpecPattern, ...]:
    """Return the pattern of a line, nothing for a malformed one, which git ignores, too."""
    from pathspec import GitIgnoreSpec

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return tuple(GitIgnoreSpec.from_lines([line]).patterns)
        except (ValueError, re.error):
            return ()


class Ignored(NamedTuple):
    """The `.gitignore` files that apply to one folder, the nearest first."""

    files: tuple[tuple[str, IgnoreFile], ...] = ()
    wholly: bool = False
    """Whether the folder itself, or one above it, is ignored."""

    @classmethod
    def above(cls, folder: str) -> Ignored:
        """Return the ignore files above a folder, up to the top of its repository."""
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
        """Return the ignore files for a subfolder, including its own."""
        return self._with(Path(folder) / ".gitignore", os.path.abspath(folder))  # noqa: PTH100

    def match(self, path: str, is_folder: bool) -> bool:
        """Return whether git ignores a path; the nearest file with a matching line decides."""
        if self.wholly or not self.files:
            return self.wholly
        absolute = os.path.abspath(path).replace(os.sep, "/")  # noqa: PTH100
        for folder, file in self.files:
            decision = file.leaves_out(absolute[len(folder.rstrip(os.sep)) + 1 :], is_folder)
            if decision is not None:
                return decision
        return False

    def _with(self, file: Path, folder: str) -> Ignored:
        """Add an ignore file; like git, do not follow symbolic links."""
        if file.is_symlink() or not file.is_file():
            return self
        try:
            text = file.read_text(encoding="utf-8-sig", errors="surrogateescape")
        except OSError:
            return self
        if not any(line.strip() and not line.startswith("#") for line in text.splitlines()):
            return self
        return self._replace(files=((folder, IgnoreFile(text)), *self.files))
