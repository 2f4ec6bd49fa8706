"""Fixed texts that replace files on import, under the user's own paths."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Collection, Mapping
from copy import copy
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from types import CodeType, ModuleType
from typing import Any


class Overlay:
    """Texts that are imported and run in place of files, without writing anything."""

    def __init__(self, texts: Mapping[str, str], absent: Collection[str] = ()) -> None:
        self._texts = {os.path.realpath(path): text for path, text in texts.items()}
        self._absent = frozenset(os.path.realpath(path) for path in absent)

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
        added = frozenset(path for path in self._texts if not os.path.isfile(path))
        if added or self._absent:
            sys.meta_path.insert(sys.meta_path.index(PathFinder), _OtherFiles(added, self._absent))

    def run(self, path: str, name: str, started_as: str = "") -> ModuleType:
        """Run the script at `path` as the main module, called `name`.

        With its name as a module it is run as `python -m` does, after its packages.
        """
        spec = find_spec(started_as) if started_as else None
        code = self.compile(path)
        if code is None:
            with open(path, "rb") as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
        module = ModuleType(name)
        module.__file__ = path
        if spec is not None:
            module.__spec__, module.__loader__, module.__package__ = spec, spec.loader, spec.parent
        module.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = sys.modules[name] = module
        exec(code, module.__dict__)
        return module


class _OtherFiles:
    """A finder for an overlay that has other files than the disk."""

    def __init__(self, added: frozenset[str], absent: frozenset[str]) -> None:
        self._added = added
        self._absent = absent

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find a module in the folders of a path, as if the overlay's files lay on disk."""
        stem = name.rpartition(".")[2]
        hidden = False
        for folder in sys.path if path is None else path:
            place = os.path.join(os.path.realpath(folder or os.getcwd()), stem)
            spec = self._found(name, place) or PathFinder.find_spec(name, [folder])
            if spec is None or spec.loader is None:
                continue
            if not self._is_absent(spec):
                return spec
            hidden = True
        found = self._namespace(name, sys.path if path is None else path)
        if hidden and found is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return found

    def _found(self, name: str, place: str) -> ModuleSpec | None:
        """Return the package or module at a place, None where only the disk may have it."""
        package, module = os.path.join(place, "__init__.py"), f"{place}.py"
        here = next(filter(self._is_there, (package, module)), None)
        if here is None or not {package, module} & (self._added | self._absent):
            return None
        inside = [place] if here == package else None
        return spec_from_file_location(name, here, submodule_search_locations=inside)

    def _namespace(self, name: str, path: Any) -> ModuleSpec | None:
        """Return the package of a folder that only the overlay has."""
        stem = name.rpartition(".")[2]
        for folder in path:
            place = os.path.join(os.path.realpath(folder or os.getcwd()), stem)
            inside = any(each.startswith(place + os.sep) for each in self._added)
            if inside and not os.path.isdir(place):
                spec = ModuleSpec(name, None, is_package=True)
                spec.submodule_search_locations = [place]
                return spec
        return None

    def _is_absent(self, spec: ModuleSpec) -> bool:
        return spec.origin is not None and os.path.realpath(spec.origin) in self._absent

    def _is_there(self, path: str) -> bool:
        return path in self._added or (path not in self._absent and os.path.isfile(path))


class _AfterImport:
    """A finder that calls back once a module has been imported.

    Libraries also look for a module to see whether it is installed, without importing it.
    """

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self.name = name
        self._callback = callback

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find the module as usual, and add the callback after its execution."""
        if name != self.name:
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self.call_back()

        setattr(spec.loader, "exec_module", exec_module)  # noqa: B010 - a method is replaced
        return spec

    def call_back(self) -> None:
        """Call back, once."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._callback()


class _Hidden(Loader):
    """A finder of a package that this process has imported, but the script has not.

    It is its own loader: the script's first import of the package shows it again, with all of
    its modules, and makes the calls that wait for one of them.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        names = [each for each in sys.modules if each == name or each.startswith(f"{name}.")]
        self._modules = {each: sys.modules.pop(each) for each in names}
        self._spec = self._modules[name].__spec__

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find the package here, and its modules once it is shown."""
        if name != self._name or self._spec is None:
            return None
        spec = copy(self._spec)
        spec.loader = self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the package as it was imported."""
        return self._modules[self._name]

    def exec_module(self, module: ModuleType) -> None:
        """Show all modules again, and call back."""
        module.__spec__ = self._spec
        sys.meta_path.remove(self)
        sys.modules.update(self._modules)
        for finder in list(sys.meta_path):
            if isinstance(finder, _AfterImport) and finder.name in self._modules:
                finder.call_back()


def hide(name: str) -> bool:
    """Hide a package until the script imports it; return whether there is anything to hide."""
    if name not in sys.modules:
        return False
    sys.meta_path.insert(0, _Hidden(name))
    return True


def after_import(name: str, callback: Callable[[], None]) -> None:
    """Call `callback` when the module `name` has been imported, or now if it already is."""
    if name in sys.modules:
        callback()
    else:
        sys.meta_path.insert(0, _AfterImport(name, callback))
