"""The command `verify`."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from torchlint.cli.failure import fail, warn
from torchlint.cli.options import color_option, configuration_options
from torchlint.cli.run import Run, refused
from torchlint.cli.terminal import paint_for
from torchlint.cli.variants import make_variants
from torchlint.harness.plan import Plan
from torchlint.harness.session import ScriptError, Session
from torchlint.harness.verdict import Report
from torchlint.notebook import is_notebook
from torchlint.report.verification import failure_line, verification_json, verification_text

__all__ = ["verify"]

_PLAN: Final = ("steps", "warmup", "rounds", "seed", "device", "timeout", "verbose")


def _device(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if re.fullmatch(r"auto|cpu|cuda(:\d+)?", value) is None:
        raise click.BadParameter(f"no device `{value}`: take auto, cpu, cuda or cuda:N")
    return value


@click.command()
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("args", nargs=-1)
@configuration_options
@click.option(
    "--steps",
    type=click.IntRange(min=8),
    default=50,
    show_default=True,
    help="Steps to time in each run.",
)
@click.option(
    "--warmup",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Steps to pass over before.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=2),
    default=3,
    show_default=True,
    help="How often to run each, there and back.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of every generator.")
@click.option(
    "--device",
    default="auto",
    callback=_device,
    show_default=True,
    metavar="auto|cpu|cuda|cuda:N",
    help="What the script gets to see.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=600,
    show_default=True,
    help="Seconds that one run may take.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--verbose", "-v", is_flag=True, help="Pass on what the script prints, to standard error."
)
@color_option
@click.pass_context
def verify(ctx: click.Context, /, script: Path, args: tuple[str, ...], **options: Any) -> None:
    """Run SCRIPT as it is and as fixed, in turns, and compare speed and numbers.

    ARGS, after `--`, are the script's own.
    """
    if is_notebook(str(script)):
        raise click.ClickException(
            f"verify runs scripts, and {script} is a notebook: "
            f"`jupyter nbconvert --to script {script}` makes a script of it"
        )
    if importlib.util.find_spec("torch") is None:
        raise click.ClickException(
            f"verify runs the script, and {sys.executable} has no torch: "
            "`pip install 'torchlint[verify]'` brings it"
        )
    plan = Plan(
        script=script,
        args=args,
        **{name: options[name] for name in _PLAN},
    )
    run = Run({**options, "quiet": False})
    try:
        with _progress() as notify, Session(plan, notify) as session:
            report = _measure(run, session)
    except ScriptError as error:
        fail(failure_line(str(script), error.failure))
        ctx.exit(2)
    if options["as_json"]:
        click.echo(verification_json(report), nl=False)
    else:
        paint = paint_for(options["color"], sys.stdout)
        click.echo(verification_text(report, paint), nl=False, color=paint.color)
    ctx.exit(1 if report.failed else 0)


def _measure(run: Run, session: Session) -> Report:
    files = [Path(file) for file in session.survey()]
    with refused():
        variants = make_variants(files, run.project, warn)
    return session.measure(variants)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """Show on a terminal's standard error which run of how many is under way."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("verify: first run of the script") as status:

        def notify(done: int, total: int) -> None:
            if total:
                status.update(f"verify: run {done + 1} of {total}")

        yield notify
