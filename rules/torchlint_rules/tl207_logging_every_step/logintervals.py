"""Trainers that are asked to log every step: a part of TL207."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from torchlint.api import Finding, Fix, Impact, Script, TrainerArguments
from torchlint_rules.shared.leftoptions import LeftOption, left_options

_COUNTS: Final = LeftOption(
    "include_num_input_tokens_seen",
    (True, "all", "non_padding"),
    ("transformers", "trl"),
    "gathers the number of tokens from all processes and reads it in every micro-batch",
    "the log no longer counts the tokens",
    "low",
)


def intervals(script: Script, code: str, every: int) -> Iterator[Finding]:
    """Yield a finding for each trainer whose arguments ask for a log of every step."""
    for arguments in script.program.trainings.arguments("transformers", "lightning"):
        lightning = arguments.framework == "lightning"
        option = "log_every_n_steps" if lightning else "logging_steps"
        if arguments.is_trial or not arguments.is_literal(option, 1) or _is_on_cpu(arguments):
            continue
        strategy = None if lightning else arguments.setting("logging_strategy")
        if not lightning and (strategy is None or strategy.value != "steps"):
            continue
        given = arguments.given(option)
        what = "what is logged" if lightning else "the loss and the norm of the gradients"
        message = (
            f"`{option}=1` waits for the device in every step to read {what}: log every "
            f"{every}th step"
        )
        fix = None
        if given is not None and script.code(given.value) == "1":
            fix = Fix.unsafe(
                f"Log every {every}th step",
                script.edits.set_argument(arguments.call, given, option, str(every)),
                because=_loss(arguments),
            )
        span = script.span(given or arguments.call)
        impact: Impact | None = "low" if arguments.accumulates else None
        yield Finding(code, span, message, fix, arguments.notes(option), impact)
    yield from left_options(script, code, _COUNTS)


def _is_on_cpu(arguments: TrainerArguments) -> bool:
    if arguments.framework == "lightning":
        return arguments.is_literal("accelerator", "cpu")
    return arguments.is_literal("use_cpu", True)


def _loss(arguments: TrainerArguments) -> str:
    """Return what changes with the interval of the log."""
    if arguments.framework == "transformers" and not arguments.is_off("eval_strategy"):
        return "fewer records are written, and evaluation without `eval_steps` follows the log"
    return "fewer records are written"
