"""The command `verify`."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click

from torchlint.cli.against import Against, against_options, compared_with
from torchlint.cli.commandline import (
    device_option,
    end_on_sigterm,
    launch_options,
    launcher,
    seed_option,
    started,
    started_arguments,
    timeout_option,
    verbose_option,
)
from torchlint.cli.epochs import epochs_of
from torchlint.cli.options import GroupedCommand, color_option, configuration_options
from torchlint.cli.progressbar import progress_bar
from torchlint.cli.run import Run, refused
from torchlint.cli.terminal import fail, paint_for, remark, require, warn
from torchlint.cli.typedline import typed_again
from torchlint.cli.variants import Fixes
from torchlint.engine import WriteError
from torchlint.harness.judging.verdict import Report, candidates, kept_together, together
from torchlint.harness.plan import ORIGINAL, Plan
from torchlint.harness.session import InterruptedSession, ScriptError, Session
from torchlint.harness.trace import Failure
from torchlint.report.verification import failure_line, verification_json, verification_text
from torchlint.report.verificationmarkdown import verification_markdown

_PLAN: Final = ("steps", "warmup", "rounds", "seed", "device", "timeout", "verbose")
_QUICK: Final = {"steps": 20, "warmup": 5, "rounds": 2}
"""The defaults of --quick."""
_QUICK_BUDGET: Final = 105.0
_MOST_ROUNDS: Final = 6
"""The most rounds where the machine is noisy and no budget is given."""
_MOST_IN_BUDGET: Final = 40
"""The most rounds where the machine is noisy and the budget has time for them."""
_LONGER: Final = 600
"""The least seconds of a budget to advise where nothing was decided."""
_ASIDE: Final = ("apply", "output_format", "as_json", "html", "history", "save_trace", "verbose")
"""Options that a command line to try next does without, since they change no result."""


@click.command(cls=GroupedCommand)
@started_arguments
@configuration_options
@click.option(
    "--steps",
    type=click.IntRange(min=8),
    default=50,
    show_default=True,
    help="Steps to time per run.",
)
@click.option(
    "--warmup",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Steps to skip before timing.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=2),
    default=3,
    show_default=True,
    help="Rounds per variant, up to 6 if it is noisy; one round runs A, B, B, A.",
)
@seed_option
@device_option
@timeout_option
@launch_options
@click.option(
    "--quick",
    is_flag=True,
    help="First answer within two minutes: fewer steps, and a --budget of 105 seconds.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=10),
    metavar="SECONDS",
    help="Time for all runs: all fixes together, then each one, then more rounds if it is noisy.",
)
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    metavar="DOLLARS",
    help="Price of an hour of each device, to report the money that is saved.",
)
@click.option("--apply", is_flag=True, help="Write the fixes that passed.")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="Format of the report; markdown is for a pull request or the summary of a job.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --output-format json.")
@click.option(
    "--history",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Append the report to FILE, as one line of JSON.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write an HTML page with plots of step times and losses, a timeline, and the diff.",
)
@click.option(
    "--save-trace",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write traces of both sides by torch.profiler to FOLDER, from runs that are not timed.",
)
@against_options
@verbose_option
@color_option
@click.pass_context
def verify(
    ctx: click.Context, /, script: str | None, args: tuple[str, ...], **options: Any
) -> None:
    """Run SCRIPT original and fixed, in turns, and compare speed and numbers.

    ARGS, after `--`, are passed to the script. A whole command line works, too: `torchlint verify
    -- torchrun --nproc-per-node 2 train.py`, or one of python or `accelerate launch`. Fixes that
    may change results are measured, too, unless `--no-unsafe-fixes` is given.
    """
    start = started("verify", script, args, options["module"])
    require("torch", "verify", f"verify runs the script, and {sys.executable} has no torch")
    if options["save_trace"] is not None:
        _make_folder(options["save_trace"])
    if options["html"] is not None:
        require_page(options["html"], start.script)
    limited = options["quick"] or options["budget"]
    if limited and options["nnodes"] > 1:
        raise click.UsageError(
            "a budget measures what one host has time for, and other hosts might decide "
            "differently: run without --quick and --budget on several"
        )
    against = compared_with(options, start.script)
    if start.precision:
        os.environ["ACCELERATE_MIXED_PRECISION"] = start.precision
    plan = Plan(
        script=start.script,
        args=start.args,
        module=start.module,
        timeline=options["html"] is not None,
        launcher=launcher(options) or start.launcher,
        **_settings(ctx, options),
    )
    unsafe = options["unsafe_fixes"] is not False
    given = {**options, "output_format": None, "unsafe_fixes": unsafe, "quiet": False}
    run = Run(given)
    with refused():
        if run.project.settings(start.script).target_torch is None:
            run = Run({**given, "target_torch": _torch_here()})
    end_on_sigterm()
    fixes: Fixes | None = None
    code = 0
    original = ORIGINAL if against is None else against.original
    try:
        with progress_bar() as (notify, news), Session(plan, notify, original, news) as session:
            if against is None:
                fixes, report = _measure(run, session, options)
            else:
                report = _compare(session, against)
            if options["save_trace"] is not None:
                _save_traces(session, options["save_trace"])
    except InterruptedSession as stop:
        report, code = stop.report, 128 + stop.signal
    except ScriptError as error:
        where = "" if against is None else f"{against.revision.name}: "
        fail(f"{where}{failure_line(str(start.script), error.failure)}")
        if against is None:
            _offer_fix(run, error.failure)
        ctx.exit(2)
    report = replace(
        report,
        price=options["price"],
        epochs=epochs_of(start.script, start.args),
        apply_command=typed_again(ctx, "--apply", without=_ASIDE),
        longer_command=_longer(ctx, options),
    )
    if against is not None:
        tolerated = options["fail_slower"] or 0.0
        report = replace(report, against=against.revision, tolerated=tolerated)
    done = options["html"] is None or write_page(options["html"], report)
    _print(report, options)
    if options["history"] is not None and not _append(options["history"], report):
        done = False
    if options["apply"] and fixes is not None and not _apply(fixes, kept_together(report)):
        done = False
    if not done:
        ctx.exit(2)
    ctx.exit(code or (1 if report.failed else 0))


def _torch_here() -> tuple[int, int]:
    """Return the version of torch that runs the script, where the project states none."""
    major, minor = version("torch").split(".")[:2]
    return int(major), int(minor)


def _make_folder(folder: Path) -> None:
    """Make the folder for traces, before any run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"{folder}: cannot be made: {error.strerror}") from None


def _save_traces(session: Session, folder: Path) -> None:
    """Record both sides, and print which files were written; Ctrl-C leaves the rest out."""
    files: list[Path] = []
    with suppress(KeyboardInterrupt):
        try:
            files = session.save_traces(folder)
        except OSError as error:
            warn(f"{folder}: cannot be written: {error.strerror}")
            return
    if files:
        remark(f"Wrote {' and '.join(map(str, files))}: `torchlint check --trace` reads them.")
    else:
        warn("no trace was written: too few steps, or the script has a profiler of its own")


def _print(report: Report, options: dict[str, Any]) -> None:
    form = "json" if options["as_json"] else options["output_format"]
    if form == "json":
        click.echo(verification_json(report), nl=False)
    elif form == "markdown":
        click.echo(verification_markdown(report), nl=False)
    else:
        paint = paint_for(options["color"], sys.stdout)
        page = options["html"]
        text = verification_text(report, paint, "" if page is None else str(page))
        click.echo(text, nl=False, color=paint.color)


def _append(file: Path, report: Report) -> bool:
    """Append the report to a file as one line; return False where that fails."""
    document = json.loads(verification_json(report))
    line = json.dumps({"time": datetime.now(timezone.utc).isoformat(), **document})
    try:
        with file.open("a", encoding="utf-8") as history:
            history.write(f"{line}\n")
    except OSError as error:
        fail(f"{file} cannot be written: {error.strerror}")
        return False
    return True


def _settings(ctx: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    settings = {name: options[name] for name in _PLAN}
    default = click.core.ParameterSource.DEFAULT
    given = {name for name in _QUICK if ctx.get_parameter_source(name) is not default}
    if options["quick"]:
        settings.update({name: value for name, value in _QUICK.items() if name not in given})
    budget = options["budget"] or (_QUICK_BUDGET if options["quick"] else None)
    if budget is not None:
        settings["budget"] = budget
    if "rounds" not in given and options["nnodes"] == 1:
        settings["most_rounds"] = _MOST_ROUNDS if budget is None else _MOST_IN_BUDGET
    return settings


def _longer(ctx: click.Context, options: dict[str, Any]) -> str:
    """Return the command line that measures longer: no budget works on several hosts."""
    without = (*_ASIDE, "quick", "budget", "rounds")
    if options["nnodes"] > 1:
        return typed_again(ctx, "--rounds", str(4 * options["rounds"]), without=without)
    budget = max(_LONGER, round(2 * (options["budget"] or 0)))
    return typed_again(ctx, "--budget", str(budget), without=without)


def _measure(run: Run, session: Session, options: dict[str, Any]) -> tuple[Fixes, Report]:
    """Measure each rule's fixes alone, all together, and the kept ones together."""
    files = [Path(file) for file in session.survey()]
    with refused():
        fixes = Fixes(files, run.project, warn)
    session.announce(fixes.expected)
    report = session.measure(fixes.variants())
    codes = candidates(report)
    wanted = options["apply"] or not (options["quick"] or options["budget"])
    if codes and wanted and together(report, codes) is None:
        report = session.measure([fixes.kept(codes)])
    return fixes, report


def _compare(session: Session, against: Against) -> Report:
    """Measure the working tree, unless the script imports nothing that differs."""
    imported = frozenset(session.survey())
    return session.measure([against.tree] if against.concerns(imported, session.root) else [])


def _offer_fix(run: Run, failure: Failure) -> None:
    """Print how to mend the line at which the original fails, where a rule knows it."""
    if failure.kind != "crash" or not failure.line:
        return
    with refused():
        codes = Fixes([Path(failure.file)], run.project, warn).at(failure.line)
    if codes:
        file = os.path.relpath(failure.file)
        remark(f"{' and '.join(codes)} can mend this line: `torchlint fix --apply {file}`")


def _apply(fixes: Fixes, codes: tuple[str, ...]) -> bool:
    """Write the fixes that were kept, and print which."""
    try:
        written = fixes.write(codes)
    except WriteError as error:
        fail(str(error))
        return False
    names = ", ".join(os.path.relpath(file) for file in written)
    remark(f"Wrote {', '.join(codes)} to {names}." if written else "Nothing was kept to write.")
    return True


def require_page(file: Path, script: Path) -> None:
    """Raise a usage error before any run if the page could not be rendered or written."""
    lack = f"`--html` makes its page with jinja2, which {sys.executable} lacks"
    require("jinja2", "verify", lack)
    if file.resolve() == script.resolve():
        raise click.ClickException(f"`--html {file}` would write over the script")
    if not file.parent.is_dir():
        raise click.ClickException(f"`--html {file}`: there is no folder {file.parent}")


def write_page(file: Path, report: Report) -> bool:
    """Write the page; print the error and return False on failure."""
    from torchlint.report.html import verification_html

    page = verification_html(report)
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        fail(f"{file}: cannot be written: {error.strerror}")
        return False
    return True
