"""Where a script that is measured runs, how it is launched, and how it ends."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Any

import click

from torchlint.cli.options import Command
from torchlint.harness.plan import Launcher

__all__ = ["device_option", "end_on_sigterm", "launch_options", "launcher"]


def _device(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if re.fullmatch(r"auto|cpu|cuda(:\d+)?", value) is None:
        raise click.BadParameter(f"no device `{value}`: take auto, cpu, cuda or cuda:N")
    return value


def device_option(command: Command) -> Command:
    """Add `--device`."""
    return click.option(
        "--device",
        default="auto",
        callback=_device,
        show_default=True,
        metavar="auto|cpu|cuda|cuda:N",
        help="What the script gets to see.",
    )(command)


def launch_options(command: Command) -> Command:
    """Add `--launcher`, `--nproc-per-node`, `--nnodes` and `--rdzv-endpoint`."""
    for option in reversed(
        [
            click.option(
                "--launcher",
                type=click.Choice(["torchrun"]),
                help="Launch the script as several processes; the slowest counts.",
            ),
            click.option(
                "--nproc-per-node",
                type=click.IntRange(min=1),
                metavar="N",
                help="Processes on each host.",
            ),
            click.option(
                "--nnodes",
                type=click.IntRange(min=1),
                default=1,
                metavar="N",
                help="Hosts; the same verify is started on each.",
            ),
            click.option(
                "--rdzv-endpoint",
                default="",
                metavar="HOST:PORT",
                help="Where the hosts meet.",
            ),
        ]
    ):
        command = option(command)
    return command


def end_on_sigterm() -> None:
    """Let SIGTERM go the way of Ctrl-C, which ends all that was started."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: object) -> None:
    """Go the way of Ctrl-C, which ends all that was started."""
    raise KeyboardInterrupt


def launcher(options: Mapping[str, Any]) -> Launcher | None:
    """Give the launcher that the options ask for, None where the script is run as it is."""
    count, nodes, endpoint = (
        options[name] for name in ("nproc_per_node", "nnodes", "rdzv_endpoint")
    )
    if options["launcher"] is None:
        if count is not None or nodes > 1 or endpoint:
            raise click.UsageError("processes need something that starts them: --launcher torchrun")
        return None
    if count is None:
        raise click.UsageError("--launcher torchrun needs --nproc-per-node N")
    if nodes > 1 and not endpoint:
        raise click.UsageError("several hosts have to meet: --rdzv-endpoint HOST:PORT")
    return Launcher(count, nodes, endpoint)
