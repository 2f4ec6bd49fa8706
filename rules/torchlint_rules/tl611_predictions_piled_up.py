"""TL611: an evaluation that keeps the logits of the whole set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Edits,
    Finding,
    Fix,
    How,
    Kind,
    Rule,
    Script,
    State,
    TrainerCall,
    receiver_of,
    word_of,
)

_LARGE: Final = re.compile(
    r"transformers\.(?:\w+\.)*\w*(?:ForCausalLM|ForMaskedLM|LMHeadModel|ForSeq2SeqLM|"
    r"ForConditionalGeneration|ForSemanticSegmentation|ForCTC)(?:\.from_pretrained|\.from_config)?"
)
"""The networks whose output has many values for each token or pixel."""
_REDUCED: Final = "preprocess_logits_for_metrics"
_OWN_WAYS: Final = "evaluate evaluation_loop prediction_loop prediction_step".split()
"""Methods of a trainer that may reduce the logits themselves."""
_ENDS: Final = {
    "training_epoch_end": ("training_step", "on_train_epoch_end"),
    "validation_epoch_end": ("validation_step", "on_validation_epoch_end"),
    "test_epoch_end": ("test_step", "on_test_epoch_end"),
}
"""The hooks of Lightning 1 that get the results of a step, and those that get nothing."""
_SHARES: Final = frozenset("softmax log_softmax sigmoid exp log perplexity".split())
"""What needs the logits, not the best of them."""
_BEST: Final = (
    "lambda logits, labels: (logits[0] if isinstance(logits, tuple) else logits).argmax(-1)"
)


class PredictionsPiledUp(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every evaluation that keeps more of each batch than anything reads."""
        yield from self._of_trainers(script)
        for hook, step, kept in _unread(script):
            name = hook.name.value
            message = (
                f"`{name}` makes Lightning keep what `{step}` returns for each batch of the epoch, "
                f"`{kept}` too, and reads none of it: end the epoch in `{_ENDS[name][1]}`, which "
                "gets nothing"
            )
            yield Finding(self.code, script.span(hook.name), message, impact="medium")

    def _of_trainers(self, script: Script) -> Iterator[Finding]:
        for trainer in script.program.trainings.trainers("transformers"):
            metrics = _metrics(script, trainer)
            if metrics is None or not _keeps(script, trainer):
                continue
            if metrics.params.params and not _reads(script, metrics, metrics.params.params[0]):
                message = (
                    "the evaluation keeps every logit on the device and joins all of them again "
                    f"after each batch, but `{metrics.name.value}` reads none: leave "
                    "`compute_metrics` out"
                )
                yield Finding(self.code, script.span(trainer.call.func), message)
                continue
            if not _is_large(script, trainer):
                continue
            best = [call for call in _calls(script, metrics) if word_of(call) == "argmax"]
            if not best or any(word_of(call) in _SHARES for call in _calls(script, metrics)):
                continue
            message = (
                "the evaluation keeps every logit on the device and joins all of them again after "
                f"each batch, but `{metrics.name.value}` needs only the largest: pass "
                f"`{_REDUCED}`, which gets each batch"
            )
            edits = _reducing(script, trainer, metrics, best)
            fix = None
            if edits is not None:
                because = "of equal logits another one may be the first, and two places change"
                fix = Fix.unsafe("Keep the largest logit of each position", edits, because=because)
            yield Finding(self.code, script.span(trainer.call.func), message, fix)


def _unread(script: Script) -> Iterator[tuple[cst.FunctionDef, str, str]]:
    """Yield the hooks of Lightning that get all results of a step and read none of them.

    With each go the name of the step, and a part of its result that is no loss.
    """
    for hook in script.tree.all(cst.FunctionDef):
        step, _ = _ENDS.get(hook.name.value, ("", ""))
        owner = script.scopes.class_of(hook)
        if owner is None or script.values.hooks.framework(hook) != "lightning":
            continue
        made = script.functions.method(owner, step) if step else None
        if made is None or len(hook.params.params) != 2:
            continue
        kept = [
            each
            for returned in script.functions.returns(made)
            for each in _entries(returned)
            if script.kind(each) in (Kind.TENSOR, Kind.UNKNOWN)
        ]
        if kept and not _reads(script, hook, hook.params.params[1]):
            yield hook, step, script.tree.brief(kept[0])


def _entries(returned: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the values in a dictionary, or a tuple, that a step returns beside its loss."""
    for each in returned.elements if isinstance(returned, (cst.Dict, cst.Tuple)) else ():
        if isinstance(each, cst.DictElement):
            if isinstance(each.key, cst.SimpleString) and "loss" not in each.key.value:
                yield each.value
        elif isinstance(each, cst.Element):
            yield each.value


def _reads(script: Script, function: cst.FunctionDef, parameter: cst.Param) -> bool:
    """Return whether a function reads one of its parameters."""
    names = script.tree.within(function.body, cst.Name)
    return any(name.value == parameter.name.value for name in names)


def _metrics(script: Script, trainer: TrainerCall) -> cst.FunctionDef | None:
    """Return the function of this file that computes the metrics of a trainer."""
    given = trainer.given("compute_metrics")
    if isinstance(given, cst.Lambda) and isinstance(given.body, cst.Call):
        given = given.body.func
    found = script.functions.definition(given) if given is not None else None
    return found if isinstance(found, cst.FunctionDef) else None


def _keeps(script: Script, trainer: TrainerCall) -> bool:
    """Return whether a trainer evaluates, and joins what the network returns."""
    if trainer.argument(_REDUCED).state is not State.ABSENT:
        return False
    if trainer.given("eval_dataset") is None or any(arg.star for arg in trainer.call.args):
        return False
    owner = script.functions.definition(trainer.call.func)
    named = [script.name(trainer.call.func) or ""]
    if isinstance(owner, cst.ClassDef):
        named = script.functions.bases(owner)
        if any(script.functions.method(owner, name) is not None for name in _OWN_WAYS):
            return False
    arguments = trainer.arguments
    if arguments is None:
        parsed = not any(True for _ in script.program.trainings.arguments("transformers"))
        return parsed and not any("Seq2Seq" in name for name in named)
    when = arguments.setting("eval_strategy")
    asked = (*script.calls.of_methods("evaluate"), *script.calls.of_methods("predict"))
    if when is not None and when.value == "no" and not asked:
        return False
    settings = {
        name: arguments.setting(name)
        for name in ("eval_do_concat_batches", "batch_eval_metrics", "predict_with_generate")
    }
    wanted = {"eval_do_concat_batches": True}
    return all(
        each is not None and each.value is wanted.get(name, False)
        for name, each in settings.items()
    )


def _is_large(script: Script, trainer: TrainerCall) -> bool:
    """Return whether the network of a trainer has a head with many values for each position."""
    given = trainer.given("model")
    made = list(script.values.origins.of(given).values) if given is not None else []
    for value in made:
        if not isinstance(value, cst.Call):
            return False
        name = script.name(value.func) or ""
        if name == "peft.get_peft_model" and value.args:
            made += script.values.origins.of(value.args[0].value).values
        elif not any(_LARGE.fullmatch(each) for each in (name, *_bases(script, value))):
            return False
    return bool(made)


def _bases(script: Script, made: cst.Call) -> list[str]:
    """Return the bases of the class of this project from which a network is loaded."""
    owner = script.functions.definition(receiver_of(made) or made.func)
    return script.functions.bases(owner) if isinstance(owner, cst.ClassDef) else []


def _calls(script: Script, function: cst.FunctionDef) -> list[cst.Call]:
    return [
        call
        for body in script.functions.reached(function.body)
        for call in script.tree.within(body, cst.Call)
    ]


# -- the fix ----------------------------------------------------------------------


def _reducing(
    script: Script, trainer: TrainerCall, metrics: cst.FunctionDef, best: list[cst.Call]
) -> Edits | None:
    """Return the edits that move the only argmax of the metrics to each batch."""
    if len(best) != 1 or len(script.functions.mentions(metrics.name.value)) != 1:
        return None
    call = best[0]
    logits = _over_last(script, call)
    if (
        logits is None
        or "#" in script.code(script.tree.smallest_statement(call))
        or not _is_predicted(script, logits, metrics)
    ):
        return None
    change = script.edits.with_keyword(trainer.call, _REDUCED, _BEST)
    imports = script.edits.without_imports(call.func)
    if imports is None:
        return None
    replaced = script.edits.replace(call, logits.value)
    return script.edits.united(change, replaced, imports)


def _over_last(script: Script, call: cst.Call) -> cst.Name | None:
    """Return the name of what an argmax over the last axis gets."""
    of_numpy = script.name(call.func) == "numpy.argmax"
    array = receiver_of(call) if script.name(call.func) is None else None
    site = script.calls.at(call)
    if not of_numpy and array is None:
        return None
    if not site.argument("axis", 1 if of_numpy else 0).equals(-1) or len(call.args) > 2:
        return None
    given = site.given("a", 0) if of_numpy else None
    node = given.value if given is not None else array
    return node if isinstance(node, cst.Name) else None


def _is_predicted(script: Script, logits: cst.Name, metrics: cst.FunctionDef) -> bool:
    """Return whether a name is only the first part of what the metrics get, read once."""
    binding = script.scopes.only(logits)
    if binding.how is not How.UNPACKED or binding.path != (0,):
        return False
    value = binding.value
    parameter = metrics.params.params[0].name.value if metrics.params.params else ""
    from_parameter = isinstance(value, cst.Name) and value.value == parameter
    return from_parameter and len(list(script.scopes.uses(binding))) == 1
