"""TL225: a pinned loader whose batches Accelerate copies while the training waits."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import Finding, Loader, Rule, Script, State, TrainerArguments


class PreparedLoaderBlocks(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every accelerator that prepares a pinned loader and copies with waits."""
        for arguments in script.program.trainings.arguments("accelerate"):
            loader = _prepared(script, arguments)
            if loader is None or not _blocks(script, arguments):
                continue
            message = (
                f"batches of {loader.label} are pinned, but each copy to the device waits: pass "
                "`dataloader_config=DataLoaderConfiguration(non_blocking=True)`"
            )
            yield Finding(self.code, script.span(arguments.call), message)


def _blocks(script: Script, arguments: TrainerArguments) -> bool:
    """Return whether an accelerator certainly copies batches with waits."""
    if arguments.has_splat or not arguments.is_off("cpu"):
        return False
    given = arguments.given("dataloader_config")
    if given is None:
        return True
    made = script.values.value_of(given.value).node
    if not isinstance(made, cst.Call) or not (script.name(made.func) or "").startswith(
        "accelerate."
    ):
        return False
    site = script.calls.at(made)
    option = site.argument("non_blocking")
    return not site.has_splat and (option.state is State.ABSENT or option.equals(False))


def _prepared(script: Script, arguments: TrainerArguments) -> Loader | None:
    """Return a pinned loader that an accelerator prepares."""
    for site in script.calls.of_methods("prepare"):
        made = script.values.origins.of(site.receiver).values
        if not any(value is arguments.call for value in made):
            continue
        for arg in site.node.args:
            for loader in script.loaders.made_by(arg.value):
                if loader.may_pin:
                    return loader
    return None
