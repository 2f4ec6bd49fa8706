"""TL113: texts that are padded to the maximum length, where each batch could be padded alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Rule, Script, State, TrainerCall, receiver_of
from torchlint_rules.shared.tokenizers import TextMap, text_maps, tokenizer_of

_PADDING: Final = frozenset({
    "DataCollatorWithPadding", "DataCollatorForTokenClassification", "DataCollatorForSeq2Seq",
})  # fmt: skip
"""The collators of Transformers that pad each batch to its longest text."""
_SHORT: Final = 64
"""The number of tokens up to which padding costs little."""
_FIXED: Final = ("torch_xla", "optimum", "diffusers", "tensorflow", "jax")
"""Libraries that compile for fixed shapes, or whose networks want a fixed length."""
_COMPILING: Final = ("torch_compile", "torch_compile_backend", "torch_compile_mode")


class TextPaddedToMaximum(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every tokenizer in a `map` that pads to the maximum for a trainer."""
        if script.functions.imports(*_FIXED) or any(True for _ in script.calls.of("torch.compile")):
            return
        trainers = list(script.program.trainings.trainers("transformers"))
        for mapped in text_maps(script):
            for call in mapped.calls:
                given = _padded(script, call)
                trainer = next((each for each in trainers if _feeds(script, mapped, each)), None)
                if given is None or trainer is None or _keeps_shapes(trainer):
                    continue
                cure = _cure(script, trainer)
                if cure is None or (cure and _labels_tokens(script, mapped)):
                    continue
                message = (
                    "every text is padded to the maximum length, and the network computes on the "
                    f"padding: {cure or 'leave it out, the collator pads each batch'}"
                )
                fix = None
                if not cure and _alone(script, mapped):
                    fix = Fix.unsafe(
                        "Pad each batch to its longest text",
                        script.edits.without_argument(call, given),
                        because="batches of other shapes draw other dropout masks",
                    )
                yield Finding(self.code, script.span(given), message, fix)


def _padded(script: Script, call: cst.Call) -> cst.Arg | None:
    """Return the argument that makes a tokenizer pad to the maximum length."""
    site = script.calls.at(call)
    if site.argument("return_tensors").state is not State.ABSENT or site.has_splat:
        return None
    longest = site.argument("max_length").literal
    if type(longest) is int and longest <= _SHORT:
        return None
    return site.given("padding") if site.argument("padding").equals("max_length") else None


def _keeps_shapes(trainer: TrainerCall) -> bool:
    """Return whether the arguments of a trainer compile the network, or are unknown."""
    arguments = trainer.arguments
    return arguments is None or not arguments.is_off(*_COMPILING)


def _cure(script: Script, trainer: TrainerCall) -> str | None:
    """Return what else must change, empty if nothing, None if the collator may want the padding."""
    collate = trainer.argument("data_collator")
    if collate.state is State.ABSENT or collate.equals(None):
        if trainer.argument("processing_class").state is State.ABSENT:
            return "leave it out, and pass `data_collator=DataCollatorWithPadding(tokenizer)`"
        return ""
    node = collate.node
    if not isinstance(node, cst.Call):
        return None
    name = script.name(node.func) or ""
    pads = name.startswith("transformers.") and name.rpartition(".")[2] in _PADDING
    padding = script.calls.at(node).argument("padding", 1)
    return "" if (pads and padding.state is State.ABSENT) or padding.equals(True) else None


def _alone(script: Script, mapped: TextMap) -> bool:
    """Return whether a function tokenizes once and computes nothing from the length."""
    calls = script.tree.within(mapped.body, cst.Call)
    tokenizing = [each for each in calls if tokenizer_of(script, each) is not None]
    return len(tokenizing) == 1 and not any(
        "label" in text.value for text in script.tree.within(mapped.body, cst.SimpleString)
    )


def _labels_tokens(script: Script, mapped: TextMap) -> bool:
    """Return whether a function makes labels of the tokens, which this collator does not pad."""
    texts = {
        script.values.value_of(text).literal
        for text in script.tree.within(mapped.body, cst.SimpleString)
    }
    return texts >= {"labels", "input_ids"}


def _feeds(script: Script, mapped: TextMap, trainer: TrainerCall) -> bool:
    """Return whether a trainer gets what a `map` makes, or a part of it."""
    dataset = trainer.given("train_dataset")
    seen: set[int] = set()
    left = [dataset] if dataset is not None else []
    while left:
        node = left.pop()
        if node is mapped.site.node:
            return True
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, cst.Subscript):
            left.append(node.value)
        elif (owner := receiver_of(node)) is not None:
            left.append(owner)
        else:
            left += script.values.origins.of(node).values
            value = script.values.value_of(node).node
            left += [value] if value is not None else []
    return False
