"""What to run: a script, a module as with `python -m`, or a command line as people type it."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, Final

import click

from torchlint.cli.options import all_of
from torchlint.cli.run import refused
from torchlint.config import load
from torchlint.engine.programs import Programs
from torchlint.harness.plan import Launcher
from torchlint.notebook import is_notebook

_PYTHON: Final = re.compile(r"python[\d.]*")
_WITH_VALUE: Final = ("-X", "-W")
_TORCHRUN: Final = ("torch.distributed.run", "torch.distributed.launch")
_FLAGS: Final = frozenset(("standalone", "no-python", "run-path", "use-env"))
"""Options of torchrun without a value."""
_ACCELERATE: Final = frozenset(
    ("num-processes", "num-machines", "mixed-precision", "dynamo-backend", "main-process-port")
)
"""Options of `accelerate launch` that a run understands."""
_MOST_NAMED: Final = 3


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
    if Path(script).is_dir():
        starts = Programs(settings_of=lambda path: load(Path(path))).starts(script)
        raise click.ClickException(
            f"{script} is a folder: give it a script that trains{_named(command, starts)}"
        )
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


def refuse_system(command: str) -> None:
    """Raise an error on a system where no groups of processes can be started and ended."""
    if not hasattr(os, "fork"):
        raise click.ClickException(
            f"{command} runs scripts on Linux and macOS only; `check`, `fix` and `audit` work here"
        )


def refuse_notebook(command: str, script: Path) -> None:
    """Raise a usage error if SCRIPT is a notebook."""
    if is_notebook(str(script)):
        raise click.ClickException(
            f"{command} runs scripts, and {script} is a notebook: "
            f"`jupyter nbconvert --to script {script}` makes a script of it"
        )


def refuse_module(command: str, script: Path) -> None:
    """Raise a usage error if SCRIPT only defines what other scripts run, and name these."""
    with refused():
        starts = Programs(settings_of=lambda path: load(Path(path))).started_by(str(script))
    if starts:
        raise click.ClickException(
            f"{script} runs nothing by itself; what runs it{_named(command, starts)}"
        )


def _named(command: str, starts: Sequence[str]) -> str:
    """Return the command lines for scripts, after a colon."""
    named = ", ".join(f"`torchlint {command} {each}`" for each in starts[:_MOST_NAMED])
    more = f", or one of {len(starts) - _MOST_NAMED} more" if len(starts) > _MOST_NAMED else ""
    return f": {named}{more}" if starts else ""


def _device(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if re.fullmatch(r"auto|cpu|mps|xpu|cuda(:\d+)?", value) is None:
        raise click.BadParameter(f"no device `{value}`: take auto, cpu, cuda, cuda:N, mps or xpu")
    return value


device_option = click.option(
    "--device",
    default="auto",
    callback=_device,
    show_default=True,
    metavar="auto|cpu|cuda|cuda:N|mps|xpu",
    help="Device that the script may use.",
)
seed_option = click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of all random number generators."
)
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=600,
    show_default=True,
    help="Time limit of one run, in seconds.",
)
verbose_option = click.option(
    "--verbose", "-v", is_flag=True, help="Print the script's output to standard error."
)
launch_options = all_of(
    click.option(
        "--launcher",
        type=click.Choice(["torchrun", "accelerate"]),
        help="Launch the script as several processes; the slowest rank counts.",
    ),
    click.option(
        "--nproc-per-node", type=click.IntRange(min=1), metavar="N", help="Processes per host."
    ),
    click.option(
        "--nnodes",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="Number of hosts; start the same command on each.",
    ),
    click.option(
        "--rdzv-endpoint",
        default="",
        metavar="HOST:PORT",
        help="Address at which the hosts connect.",
    ),
)


def end_on_sigterm() -> None:
    """Handle SIGTERM like Ctrl-C, so that all child processes are ended."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: object) -> None:
    """Raise `KeyboardInterrupt`, so that all child processes are ended."""
    raise KeyboardInterrupt(number)


def launcher(options: Mapping[str, Any]) -> Launcher | None:
    """Return the launcher that the options ask for, None for a single process.

    An `Accelerator` joins the processes of torchrun as it does those of `accelerate launch`.
    """
    count, nodes, endpoint = (
        options[name] for name in ("nproc_per_node", "nnodes", "rdzv_endpoint")
    )
    if options["launcher"] is None:
        if count is not None or nodes > 1 or endpoint:
            raise click.UsageError("options for several processes need --launcher torchrun")
        return None
    if count is None:
        raise click.UsageError("--launcher needs --nproc-per-node N")
    if nodes > 1 and not endpoint:
        raise click.UsageError("several hosts need --rdzv-endpoint HOST:PORT")
    return Launcher(count, nodes, endpoint)
