"""Techniques of the network and its memory."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.audit.questions import (
    calls,
    in_use_at_training,
    keyword,
    method,
    shown,
    trained,
    unknown,
    unless,
    unseen,
    words,
)
from torchlint.audit.survey import Survey
from torchlint.audit.technique import (
    Answer,
    Technique,
    cannot_tell,
    elsewhere,
    missing,
    not_applicable,
    used,
)
from torchlint.semantic.values.values import State

_CONVOLUTION: Final = re.compile(r"torch\.nn\.Conv(?:Transpose)?[123]d")
_NORMS: Final = (
    r"torch\.nn\.(?:(?:Lazy)?BatchNorm[123]d|SyncBatchNorm|LayerNorm|GroupNorm|InstanceNorm[123]d|"
    r"RMSNorm|functional\.(?:batch|layer|group|instance|rms)_norm)"
)
_LIBRARIES: Final = re.compile(
    r"(?:torchvision\.models|timm|transformers|segmentation_models_pytorch|torch\.hub)\..*"
)
_NO_NETWORK: Final = re.compile(
    r"Tokenizer|Config|Processor|Extractor|Scheduler|Vocab|load_state_dict|url"
)
_LOADED: Final = re.compile(
    r"torchvision\.models\.(?:\w+\.)?[a-z]\w*|timm\.(?:models\.)?create_model|torch\.hub\.load|"
    r"transformers\..*\.from_pretrained"
)
_MADE: Final = re.compile(
    r"torchvision\.models\.(?:\w+\.)?[a-z]\w*|timm\.(?:models\.)?create_model"
)
_LIGHT: Final = r"mobile_?net\w*|efficient_?net\w*|shuffle_?net\w*|mnasnet\w*|squeeze_?net\w*"
_WIDE: Final = 64
_DEEP: Final = 3


def _convolutions(survey: Survey) -> list[cst.Call]:
    return [call for name, call in survey.named_calls if _CONVOLUTION.fullmatch(name)]


def _bias_or_norm(survey: Survey) -> Answer | None:
    norm = survey.called(r"torch\.nn\.(?:Lazy)?(?:BatchNorm[123]d|SyncBatchNorm)")
    if norm is None:
        return not_applicable("no batch norm here")
    for name, call in survey.named_calls:
        if _CONVOLUTION.fullmatch(name) or name == "torch.nn.Linear":
            if survey.script.calls.at(call).argument("bias").equals(False):
                return used(survey, call, " has no bias")
    return cannot_tell("which layers feed the batch norms")


def _other_loss(survey: Survey) -> Answer:
    if survey.called(r"torch\.nn\.(?:\w+Loss|functional\.\w*loss)"):
        return not_applicable("no loss here takes logits")
    return elsewhere("the loss is not here")


def _called(survey: Survey) -> Answer | None:
    forwards = [call for step in survey.script.loops.steps.all for call in step.forwards]
    for call in (*forwards, *survey.script.tree.all(cst.Call)):
        if survey.script.loops.module_call(call) is not None:
            return used(survey, call)
    return None


def _loaded(survey: Survey) -> Answer | None:
    for name, made in survey.named_calls:
        if _LOADED.fullmatch(name) and _NO_NETWORK.search(name) is None:
            return cannot_tell(f"the layers of {survey.quoted(made)} are not here")
    return None


def _deep_without(survey: Survey) -> Answer | None:
    layers = _convolutions(survey)
    if len(layers) < _DEEP:
        return not_applicable("fewer than three convolutions: too shallow to need it")
    return missing(survey.line(layers[0]), f"{len(layers)} convolutions and no normalization")


def _depthwise(survey: Survey) -> Answer | None:
    for call in _convolutions(survey):
        groups = survey.script.calls.at(call).argument("groups", 6)
        if groups.state is not State.ABSENT and not groups.equals(1):
            return used(survey, call, " in groups")
    return None


def _wide_convolution(survey: Survey) -> Answer | None:
    layers = _convolutions(survey)
    if not layers:
        return not_applicable("no convolution here")
    for call in layers:
        channels = [survey.script.calls.at(call).argument(*each) for each in _CHANNELS]
        sizes = [each.literal for each in channels if isinstance(each.literal, int)]
        if len(sizes) == len(_CHANNELS) and min(sizes) >= _WIDE and not _pointwise(survey, call):
            return missing(
                survey.line(call),
                f"{survey.quoted(call)} is dense; a depthwise one is a different model: try it",
            )
    return None


_CHANNELS: Final = (("in_channels", 0), ("out_channels", 1))


def _pointwise(survey: Survey, call: cst.Call) -> bool:
    return survey.script.calls.at(call).argument("kernel_size", 2).equals(1)


def _from_hub(survey: Survey) -> Answer | None:
    for site in survey.script.calls.of_methods("from_pretrained"):
        call = site.node
        if _NO_NETWORK.search(survey.script.code(call.func)) is None:
            return used(survey, call)
    return None


def _pretrained(survey: Survey) -> Answer | None:
    arg = survey.keyword("pretrained|weights")
    made = survey.script.tree.parent(arg) if arg else None
    if arg and isinstance(made, cst.Call):
        value = survey.script.values.value_of(arg.value)
        if value.state is not State.KNOWN and not survey.default(arg.value):
            return cannot_tell(f"{survey.quoted(arg)} is known when the script runs")
        if _is_of_library(survey, made) or (arg.keyword and arg.keyword.value == "pretrained"):
            return used(survey, arg)
    return None


def _is_of_library(survey: Survey, call: cst.Call) -> bool:
    return _LIBRARIES.fullmatch(survey.script.name(call.func) or "") is not None


def _has_new_head(survey: Survey) -> bool:
    """Return whether the file replaces the last layer of a network, as for its own data."""
    return any(
        isinstance(each.target, cst.Attribute)
        and each.target.attr.value in ("fc", "classifier", "head", "heads")
        and isinstance(line.value, cst.Call)
        and survey.script.name(line.value.func) in ("torch.nn.Linear", "torch.nn.Sequential")
        and survey.script.scopes.class_of(line) is None
        for line in survey.script.tree.all(cst.Assign)
        for each in line.targets
    )


def _from_scratch(survey: Survey) -> Answer | None:
    for name, call in survey.named_calls:
        if _MADE.fullmatch(name):
            if _has_new_head(survey):
                return missing(survey.line(call), f"{survey.quoted(call)} starts from scratch")
            return cannot_tell(f"whether pretrained weights would suit {survey.quoted(call)}")
    if survey.networks and survey.has_layers:
        return not_applicable("the network is defined here, and has no pretrained weights")
    return None


NETWORK: Final = (
    Technique(
        "no bias before batch norm",
        ("S3.15",),
        (shown, _bias_or_norm),
        ("TL401",),
        "no measurable difference on two CPU cores; cited: relatively small",
    ),
    Technique(
        "losses computed from logits",
        (),
        (calls(r"torch\.nn\.(?:functional\.)?(?:CrossEntropyLoss|cross_entropy|BCEWithLogitsLoss|"
               r"binary_cross_entropy_with_logits)"), _other_loss),
        ("TL402",),
    ),
    Technique(
        "networks called, not their forward",
        (),
        (_called, unseen("no network is run here")),
        ("TL403",),
    ),
    Technique(
        "activation checkpointing",
        ("S1", "S3.8"),
        (calls(r"torch\.utils\.checkpoint\.\w+"), method("gradient_checkpointing_enable"),
         calls(r"torch\.distributed\.algorithms\._checkpoint\.checkpoint_wrapper\.\w+"),
         keyword(r"\w*gradient_checkpointing|activation_checkpointing(?:_policy)?|use_checkpoint|"
                 r"use_checkpointing"), shown,
         unknown("whether memory is short: it saves memory and runs the forward pass twice")),
        ("TL404",),
        "measured x1.03 to x1.33 against reentrant checkpointing on two CPU cores",
    ),
    Technique(
        "embedding lookups, not one-hot products",
        (),
        (calls(r"torch\.nn\.(?:Embedding(?:Bag)?|functional\.embedding)"),
         unless(lambda survey: survey.word("one_hot"), "nothing is looked up by an index"),
         unknown("whether the one-hot product could be a lookup")),
        ("TL406",),
        "measured x420 to x460 for the lookup on two CPU cores",
    ),
    Technique(
        "graphs freed after backward",
        ("S2",),
        (trained, in_use_at_training("no rule found a graph that is retained needlessly")),
        ("TL407",),
        "measured x1.03 to x1.09 on two CPU cores; memory is what it saves",
    ),
    Technique(
        "no gradients for networks that are not trained",
        (),
        (trained, in_use_at_training("no rule found a graph of a network that is not trained")),
        ("TL411", "TL412"),
        "measured x1.41 to x1.55 a step with a second network of equal size on two CPU cores",
    ),
    Technique(
        "`detach()`, not `.data`",
        (),
        (method("detach"), calls(r"torch\.no_grad"),
         lambda survey: not_applicable("no tensor is detached here")),
        ("TL408",),
    ),
    Technique(
        "batch or layer normalization",
        ("S3.17",),
        (calls(_NORMS), _loaded, shown, _deep_without),
        gain="cited: fewer epochs to the same loss",
    ),
    Technique(
        "depthwise-separable convolutions, small models",
        ("S0", "S1", "S2"),
        (words(_LIGHT), _depthwise, shown, _wide_convolution,
         unknown("whether a smaller model is accurate enough")),
        gain="measured x1.9 to x2.6 for a convolution of 64 channels on a CPU, with a seventh of"
        " the parameters",
    ),
    Technique(
        "pretrained weights",
        ("S1",),
        (_from_hub, calls(r"torch\.hub\.load"), _pretrained, _from_scratch,
         unseen("the network is not here")),
        gain="cited: fewer epochs to the same accuracy",
    ),
)  # fmt: skip
