"""Questions that several techniques share: each function returns an answer, or None to go on."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.audit.survey import Survey
from torchlint.audit.technique import (
    Answer,
    Ask,
    Fact,
    cannot_tell,
    clean,
    elsewhere,
    in_use,
    missing,
    not_applicable,
    used,
)
from torchlint.semantic.values.values import State

_TRAINERS: Final = re.compile(
    r"(?:Trainer|Fabric|Accelerator|TrainingArguments|(?:SFT|DPO|GRPO|KTO|Reward|RLOO)Config|\.fit|"
    r"\.train)$"
)
_LEFT_ALONE: Final = ("no", 1)
_FULL: Final = (32, "32", "32-true")
_WITHOUT_LOOP: Final = frozenset({"accelerate", "deepspeed"})
"""The frameworks that leave the loop to the script and change what it calls."""


def calls(*patterns: str) -> Ask:
    """Answer *in use* where a function whose qualified name matches is called."""
    return lambda survey: used(survey, survey.called("|".join(patterns)))


def method(*names: str) -> Ask:
    """Answer *in use* where a method of one of these names is called."""
    return lambda survey: used(survey, survey.method(*names))


def named(name: str) -> Ask:
    """Answer *in use* where something with this qualified name is read."""
    return lambda survey: used(survey, survey.named(name))


def words(*patterns: str) -> Ask:
    """Answer *in use* where an identifier matches."""
    return lambda survey: used(survey, survey.word("|".join(patterns)))


def keyword(*patterns: str) -> Ask:
    """Answer *in use* where a keyword argument matches and is not off."""
    return lambda survey: used(survey, survey.keyword("|".join(patterns)))


def layered(pattern: str, why: str) -> Ask:
    """Answer *not applicable* where the file defines its network and no identifier matches."""
    return lambda survey: None if survey.word(pattern) else shown(survey) or not_applicable(why)


def unless(fact: Fact, why: str) -> Ask:
    """Answer *not applicable* unless a fact holds."""
    return lambda survey: None if fact(survey) else not_applicable(why)


def trainer_option(*patterns: str) -> Ask:
    """Answer *in use* where a framework is given an option that is not off."""
    pattern = "|".join(patterns)

    def ask(survey: Survey) -> Answer | None:
        for call in survey.script.tree.all(cst.Call):
            for arg in call.args:
                if arg.keyword is None or re.fullmatch(pattern, arg.keyword.value) is None:
                    continue
                value = survey.script.values.value_of(arg.value)
                if _TRAINERS.search(survey.script.code(call.func)) is None:
                    continue
                alone = _LEFT_ALONE + _FULL * ("precision" in arg.keyword.value)
                if not survey.is_off(value) and not any(map(value.equals, alone)):
                    return used(survey, arg)
        return None

    return ask


def argument(pattern: str, *names: str) -> Ask:
    """Answer *in use* where a keyword argument of one of these names has a matching text."""

    def ask(survey: Survey) -> Answer | None:
        for arg in survey.script.tree.all(cst.Arg):
            if arg.keyword is not None and arg.keyword.value in names:
                given = survey.script.values.value_of(arg.value).literal
                if isinstance(given, str) and re.fullmatch(pattern, given):
                    return used(survey, arg)
        return None

    return ask


def mentions(pattern: str, what: str) -> Ask:
    """Answer *cannot tell* where an identifier matches, since its meaning is unknown."""

    def ask(survey: Survey) -> Answer | None:
        node = survey.word(pattern)
        return cannot_tell(f"what {survey.quoted(node)} {what}") if node else None

    return ask


def inapplicable(why: str) -> Ask:
    """Answer *not applicable*."""
    return lambda survey: not_applicable(why)


def unknown(why: str) -> Ask:
    """Answer *cannot tell*."""
    return lambda survey: cannot_tell(why)


def unseen(why: str) -> Ask:
    """Answer *cannot tell*: what the technique is about is not in the file."""
    return lambda survey: elsewhere(why)


def owned(survey: Survey) -> Answer | None:
    """Answer *not applicable* where a framework owns the training loop."""
    if survey.framework is None:
        return None
    if survey.script.program.devices.framework in _WITHOUT_LOOP:
        return not_applicable(f"{survey.framework} handles it")
    return not_applicable(f"{survey.framework} runs the training")


def looped(survey: Survey) -> Answer | None:
    """Answer *not applicable* where a framework runs the whole training loop."""
    return None if survey.script.program.devices.framework in _WITHOUT_LOOP else owned(survey)


def trained(survey: Survey) -> Answer | None:
    """Go on where the file trains; else answer why not."""
    if survey.training is not None:
        return None
    if survey.framework is not None:
        return owned(survey)
    if survey.script.evaluations.all:
        return not_applicable("this evaluates and does not train")
    return elsewhere("there is no training loop here")


def whole(survey: Survey) -> Answer | None:
    """Go on where the file is a program; else answer that the rest is not visible."""
    if survey.facts.is_program:
        return None
    return elsewhere("the rest of the program is not here")


def evaluated(survey: Survey) -> Answer | None:
    """Go on where the file evaluates; else answer why not."""
    if survey.script.evaluations.all:
        return None
    call = survey.calling(r"(?:\w+_)?(?:eval|evaluate|evaluation|validate|validation)(?:_\w+)?")
    if call is not None and call.args:
        return cannot_tell(f"what {survey.quoted(call)} evaluates, and how")
    return not_applicable("nothing is evaluated here")


def accelerated(survey: Survey) -> Answer | None:
    """Answer *not applicable* where no run can use an accelerator."""
    if survey.can_use_accelerator:
        return None
    if survey.script.program.target.device == "cpu":
        return not_applicable("the target device is the CPU")
    return not_applicable("nothing here runs on a GPU")


def loading(survey: Survey) -> Answer | None:
    """Go on where the file makes a loader; else answer why not."""
    if survey.loaders:
        return None
    if survey.script.program.devices.framework == "transformers":
        return not_applicable(f"{survey.framework} makes the loaders")
    if survey.word("get_batch|next_batch|make_batch"):
        return not_applicable("batches are made by a function, not by a DataLoader")
    return elsewhere("no DataLoader is made here")


def shown(survey: Survey) -> Answer | None:
    """Go on where the file defines a network; else answer that it does not."""
    return None if survey.has_layers else elsewhere("the network is not here")


def optimized(survey: Survey) -> Answer | None:
    """Go on where the file makes an optimizer; else answer that it does not."""
    return None if survey.optimizers else elsewhere("no optimizer is made here")


def in_use_at_training(why: str) -> Ask:
    """Answer *in use* at the training loop, given that no rule found anything."""
    return lambda survey: clean(survey.line(survey.training), why) if survey.training else None


def missing_at_training(why: str) -> Ask:
    """Answer *missing* at the training loop."""
    return lambda survey: missing(survey.line(survey.training), why) if survey.training else None


def loader_option(name: str, position: int | None = None) -> Ask:
    """Answer *in use* where a loader is given an option, resolving defaults of arguments."""

    def ask(survey: Survey) -> Answer | None:
        undecided: Answer | None = None
        for site in survey.loaders:
            value = site.argument(name, position)
            if value.state is State.ABSENT or survey.is_off(value):
                continue
            given = site.expression(name, position)
            if given is None:
                undecided = undecided or cannot_tell(f"whether the loader is given `{name}`")
                continue
            words = f"`{name}={survey.script.code(given)}`"
            if value.state is State.KNOWN:
                return in_use(survey.line(given), words)
            default = survey.default(given)
            if default:
                return in_use(survey.line(given), f"{words} defaults to {default!r}")
            if default is None:
                why = f"{words} is only known at run time"
            else:
                why = f"{words} defaults to {default!r}"
            undecided = undecided or cannot_tell(why)
        return undecided

    return ask
