"""The shadow folder, to which files that a script writes are diverted and read back from."""

from __future__ import annotations

import builtins
import errno
import io
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from torchlint.harness.child.overlay import after_import

_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_TENSORBOARD: Final = ("torch.utils.tensorboard.writer", "tensorboardX.writer")


class Shadow:
    """A folder that receives whatever the script would write into its project.

    The harness's own files lie beside it, in the folder of the run.
    """

    def __init__(self, folder: Path, roots: tuple[Path, ...]) -> None:
        self._folder = os.path.realpath(folder)
        self._roots = tuple(os.path.realpath(root) for root in roots)
        self._apart = tuple(
            place
            for place in (
                os.path.realpath(tempfile.gettempdir()),
                os.path.realpath(os.path.expanduser("~/.cache")),
                os.path.realpath(sys.prefix),
            )
            if any(place != root and _below(place, root) for root in self._roots)
        )
        self._stat = os.stat

    def install(self) -> None:
        """Divert the calls through which Python code writes."""
        self._separate_temporary_files()
        self._patch_open(builtins)
        self._patch_open(io)
        self._patch_os_open()
        for name in ("mkdir", "rmdir", "remove", "unlink"):
            self._patch_one(name)
        for name in ("rename", "replace"):
            self._patch_two(name)
        for name in ("stat", "lstat", "listdir", "scandir", "access"):
            self._patch_reading(name)
        for name in ("utime", "chmod"):
            self._patch_writing(name)
        self._patch_rmtree()

    def _separate_temporary_files(self) -> None:
        """Place temporary files beside the shadow where they would lie in the project's own folder.

        Code outside of Python must find them: the address of a socket cannot be diverted.
        """
        if os.path.realpath(tempfile.gettempdir()) in self._roots:
            tempfile.tempdir = os.path.join(os.path.dirname(self._folder), "tmp")
            os.makedirs(tempfile.tempdir, exist_ok=True)

    def written(self) -> tuple[str, ...]:
        """Return the diverted files, by the paths that the script used."""
        found = []
        for folder, _, files in os.walk(self._folder):
            found += [
                os.path.join("/", os.path.relpath(os.path.join(folder, name), self._folder))
                for name in files
            ]
        return tuple(sorted(found))

    def readable(self, path: Any, *, anywhere: bool = False) -> Any:
        """Return the path to read for `path`: its shadow where there is one."""
        shadow = self._shadow(path, anywhere=anywhere)
        return shadow if shadow is not None and self._is_there(shadow) else path

    def writable(self, path: Any, *, anywhere: bool = False) -> Any:
        """Return the path to write for `path`, after copying its content there."""
        shadow = self._shadow(path, anywhere=anywhere)
        if shadow is None:
            return path
        parent = os.path.dirname(os.path.abspath(os.fspath(path)))
        if self._is_there(parent) or self._is_there(os.path.dirname(shadow)):
            os.makedirs(os.path.dirname(shadow), exist_ok=True)
            if not self._is_there(shadow) and os.path.isfile(path):
                shutil.copy2(path, shadow)
        return shadow

    def _is_there(self, path: str) -> bool:
        try:
            self._stat(path)
        except OSError:
            return False
        return True

    def _shadow(self, path: Any, *, anywhere: bool = False) -> str | None:
        """Return the place of `path` in the shadow, None where it is not diverted."""
        try:
            name = os.fsdecode(path)
        except TypeError:
            return None
        whole = os.path.abspath(name)
        if _below(whole, os.path.dirname(self._folder)):
            return None
        if not anywhere:
            if not any(_below(whole, root) for root in self._roots):
                return None
            if any(_below(whole, place) for place in self._apart):
                return None
        return self._folder + os.path.splitdrive(whole)[1]

    def _patch_open(self, module: Any) -> None:
        real = module.open

        def open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if isinstance(mode, str) and not isinstance(file, int):
                writes = any(letter in mode for letter in "wax+")
                file = self.writable(file) if writes else self.readable(file)
            return real(file, mode, *args, **kwargs)

        module.open = open
        _patch_pathlib("open", open)

    def _patch_os_open(self) -> None:
        real = os.open

        def open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            if dir_fd is None:
                path = self.writable(path) if flags & _WRITING_FLAGS else self.readable(path)
            return real(path, flags, mode, dir_fd=dir_fd)

        self._replace("open", open)

    def _patch_one(self, name: str) -> None:
        """Divert a call that creates or removes one path."""
        real = getattr(os, name)

        def call(path: Any, *args: Any, **kwargs: Any) -> None:
            shadow = None if kwargs.get("dir_fd") is not None else self._shadow(path)
            if shadow is None:
                real(path, *args, **kwargs)
            elif name == "mkdir":
                self._make_folder(path, shadow)
            elif self._is_there(shadow):
                real(shadow)
            elif not self._is_there(os.fspath(path)):
                real(path)

        self._replace(name, call)

    def _make_folder(self, path: Any, shadow: str) -> None:
        parent = os.path.dirname(os.path.abspath(os.fspath(path)))
        if self._is_there(os.fspath(path)) or self._is_there(shadow):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))
        if not self._is_there(parent) and not self._is_there(os.path.dirname(shadow)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
        os.makedirs(shadow, exist_ok=True)

    def _patch_two(self, name: str) -> None:
        """Divert a call that moves one path to another."""
        real = getattr(os, name)

        def call(source: Any, target: Any, **kwargs: Any) -> None:
            if self._shadow(source) is not None:
                source = self.writable(source)
            real(source, self.writable(target), **kwargs)

        self._replace(name, call)

    def _patch_writing(self, name: str) -> None:
        """Divert a call that changes a file in place."""
        real = getattr(os, name)

        def call(path: Any, *args: Any, **kwargs: Any) -> None:
            real(path if isinstance(path, int) else self.writable(path), *args, **kwargs)

        self._replace(name, call)

    def _patch_reading(self, name: str) -> None:
        """Make a call that inspects a path use its shadow first."""
        real = getattr(os, name)

        def call(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, int) or kwargs.get("dir_fd") is not None:
                return real(path, *args, **kwargs)
            found = self.readable(path)
            both = found is not path and self._is_there(os.fspath(path))
            if name == "listdir" and both:
                return sorted({*real(found), *real(path)})
            if name == "scandir" and both:
                return real(path)
            return real(found, *args, **kwargs)

        self._replace(name, call)

    def _patch_rmtree(self) -> None:
        real = shutil.rmtree

        def rmtree(path: Any, *args: Any, **kwargs: Any) -> Any:
            shadow = self._shadow(path)
            if shadow is None:
                return real(path, *args, **kwargs)
            return real(shadow, ignore_errors=True)

        shutil.rmtree = rmtree  # type: ignore[assignment]

    @staticmethod
    def _replace(name: str, call: Callable[..., Any]) -> None:
        """Replace a function of `os`, also in the sets of what `os` supports."""
        real = getattr(os, name)
        for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if real in able:
                able.add(call)
        setattr(os, name, call)
        if name != "open":
            _patch_pathlib(name, call)


def _patch_pathlib(name: str, call: Callable[..., Any]) -> None:
    """Replace a call that `pathlib` of Python 3.10 keeps itself (`open` is `io.open`)."""
    accessor = getattr(pathlib, "_NormalAccessor", None)
    if hasattr(accessor, name):
        setattr(accessor, name, staticmethod(call))


def _below(path: str, folder: str) -> bool:
    """Return whether `path` is `folder` or lies in it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def divert_writers(shadow: Shadow) -> None:
    """Divert the files of libraries when these are imported, wherever the script puts them.

    Their compiled code opens a file by its path, and would miss the folders that are diverted.
    """
    for name in _TENSORBOARD:
        after_import(name, partial(_divert_events, name, shadow))
    after_import("safetensors", partial(_divert_tensors, shadow))
    after_import("tokenizers", partial(_divert_tokenizers, shadow))
    after_import("wandb", _switch_off_wandb)


def _divert_tensors(shadow: Shadow) -> None:
    module: Any = sys.modules["safetensors"]
    write, read = module.serialize_file, module.safe_open

    def serialize_file(tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        return write(tensors, shadow.writable(filename, anywhere=True), *args, **kwargs)

    module.serialize_file = serialize_file
    module.safe_open = _reading(read, shadow)


def _divert_tokenizers(shadow: Shadow) -> None:
    tokenizer: Any = sys.modules["tokenizers"].Tokenizer
    write = tokenizer.save

    def save(itself: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        return write(itself, shadow.writable(path, anywhere=True), *args, **kwargs)

    tokenizer.save = save
    tokenizer.from_file = staticmethod(_reading(tokenizer.from_file, shadow))


def _reading(read: Callable[..., Any], shadow: Shadow) -> Callable[..., Any]:
    """Return a function that reads the diverted file where there is one."""

    def reading(path: Any, *args: Any, **kwargs: Any) -> Any:
        return read(shadow.readable(path, anywhere=True), *args, **kwargs)

    return reading


def _divert_events(name: str, shadow: Shadow) -> None:
    module: Any = sys.modules[name]
    begin = module.FileWriter.__init__

    def __init__(writer: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - takes its place
        if args:
            args = (shadow.writable(args[0], anywhere=True), *args[1:])
        else:
            for name in ("log_dir", "logdir"):
                if name in kwargs:
                    kwargs[name] = shadow.writable(kwargs[name], anywhere=True)
        begin(writer, *args, **kwargs)

    module.FileWriter.__init__ = __init__


def _switch_off_wandb() -> None:
    """Disable wandb, even for `wandb.init(mode="online")`."""
    module: Any = sys.modules["wandb"]
    begin = module.init

    def init(*args: Any, **kwargs: Any) -> Any:
        return begin(*args, **{**kwargs, "mode": "disabled"})

    module.init = init
