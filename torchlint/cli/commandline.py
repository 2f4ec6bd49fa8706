"""What to run: a script, a module as with `python -m`, or a command line as people type it."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Final

import click

from torchlint.cli.options import all_of
from torchlint.cli.scripts import refuse_module, refuse_notebook, refuse_system
from torchlint.harness.plan import Launcher

_PYTHON: Final = re.compile(r"python[\d.]*")
_WITH_VALUE: Final = ("-X", "-W")
_TORCHRUN: Final = ("torch.distributed.run", "torch.distributed.launch")
_FLAGS: Final = frozenset(("standalone", "no-python", "run-path", "use-env"))
"""Options of torchrun without a value."""
_ACCELERATE: Final = frozenset(
    ("num-processes", "num-machines", "mixed-precision", "dynamo-backend", "main-process-port")
)
"""Options of `accelerate launch` that a run understands."""


@dataclass(frozen=True, slots=True)
class Started:
    """A program as it is started."""

    script: Path
    args: tuple[str, ...] = ()
    module: str = ""
    """The module's name where it is started as one."""
    launcher: Launcher | None = None
    """How a launcher's own command line starts it."""
    precision: str = ""
    """The mixed precision that `accelerate launch` sets."""


started_arguments = all_of(
    click.argument("script", required=False),
    click.argument("args", nargs=-1),
    click.option("-m", "--module", metavar="MODULE", help="Run a module, as `python -m` does."),
)


def started(command: str, script: str | None, args: Sequence[str], module: str | None) -> Started:
    """Return what to run; raises a click error."""
    refuse_system(command)
    words = [*([] if script is None else [script]), *args]
    if module is not None:
        return _of_module(module, words)
    if script is None:
        raise click.UsageError("missing argument 'SCRIPT', or `-m MODULE`")
    if Path(script).is_file():
        refuse_notebook(command, Path(script))
        refuse_module(command, Path(script))
        return Started(Path(script), tuple(args))
    found = _typed(words)
    if found is None:
        raise click.BadParameter(f"File '{script}' does not exist.", param_hint="'SCRIPT'")
    return found


def _typed(words: Sequence[str]) -> Started | None:
    """Return what a command line starts, None where its first word is no known program."""
    name = Path(words[0]).name
    if _PYTHON.fullmatch(name):
        return _after_python(list(words[1:]))
    if name == "torchrun":
        return _after_torchrun(list(words[1:]))
    if name == "accelerate" and words[1:2] == ["launch"]:
        return _after_accelerate(list(words[2:]))
    return None


def _after_python(words: list[str]) -> Started:
    while words and words[0].startswith("-") and words[0] != "-m":
        del words[: 2 if words[0] in _WITH_VALUE else 1]
    if words[:1] != ["-m"]:
        return _of_script(words)
    if words[1:2] and words[1] in _TORCHRUN:
        return _after_torchrun(words[2:])
    return _of_module(words[1] if words[1:] else "", words[2:])


def _after_torchrun(words: list[str]) -> Started:
    options, rest, is_module = _options(words, _FLAGS)
    count, nodes = options.get("nproc-per-node", "1"), options.get("nnodes", "1")
    if not count.isdigit() or not nodes.isdigit():
        raise click.UsageError("torchrun: --nproc-per-node and --nnodes must be numbers here")
    endpoint = options.get("rdzv-endpoint", "")
    if int(nodes) > 1 and not endpoint:
        raise click.UsageError("torchrun: several hosts need --rdzv-endpoint HOST:PORT")
    launched = Launcher(int(count), int(nodes), endpoint)
    found = _of_module(rest[0], rest[1:]) if is_module and rest else _of_script(rest)
    return replace(found, launcher=launched)


def _after_accelerate(words: list[str]) -> Started:
    """Return what `accelerate launch` starts; an `Accelerator` works under torchrun alike."""
    options, rest, is_module = _options(words, frozenset(("multi-gpu", "cpu")))
    unknown = sorted(options.keys() - _ACCELERATE - {"multi-gpu"})
    if unknown:
        raise click.UsageError(
            f"accelerate launch: --{unknown[0]} cannot be measured; start the script with "
            "`--launcher torchrun` and set it in the script"
        )
    if options.get("num-machines", "1") != "1":
        raise click.UsageError("accelerate launch: several machines need `--launcher torchrun`")
    found = _of_module(rest[0], rest[1:]) if is_module and rest else _of_script(rest)
    count = options.get("num-processes", "1")
    if not count.isdigit():
        raise click.UsageError("accelerate launch: --num-processes must be a number")
    launched = Launcher(int(count)) if int(count) > 1 else None
    return replace(found, launcher=launched, precision=options.get("mixed-precision", ""))


def _options(words: list[str], flags: frozenset[str]) -> tuple[dict[str, str], list[str], bool]:
    """Return a launcher's options with dashes in their names, the rest, and if that is a module."""
    options: dict[str, str] = {}
    is_module = False
    while words and words[0].startswith("-"):
        word, _, value = words.pop(0).partition("=")
        name = word.lstrip("-").replace("_", "-")
        if name in ("m", "module"):
            is_module = True
        elif name in flags:
            options[name] = ""
        else:
            options[name] = value or (words.pop(0) if words else "")
    return options, words, is_module


def _of_script(words: Sequence[str]) -> Started:
    if not words:
        raise click.UsageError("the command line names no script")
    if not Path(words[0]).is_file():
        raise click.BadParameter(f"File '{words[0]}' does not exist.", param_hint="'SCRIPT'")
    return Started(Path(words[0]), tuple(words[1:]))


def _of_module(name: str, args: Sequence[str]) -> Started:
    spec = _spec(name) if name else None
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec = _spec(name)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise click.UsageError(f"`-m {name}`: there is no such module to run")
    return Started(Path(os.path.relpath(spec.origin)), tuple(args), name)


def _spec(name: str) -> ModuleSpec | None:
    """Find a module as `python -m` does, without importing its packages."""
    first, *inner = name.split(".")
    spec = PathFinder.find_spec(first, [str(Path.cwd())]) or importlib.util.find_spec(first)
    path = first
    for part in inner:
        if spec is None or spec.submodule_search_locations is None:
            return None
        path = f"{path}.{part}"
        spec = PathFinder.find_spec(path, list(spec.submodule_search_locations))
    return spec
