"""Options for running a measured script: its device and its launcher."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Any

import click

from torchlint.cli.options import Command
from torchlint.harness.plan import Launcher


def _device(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if re.fullmatch(r"auto|cpu|mps|xpu|cuda(:\d+)?", value) is None:
        raise click.BadParameter(f"no device `{value}`: take auto, cpu, cuda, cuda:N, mps or xpu")
    return value


def device_option(command: Command) -> Command:
    """Add `--device`."""
    return click.option(
        "--device",
        default="auto",
        callback=_device,
        show_default=True,
        metavar="auto|cpu|cuda|cuda:N|mps|xpu",
        help="Device that the script may use.",
    )(command)


def launch_options(command: Command) -> Command:
    """Add `--launcher`, `--nproc-per-node`, `--nnodes` and `--rdzv-endpoint`."""
    for option in reversed(
        [
            click.option(
                "--launcher",
                type=click.Choice(["torchrun", "accelerate"]),
                help="Launch the script as several processes; the slowest rank counts.",
            ),
            click.option(
                "--nproc-per-node",
                type=click.IntRange(min=1),
                metavar="N",
                help="Processes per host.",
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
        ]
    ):
        command = option(command)
    return command


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
