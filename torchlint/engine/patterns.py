"""Glob patterns of the settings: excluded paths, and rules ignored for some files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from pathlib import Path
from typing import Final

from torchlint.config import Settings
from torchlint.registry.selection import Groups, Selection, covers

_WILD: Final = frozenset("*?[")
_NAMES_OF_TESTS: Final = frozenset({"test_*.py", "*_test.py"})
_TEST: Final = re.compile(
    r"(?m)^(?:async )?def (test_\w+)|^\s+(?:async )?def test_"
    r"|^class Test|^\s*(?:import|from) unittest"
)
"""What a file of tests holds: among others functions that it does not call itself."""


class Patterns:
    """Globs that match a path by its name, or by its location below a root folder."""

    def __init__(self, patterns: Iterable[str], root: Path) -> None:
        self.root = str(root)
        globs = [pattern.rstrip("/").removeprefix("./") for pattern in patterns]
        named = [glob for glob in globs if "/" not in glob]
        self._names = frozenset(glob for glob in named if _WILD.isdisjoint(glob))
        self._globs = _any_of(glob for glob in named if glob not in self._names)
        placed = [glob for glob in globs if "/" in glob]
        self._places = _any_of([*placed, *(glob.removeprefix("**/") for glob in placed)])

    def match(self, path: str) -> bool:
        """Return whether any of the patterns matches a path."""
        name = os.path.basename(path)  # noqa: PTH119
        if name in self._names or (self._globs is not None and self._globs.match(name)):
            return True
        if self._places is None:
            return False
        absolute = os.path.abspath(path)  # noqa: PTH100
        places = (os.path.relpath(absolute, self.root), absolute)
        return any(self._places.match(place.replace(os.sep, "/")) for place in places)


def _any_of(globs: Iterable[str]) -> re.Pattern[str] | None:
    parts = [translate(glob.replace("**", "*")) for glob in globs]
    return re.compile("|".join(parts)) if parts else None


def excluded_by(settings: Settings) -> Patterns:
    """Return the patterns of the paths that the settings exclude."""
    return Patterns((*settings.exclude, *settings.extend_exclude), settings.root)


def ignored_here(
    path: str, settings: Settings, known: Mapping[str, str], groups: Groups
) -> frozenset[str]:
    """Return the codes that the settings ignore for one file."""
    words = [
        word
        for pattern, words in settings.per_file_ignores.items()
        if Patterns([pattern.removeprefix("!")], settings.root).match(path)
        is not pattern.startswith("!")
        for word in words
    ]
    if not words:
        return frozenset()
    return frozenset(
        code
        for code, name in known.items()
        if any(covers(word, code, name, groups) for word in words)
    )


def rules_here(path: str, text: str, rules: Selection, settings: Settings) -> Selection:
    """Return the selected rules that run on one file."""
    kept = rules.without(ignored_here(path, settings, rules.known, rules.groups))
    beside = _beside_training(path, settings.results_only, str(settings.root))
    if not beside or (beside in _NAMES_OF_TESTS and not _holds_tests(text)):
        return kept
    return kept.without(head.code for head in kept if not head.is_about_results)


def _holds_tests(text: str) -> bool:
    """Return whether a file holds tests, which pytest or unittest calls."""
    return any(
        not found[1] or len(re.findall(rf"\b{found[1]}\(", text)) == 1
        for found in _TEST.finditer(text)
    )


@lru_cache(maxsize=4096)
def _beside_training(path: str, patterns: tuple[str, ...], root: str) -> str:
    """Return the pattern that matches a file, or a folder between it and the root, else nothing.

    Scripts that train are called `test_net.py`, too: folders come first, names of tests last.
    """
    place = os.path.relpath(os.path.abspath(path), root)  # noqa: PTH100
    parts = place.replace(os.sep, "/").split("/")
    if parts[0] == os.pardir:
        parts = parts[-1:]
    place = "/".join(parts)
    ordered = sorted(patterns, key=lambda glob: glob in _NAMES_OF_TESTS)
    return next((glob for glob in ordered if _matches(glob, place, parts)), "")


def _matches(glob: str, place: str, parts: Sequence[str]) -> bool:
    if "/" in glob:
        return fnmatchcase(place, glob)
    return any(fnmatchcase(each, glob) for each in parts)
