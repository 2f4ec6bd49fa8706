"""TL113: texts that are padded to the maximum length, where each batch could be padded alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    Finding,
    Fix,
    Loader,
    Note,
    Per,
    Rule,
    Script,
    State,
    Value,
    receiver_of,
    word_of,
)
from torchlint_rules.shared.tokenizers import TextMap, functions_of, text_maps, tokenizer_of
from torchlint_rules.tl113_text_padded_to_maximum.filling import filled

_LABELLING: Final = ("DataCollatorForTokenClassification", "DataCollatorForSeq2Seq")
"""The collators of Transformers that pad the texts of each batch, and a label for each token."""
_PADDING: Final = ("DataCollatorWithPadding", "DataCollatorForLanguageModeling", *_LABELLING)
"""The collators of Transformers that pad each batch to its longest text."""
_SHORT: Final = 64
"""The number of tokens up to which padding costs little."""
_FIXED: Final = ("torch_xla", "optimum", "diffusers", "tensorflow", "jax")
"""Libraries that compile for fixed shapes, or whose networks want a fixed length."""
_OTHER_SHAPES: Final = "batches of other shapes draw other dropout masks"
_PACKING: Final = "torch.nn.utils.rnn.pack_padded_sequence"
"""What takes the padding away again before a network reads the tokens."""
_COMPILING: Final = ("torch_compile", "torch_compile_backend", "torch_compile_mode")


class TextPaddedToMaximum(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every tokenizer in a `map` that pads the texts of a training to the maximum."""
        if script.functions.imports(*_FIXED):
            return
        readers = [*_trainers(script), *_loops(script)]
        yield from self._in_code(script, readers)
        for mapped in text_maps(script):
            padded = [
                (call, given)
                for call in mapped.calls
                if script.calls.at(call).argument("return_tensors").state is State.ABSENT
                if (given := _to_maximum(script, call)) is not None
            ]
            fed = [each for each in readers if padded and _feeds(script, mapped, each)]
            cures = [_cure(script, mapped, each) for each in fed]
            if not fed or None in cures or any(_keeps_shapes(script, each) for each in fed):
                continue
            cure = next(filter(None, cures), "")
            message = (
                "every text is padded to the maximum length, and the network computes on the "
                f"padding: {cure or 'leave it out, the collator pads each batch'}"
            )
            (call, given), *_ = padded
            fix = None
            if not cure and _alone(script, mapped):
                fix = Fix.unsafe(
                    "Pad each batch to its longest text",
                    script.edits.without_argument(call, given),
                    because=_OTHER_SHAPES,
                )
            yield self._found(script, [each for _, each in padded], message, fix)

    def _in_code(self, script: Script, readers: Sequence[_Reader]) -> Iterator[Finding]:
        """Yield a finding for each function of a dataset or a collator that pads to the maximum."""
        read: dict[cst.CSTNode, Per] = {}
        for reader in readers:
            bodies = {body: per for body, per in _code(script, reader) if script.tree.is_own(body)}
            if bodies and not _keeps_shapes(script, reader):
                read.update(bodies)
        packs = next(script.calls.of(_PACKING), None) is not None
        for body, per in read.items():
            padded = [
                given
                for call in script.functions.own(body, cst.Call)
                if call is body or tokenizer_of(script, call) is not None
                if (given := _to_maximum(script, call)) is not None
            ]
            for given in padded if per is Per.BATCH else ():
                fix = None
                if script.values.value_of(given.value).is_literal:
                    fix = Fix.unsafe(
                        "Pad each batch to its longest text",
                        script.edits.replace(given.value, "True"),
                        because=_OTHER_SHAPES,
                    )
                yield self._found(script, [given], _in_words(per), fix)
            if padded and per is Per.ITEM:
                yield self._found(script, padded, _in_words(per))
            if by_hand := [] if packs else [*filled(script, body, _SHORT)]:
                yield self._found(script, by_hand, _in_words(None))

    def _found(
        self, script: Script, nodes: Sequence[cst.CSTNode], message: str, fix: Fix | None = None
    ) -> Finding:
        """Return a finding at the first of some nodes, with notes for the others."""
        first, *others = map(script.span, nodes)
        return Finding(
            self.code, first, message, fix, tuple(Note(each, "and here") for each in others)
        )


class _Reader(NamedTuple):
    """What trains networks on a dataset: a trainer, or the loops over a loader."""

    dataset: cst.BaseExpression
    option: str
    """The option that takes a collate function."""
    collate: Value
    collator: cst.BaseExpression | None
    pads: bool
    """Whether it pads each batch without such a function."""
    network: cst.BaseExpression | None = None
    """The network of a trainer."""
    loader: Loader | None = None


def _trainers(script: Script) -> Iterator[_Reader]:
    """Yield the trainers whose arguments are known and compile nothing."""
    for trainer in script.program.trainings.trainers("transformers"):
        dataset, network = trainer.given("train_dataset"), trainer.given("model")
        arguments = trainer.arguments
        if dataset is not None and arguments is not None and arguments.is_off(*_COMPILING):
            pads = trainer.argument("processing_class").state is not State.ABSENT
            collate = trainer.argument("data_collator")
            given = trainer.given("data_collator")
            yield _Reader(dataset, "data_collator", collate, given, pads, network)


def _loops(script: Script) -> Iterator[_Reader]:
    """Yield the loaders over which loops train, or a trainer of Lightning does."""
    for loader in script.loaders:
        if loader.dataset is not None and loader.trains and not _are_cut(script, loader):
            collate = loader.argument("collate_fn")
            collator = loader.expression("collate_fn")
            yield _Reader(loader.dataset, "collate_fn", collate, collator, False, loader=loader)


def _to_maximum(script: Script, call: cst.Call) -> cst.Arg | None:
    """Return the argument that makes a tokenizer pad to a maximum that is long."""
    site = script.calls.at(call)
    if site.has_splat:
        return None
    longest = site.argument("max_length").literal
    if type(longest) is int and longest <= _SHORT:
        return None
    if site.argument("pad_to_max_length").equals(True):
        return site.given("pad_to_max_length")
    given = site.given("padding")
    return given if given is not None and _is_maximum(script, given.value) else None


def _is_maximum(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether padding is the maximum, if only where a call leaves a parameter at it."""
    made = script.values.origins.of(node).values
    defaults = (each for each in made if isinstance(script.tree.parent(each), cst.Param))
    return any(script.values.value_of(each).equals("max_length") for each in (node, *defaults))


def _code(script: Script, reader: _Reader) -> Iterator[tuple[cst.CSTNode, Per]]:
    """Yield the functions that make items of the dataset of a reader, and those that join them."""
    for owner in script.loaders.datasets.classes(reader.dataset):
        for name in ("__init__", "__getitem__"):
            method = script.functions.method(owner, name)
            for body in script.functions.reached(method) if method is not None else ():
                yield body, Per.ITEM
    if reader.collate.node is not None and _collator(script, reader.collate) in _PADDING:
        yield reader.collate.node, Per.BATCH
    for function in functions_of(script, reader.collator) if reader.collator is not None else ():
        for body in script.functions.reached(function):
            yield body, Per.BATCH


def _are_cut(script: Script, loader: Loader) -> bool:
    """Return whether a loop that trains cuts batches to their longest text, also in a function.

    As `ids[:, : mask.sum(1).max()]` does.
    """
    loops = [loop.node for loop in loader.training_loops]
    calls = [call for loop in loops for call in script.tree.within(loop.body, cst.Call)]
    ran = (body for call in calls for body in script.functions.callees(call))
    cuts = (
        each.slice[1].slice
        for region in (*(loop.body for loop in loops), *ran)
        for each in script.tree.within(region, cst.Subscript)
        if each.slice[1:]
    )
    ends = (cut.upper for cut in cuts if isinstance(cut, cst.Slice) and cut.upper is not None)
    return any(
        word_of(call) == "max"
        for end in ends
        for call in script.tree.within(script.scopes.only(end).assigned or end, cst.Call)
    )


def _in_words(per: Per | None) -> str:
    """Return what to say of padding: by a tokenizer for an item or a batch, or by hand."""
    what = "batch" if per is Per.BATCH else "text"
    cure = "`padding=True` pads it to its longest text"
    if per is Per.ITEM:
        cure = "leave it out, and pad each batch in a `collate_fn`: `tokenizer.pad(rows)`"
    elif per is None:
        cure = "pad each batch to its longest text, in a `collate_fn`: `pad_sequence(rows)`"
    return (
        f"every {what} is padded to the maximum length, and the network computes on the padding: "
        f"{cure}"
    )


def _keeps_shapes(script: Script, reader: _Reader) -> bool:
    """Return whether a network that gets the texts may be compiled: any, if none is known."""
    networks = list(_networks(script, reader))
    if not networks:
        return bool(script.modules.compiled.all)
    return any(map(script.modules.may_be_compiled, networks))


def _networks(script: Script, reader: _Reader) -> Iterator[cst.BaseExpression]:
    """Yield the network of a trainer, or those that the loops over a loader run."""
    if reader.network is not None:
        yield reader.network
    for loop in reader.loader.training_loops if reader.loader is not None else ():
        for call in script.functions.run_in(loop.node.body):
            network = script.loops.module_call(call)
            if network is not None:
                yield network


def _cure(script: Script, mapped: TextMap, reader: _Reader) -> str | None:
    """Return what else must change, empty if nothing, None if the collator may want the padding."""
    collate = reader.collate
    if _labels_tokens(script, mapped) and _collator(script, collate) not in _LABELLING:
        replaced = _collator(script, collate) == "DataCollatorForLanguageModeling"
        cure = "leave it out, and the labels, which the collator makes after it pads each batch"
        return cure if replaced else None
    if collate.state is State.ABSENT or collate.equals(None):
        cure = f"leave it out, and pass `{reader.option}=DataCollatorWithPadding(tokenizer)`"
        return "" if reader.pads else cure
    node = collate.node
    if node is None:
        return None
    if _joins_by_tokenizer(script, node):
        return ""
    if not isinstance(node, cst.Call):
        return None
    padding = script.calls.at(node).argument("padding", 1)
    if padding.equals(True):
        return ""
    return "" if _collator(script, collate) in _PADDING and padding.state is State.ABSENT else None


def _collator(script: Script, collate: Value) -> str:
    """Return the class of Transformers that a collate function is an object of."""
    name = script.name(collate.node.func) if isinstance(collate.node, cst.Call) else None
    return (name or "").rpartition(".")[2] if (name or "").startswith("transformers.") else ""


def _joins_by_tokenizer(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a function of this file joins a batch by a tokenizer: `tokenizer.pad(…)`."""
    found = [
        call
        for function in functions_of(script, node)
        for call in script.tree.within(function.body, cst.Call)
        if receiver_of(call, "pad") is not None
    ]
    return bool(found) and all(
        script.calls.at(call).argument("padding", 1).state is State.ABSENT for call in found
    )


def _alone(script: Script, mapped: TextMap) -> bool:
    """Return whether a function tokenises once and computes nothing from the length."""
    calls = script.tree.within(mapped.body, cst.Call)
    tokenising = [each for each in calls if tokenizer_of(script, each) is not None]
    return len(tokenising) == 1 and not any(
        "label" in text.value for text in script.tree.within(mapped.body, cst.SimpleString)
    )


def _labels_tokens(script: Script, mapped: TextMap) -> bool:
    """Return whether a `map` makes labels of the tokens, which not every collator pads."""
    given = (site.given("function", 0) for site in script.calls.of_methods("map"))
    functions = (functions_of(script, each.value) for each in given if each is not None)
    bodies = [mapped.body, *(each.body for some in functions for each in some)]
    texts = {
        script.values.value_of(text).literal
        for body in bodies
        for text in script.tree.within(body, cst.SimpleString)
    }
    return texts >= {"labels", "input_ids"}


def _feeds(script: Script, mapped: TextMap, reader: _Reader) -> bool:
    """Return whether a training gets what a `map` makes, or a part of it."""
    seen: set[int] = set()
    left = [reader.dataset]
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
