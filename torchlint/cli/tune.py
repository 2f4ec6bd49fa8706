"""The command `tune`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from torchlint.cli.commandline import (
    Started,
    device_option,
    end_on_sigterm,
    seed_option,
    started,
    started_arguments,
    timeout_option,
    verbose_option,
)
from torchlint.cli.options import GroupedCommand, color_option
from torchlint.cli.terminal import fail, paint_for, require
from torchlint.engine import WriteError

if TYPE_CHECKING:
    from torchlint.harness.pace import LoaderSeen
    from torchlint.harness.tuning.report import Knob
    from torchlint.harness.tuning.runs import Progress

_PLAN: Final = ("budget", "seed", "device", "timeout", "verbose")


@click.command(cls=GroupedCommand)
@started_arguments
@click.option("--apply", is_flag=True, help="Write the best values into the source.")
@click.option(
    "--budget",
    type=click.FloatRange(min=10),
    default=300,
    show_default=True,
    help="Time limit of the search, in seconds.",
)
@seed_option
@device_option
@timeout_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@verbose_option
@color_option
@click.pass_context
def tune(ctx: click.Context, /, script: str | None, args: tuple[str, ...], **options: Any) -> None:
    """Find the fastest settings of the DataLoader that SCRIPT trains from.

    ARGS, after `--`, are passed to the script. The script is run repeatedly with different numbers
    of workers, prefetch factors, pinned memory and batch sizes, in turns with the original. The
    batch size is reported, never written.
    """
    start = started("tune", script, args, options["module"])
    if start.launcher is not None:
        raise click.UsageError("tune runs one process: give it the script without its launcher")
    for module in ("torch", "psutil"):
        lack = f"tune runs the script, and {sys.executable} has no {module}"
        require(module, "verify", lack)
    ctx.exit(_tune(start, options))


def _tune(start: Started, options: Mapping[str, Any]) -> int:
    from torchlint.cli.loadersettings import find_call
    from torchlint.harness.plan import Plan
    from torchlint.harness.session import ScriptError
    from torchlint.harness.tuning.runs import Runs
    from torchlint.harness.tuning.session import search
    from torchlint.report.tuning import tuning_json, tuning_text
    from torchlint.report.verification import failure_line

    script = start.script
    settings = {name: options[name] for name in _PLAN}
    plan = Plan(script, start.args, module=start.module, **settings)
    end_on_sigterm()
    try:
        with _progress() as notify, Runs(plan, notify) as runs:
            call = find_call(runs.survey.made)
            if call is None:
                fail(_not_here(script, runs.survey.loader))
                return 2
            report = search(runs, call.texts, call.fixed())
    except ScriptError as error:
        fail(failure_line(str(script), error.failure))
        return 2
    site = call.site()
    written: tuple[Knob, ...] = ()
    code = 0
    if options["apply"]:
        try:
            written = call.write(report)
        except WriteError as error:
            fail(str(error))
            code = 2
    if options["as_json"]:
        click.echo(tuning_json(report, site, written), nl=False)
    else:
        paint = paint_for(options["color"], sys.stdout)
        click.echo(tuning_text(report, site, written, paint), nl=False, color=paint.color)
    return code


def _not_here(script: Path, loader: LoaderSeen) -> str:
    """Return the message that the loader is not created by a call of the project."""
    maker = f"`{loader.maker}`" if loader.maker else "a library"
    line = f":{loader.place.line}" if loader.place else ""
    return (
        f"{script}{line}: {maker} makes the loader that the script trains from, so there is no "
        f"call whose settings could be changed: set {maker}'s own options for it"
    )


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None] | None]:
    """Show the current run and the remaining time on standard error, if it is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("tune: first run of the script") as status:

        def notify(progress: Progress) -> None:
            status.update(
                f"tune: {progress.what}; {progress.gone:.0f} s gone, at most "
                f"{progress.left:.0f} s left"
            )

        yield notify
