"""Stand-ins for packages that are not installed, and a sandbox for untrusted code.

`tryout.py` uses both in the processes that it forks.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["FENCED", "Finder", "StandIn", "fence"]

FENCED = "kept from the outside"
"""The words of every error that the sandbox raises."""

_NETWORK = ("socket.connect", "socket.bind")
_OUTSIDE = (
    "socket.getaddrinfo",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.startfile",
    "webbrowser.open",
)
_CHANGES = {
    "os.remove": 1,
    "os.rmdir": 1,
    "os.mkdir": 1,
    "os.truncate": 1,
    "os.rename": 2,
    "os.link": 2,
    "os.symlink": 2,
    "shutil.rmtree": 1,
    "shutil.move": 2,
}


class Base:
    """The base class of a class that inherits from a stand-in."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __init_subclass__(cls, **_: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(name)


class StandIn:
    """A stand-in for anything of a missing package: a base class, decorator, function or value."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = StandIn(name)
        setattr(self, name, made)
        return made

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Return the decorated function for a decorator, and another stand-in otherwise."""
        if len(arguments) == 1 and not options:
            if isinstance(arguments[0], (type, types.FunctionType)):
                return arguments[0]
        return StandIn(self.__name__)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        first = next(base for base in bases if isinstance(base, StandIn))
        return (Base,) if first is self else ()

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __contains__(self, _: object) -> bool:
        return False

    def __getitem__(self, _: object) -> StandIn:
        return StandIn(self.__name__)

    def __setitem__(self, _: object, __: object) -> None: ...

    def __instancecheck__(self, _: object) -> bool:
        return False

    def __subclasscheck__(self, _: type) -> bool:
        return False

    def __index__(self) -> int:
        return 1

    def __float__(self) -> float:
        return 1.0

    def __fspath__(self) -> str:
        return self.__name__

    def _combine(self, *_: object) -> StandIn:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _combine
    __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = __pow__ = __neg__ = _combine
    __or__ = __ror__ = __and__ = __rand__ = __matmul__ = __rmatmul__ = _combine
    __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: False


class Module(types.ModuleType):
    """A module that is not installed."""

    __path__: list[str] = []
    __all__: Sequence[str] = ()
    __version__ = "0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = StandIn(name)
        setattr(self, name, made)
        return made

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return StandIn(self.__name__)(*arguments, **options)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules that no other finder found, unless they belong to something installed.

    Installed packages get no stand-ins, since they handle missing parts themselves.
    """

    def __init__(self, root: Path) -> None:
        self.root = f"{root}{os.sep}"

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Accept a name whose first package is missing, too."""
        if not importer().startswith(self.root):
            return None
        parent = name.rpartition(".")[0]
        if parent and not isinstance(sys.modules.get(parent), Module):
            return None
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Module:
        """Return the stand-in module."""
        return Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing, since the stand-in is complete."""


def importer() -> str:
    """Return the file of the import statement."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame.f_code.co_filename if frame else ""


def fence(*allowed: Path) -> None:
    """Block network, new processes, and files outside of `allowed` for this process."""
    roots = tuple(f"{path.resolve()}{os.sep}" for path in allowed)

    def refuse(what: str) -> NoReturn:
        raise PermissionError(f"{what} {FENCED}")

    def check(name: Any) -> None:
        if isinstance(name, (str, bytes, os.PathLike)):
            at = os.path.realpath(os.fsdecode(name))
            if not f"{at}{os.sep}".startswith(roots) and not at.startswith("/dev/"):
                refuse(f"writing {at}:")

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            name, _, flags = arguments
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
                check(name)
        elif event in _OUTSIDE or (event in _NETWORK and isinstance(arguments[1], tuple)):
            refuse(f"{event}:")
        elif event in _CHANGES:
            for name in arguments[: _CHANGES[event]]:
                check(name)

    sys.addaudithook(watch)
