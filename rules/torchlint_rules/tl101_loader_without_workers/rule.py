"""TL101: a loader that loads every batch in the training process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Edits,
    Finding,
    Fix,
    Impact,
    Loader,
    Option,
    Role,
    Rule,
    Script,
    State,
    Trait,
    Traits,
    word_of,
)
from torchlint_rules.shared.grouping import joined, maker
from torchlint_rules.tl101_loader_without_workers.trainerdata import TrainerData, trained_data
from torchlint_rules.tl101_loader_without_workers.workers import (
    GUARD,
    doubt,
    is_explained,
    keeps_on_device,
    runs_unguarded,
)

_WORKERS: Final = "num_workers"
_OPTION: Final = "dataloader_num_workers"
_EXEMPT: Final = (
    Trait.IN_MEMORY, Trait.MUTATES, Trait.HANDLE, Trait.ON_DEVICE, Trait.FEW,
)  # fmt: skip


class LoaderWithoutWorkers(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loader without workers whose dataset would gain from them."""
        if any(script.calls.of("IPython.get_ipython")) or script.tree.spelled("get_ipython"):
            return  # it runs in a shell
        if script.values.hosting.has_default_device:
            return
        yield from joined(script, self._of_loaders(script), ("loader", "loaders"))
        for data in trained_data(script):
            workers = data.arguments.setting(_OPTION)
            if workers is not None and workers.value == 0:
                message, fix = self._advice_to_trainer(script, data)
                span, notes = script.span(data.arguments.call), data.arguments.notes(_OPTION)
                yield Finding(self.code, span, message, fix, notes)

    def _of_loaders(self, script: Script) -> Iterator[tuple[cst.CSTNode, Finding]]:
        for loader in script.tree.in_file(script.loaders):
            traits = self._traits(script, loader)
            if traits is None or any(trait in traits for trait in _EXEMPT):
                continue
            if Trait.UNSHARDED in traits and Trait.DECODES not in traits:
                continue
            if script.loops.guard.in_daemon(loader.node) or loader.is_unread:
                continue
            if loader.takes_one_batch_a_pass or is_explained(script, loader):
                continue
            if script.loops.is_in_loop(loader.node, Role.TRAIN_BATCH):
                continue
            if keeps_on_device(script, loader, traits):
                continue
            if Trait.UNSEEN in traits and loader.batch_size.equals(None):
                continue
            option = _zero_by_default(script, loader)
            impact: Impact | None = "low"
            if option is None:
                message, fix = self._advice(script, loader, traits)
                impact = "low" if _is_configured(script, loader) else None
            elif option.is_chosen and not _is_of_classes(script, loader):
                continue
            else:
                fix = None
                message = (
                    f"{loader.label} has no workers unless `{option.flag}` "
                    "asks for some, because that is 0 by default: give it a default above 0"
                )
            finding = Finding(self.code, script.span(loader.node), message, fix, impact=impact)
            yield maker(script, loader.node), finding

    def _traits(self, script: Script, loader: Loader) -> Traits | None:
        """Return the traits of the dataset of a loader without workers, None for other loaders."""
        if not loader.has_no_workers and _zero_by_default(script, loader) is None:
            return None
        if loader.dataset is None or loader.joins_tokens:
            return None
        found = dict(loader.traits)
        for function in filter(None, map(loader.expression, ("collate_fn", "worker_init_fn"))):
            found = {**script.loaders.datasets.callable_traits(function), **found}
        return found

    def _advice(self, script: Script, loader: Loader, traits: Traits) -> tuple[str, Fix | None]:
        message = (
            f"{loader.label} has no workers: the loop waits while each batch "
            "is loaded; pass num_workers"
        )
        if Trait.UNSHARDED in traits:
            return f"{message}, and let each yield its share (`get_worker_info`)", None
        if not script.source.is_notebook and runs_unguarded(script, loader):
            once = script.program.purpose.is_one_off(script.span(loader.node))
            code = "this code" if once else "the training"
            return f"{message} and put {code} behind {GUARD}, which workers need", None
        given = loader.given(_WORKERS)
        absent = loader.workers.state is State.ABSENT
        literal = absent if given is None else isinstance(given.value, cst.Integer)
        because = doubt(script, loader.node, loader.dataset, traits)
        fix = self._fix(script, loader.node, given, _WORKERS, because) if literal else None
        return message, fix

    def _fix(
        self, script: Script, call: cst.Call, given: cst.Arg | None, option: str, because: str
    ) -> Fix | None:
        """Return the fix that passes a number of workers, unsafe for a reason if there is one."""
        imported = script.edits.importing("os", at=call)
        if imported is None:
            return None
        os, edits = imported
        count = f"min({self.settings['workers']}, {os}.cpu_count() or 1)"
        title = f"Load with {option}={count}"
        change: Edits = script.edits.set_argument(call, given, option, count)
        if because:
            return Fix.unsafe(title, change, edits, because=because)
        return Fix.exact(title, change, edits)

    def _advice_to_trainer(self, script: Script, data: TrainerData) -> tuple[str, Fix | None]:
        call, given = data.arguments.call, data.arguments.given(_OPTION)
        message = (
            f"the trainer reads `{script.tree.brief(data.dataset)}` without workers: it waits "
            f"while each batch is loaded; pass {_OPTION}"
        )
        if script.loops.guard.at_import(data.trainer.call):
            return f"{message} and put the training behind {GUARD}, which workers need", None
        if given is None:
            literal = data.arguments.takes(_OPTION)
        else:
            literal = isinstance(given.value, cst.Integer)
        because = doubt(script, data.trainer.call, data.dataset, data.traits)
        return message, self._fix(script, call, given, _OPTION, because) if literal else None


def _is_configured(script: Script, loader: Loader) -> bool:
    """Return whether the number is an attribute that the users of a class can set."""
    given = loader.given(_WORKERS)
    owner = script.scopes.class_of(loader.node)
    return (
        given is not None
        and owner is not None
        and isinstance(given.value, cst.Attribute)
        and not any(script.functions.makings(owner))
    )


def _is_of_classes(script: Script, loader: Loader) -> bool:
    """Return whether the dataset certainly is an object of a class, not rows of an unseen kind."""
    values = script.values.origins.of(loader.dataset).values if loader.dataset is not None else ()
    made = [each for each in values if not script.values.value_of(each).equals(None)]
    return bool(made) and all(
        isinstance(each, cst.Call) and word_of(each)[:1].isupper() for each in made
    )


def _zero_by_default(script: Script, loader: Loader) -> Option | None:
    """Return the option of the command line that sets the number of workers, 0 by default."""
    given = loader.expression(_WORKERS)
    option = script.values.options.of(given) if given is not None else None
    return option if option is not None and option.default == 0 else None
