"""Fixed texts that replace files on import, under the user's own paths."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

__all__ = ["Overlay", "after_import"]


class Overlay:
    """Texts that are imported and run in place of files, without writing anything."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = {os.path.realpath(path): text for path, text in texts.items()}

    def compile(self, path: str) -> CodeType | None:
        """Compile the text that replaces `path`, None where there is none."""
        text = self._texts.get(os.path.realpath(path)) if self._texts else None
        if text is None:
            return None
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        return compile(text, path, "exec", dont_inherit=True)

    def install(self) -> None:
        """Make every import of such a file use its text, whichever finder finds it."""
        read_code = SourceFileLoader.get_code

        def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
            return self.compile(loader.get_filename(name)) or read_code(loader, name)

        setattr(SourceFileLoader, "get_code", get_code)  # noqa: B010 - a method is replaced

    def run(self, path: str, name: str) -> ModuleType:
        """Run the script at `path` as the main module, called `name`."""
        code = self.compile(path)
        if code is None:
            with open(path, "rb") as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
        module = ModuleType(name)
        module.__file__ = path
        module.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = sys.modules[name] = module
        exec(code, module.__dict__)
        return module


class _AfterImport:
    """A finder that calls back once a module has been imported."""

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self._name = name
        self._callback = callback

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find the module as usual, and add the callback after its execution."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._callback()

        setattr(spec.loader, "exec_module", exec_module)  # noqa: B010 - a method is replaced
        return spec


def after_import(name: str, callback: Callable[[], None]) -> None:
    """Call `callback` when the module `name` has been imported, or now if it already is."""
    if name in sys.modules:
        callback()
    else:
        sys.meta_path.insert(0, _AfterImport(name, callback))
