"""The options that say how a script of several processes is launched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from torchlint.cli.options import Command
from torchlint.harness.plan import Launcher

__all__ = ["launch_options", "launcher"]


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
