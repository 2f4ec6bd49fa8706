"""Text search for the files that may import a module or use a name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from torchlint.caching import cached_method
from torchlint.notebook import is_notebook
from torchlint.program.imports import folder_of
from torchlint.program.roles import is_test

_IMPORT: Final = re.compile(
    rb"(?:\bfrom\b(?P<module>(?:[.\w\x80-\xff \t\f]|\\\r?\n)*?))?\bimport\b(?:[ \t\f]|\\\r?\n)*"
    rb"(?P<names>\((?:[^()#]|#[^\r\n]*(?![^\r\n]))*\)|(?:[^\r\n\\#;]|\\\r?\n)*)"
)
_WORD: Final = re.compile(rb"[\w\x80-\xff]+|\*")
_INIT: Final = "__init__.py"


class Texts:
    """The bytes of the files of a project; tests are not searched.

    All answers hold too much rather than too little: comments and strings are searched as well.
    """

    def __init__(self, texts: Mapping[str, bytes]) -> None:
        self.texts = texts
        self.searched = sorted(path for path in texts if not is_test(path))
        self._words: dict[str, frozenset[bytes]] = {}
        """The words of the import statements of files, shared with copies that change others."""
        self._own_words: dict[str, frozenset[bytes]] = {}
        self._changed = frozenset[str]()
        self._dotted: dict[str, list[str]] = {}

    def with_texts(self, texts: Mapping[str, bytes]) -> Texts:
        """Return the texts with others for some files."""
        changed = Texts({**self.texts, **texts})
        changed._words = self._words
        changed._changed = self._changed.union(texts)
        return changed

    @cached_method
    def importing(self, path: str) -> list[str]:
        """Return the files whose import statements may name a module."""
        return [user for user in self.searched if user != path and self._may_import(user, path)]

    def importing_name(self, path: str, name: str) -> Iterator[str]:
        """Yield the files that may import a name from a module, or all its names."""
        word = name.encode()
        for user in self.importing(path):
            if word in self.texts[user] or b"*" in self._imported_words(user):
                yield user

    def holding(self, marks: Iterable[str]) -> Iterator[str]:
        """Yield the files whose text holds one of some marks."""
        sought = tuple(marks)
        return (each for each in self.searched if is_notebook(each) or self.has(each, sought))

    def has(self, path: str, marks: Iterable[str]) -> bool:
        """Return whether the text of a file holds one of some marks."""
        text = self.texts.get(path, b"")
        return any(mark.encode() in text for mark in marks)

    def spelling(self, path: str, name: str) -> Iterator[str]:
        """Yield the files that may use a name as an attribute of an attribute (`p.module.name`)."""
        stem = stem_of(path)
        if stem not in self._dotted:
            part = f".{stem}.".encode()
            self._dotted[stem] = [user for user in self.searched if part in self.texts[user]]
        whole = f".{stem}.{name}".encode()
        return (user for user in self._dotted[stem] if whole in self.texts[user])

    def _may_import(self, user: str, path: str) -> bool:
        stem = stem_of(path).encode()
        if stem and stem in self.texts[user]:
            if is_notebook(user) or stem in self._imported_words(user):
                return True
        is_around = path.endswith(_INIT) and user.startswith(folder_of(path))
        return is_around and b"." in self._imported_words(user)

    def _imported_words(self, path: str) -> frozenset[bytes]:
        """Return the words of the import statements of a file.

        `.` stands for an import from a package itself (`from . import x`).
        """
        known = self._own_words if path in self._changed else self._words
        if path not in known:
            known[path] = frozenset(_words_of_imports(self.texts[path]))
        return known[path]


def _words_of_imports(text: bytes) -> Iterator[bytes]:
    for each in _IMPORT.finditer(text):
        module = each["module"] or b""
        yield from _WORD.findall(module)
        yield from _WORD.findall(each["names"])
        if module.strip().endswith(b"."):
            yield b"."


def stem_of(path: str) -> str:
    """Return the last part of a module's dotted name."""
    return path.removesuffix(_INIT).removesuffix("/").removesuffix(".py").rpartition("/")[2]
