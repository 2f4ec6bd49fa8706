"""Builds the pretend accelerator, once for each source, torch and compiler flags."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch.utils.cpp_extension import include_paths, library_paths

__all__ = ["BuildError", "library", "unfit"]

_SOURCE = Path(__file__).with_name("accelerator.cpp")
_FLAGS = ("-std=c++20", "-O0", "-w", "-fPIC", "-shared")


class BuildError(Exception):
    """The compiler's first error."""


def unfit() -> str:
    """Return why it cannot be built on this machine, empty where it can."""
    if sys.platform != "linux":
        return "the pretend accelerator is built on Linux only"
    return "" if _compiler() else "the pretend accelerator needs a C++ compiler (g++)"


def library() -> Path:
    """Return the compiled file; the first call on a machine takes a minute or less."""
    told = "\n".join((_SOURCE.read_text(), torch.__version__, str(_compiler()), *_FLAGS))
    name = hashlib.sha256(told.encode()).hexdigest()[:16]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "torchlint-tests")
    file = home / f"pretend-{name}.so"
    if not file.exists():
        home.mkdir(parents=True, exist_ok=True)
        _build(file)
    return file


def _compiler() -> str | None:
    return shutil.which(os.environ.get("CXX", "g++"))


def _build(file: Path) -> None:
    abi = int(torch.compiled_with_cxx11_abi())
    command = [str(_compiler()), *_FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={abi}", str(_SOURCE)]
    command += [f"-I{folder}" for folder in include_paths()]
    for folder in library_paths():
        command += [f"-L{folder}", f"-Wl,-rpath,{folder}"]
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        draft = Path(folder, file.name)
        command += ["-lc10", "-ltorch_cpu", "-o", str(draft)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            raise BuildError("\n".join(errors[:3]) or done.stderr[-500:])
        draft.replace(file)
