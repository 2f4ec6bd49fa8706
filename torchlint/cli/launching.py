"""Options for running a measured script: its device and its launcher."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Any

import click

from torchlint.cli.options import all_of
from torchlint.harness.plan import Launcher


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
