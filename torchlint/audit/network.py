"""Questions about techniques of the network and its memory."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.audit.survey import Survey
from torchlint.audit.technique import (
    Answer,
    by_name,
    cannot_tell,
    elsewhere,
    missing,
    not_applicable,
    used,
)
from torchlint.semantic.values.values import State

_CONVOLUTION: Final = re.compile(r"torch\.nn\.Conv(?:Transpose)?[123]d")
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
        pointwise = survey.script.calls.at(call).argument("kernel_size", 2).equals(1)
        if len(sizes) == len(_CHANNELS) and min(sizes) >= _WIDE and not pointwise:
            return missing(
                survey.line(call),
                f"{survey.quoted(call)} is dense; a depthwise one is a different model: try it",
            )
    return None


_CHANNELS: Final = (("in_channels", 0), ("out_channels", 1))


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


NETWORK: Final = by_name(
    _bias_or_norm,
    _other_loss,
    _called,
    _loaded,
    _deep_without,
    _depthwise,
    _wide_convolution,
    _from_hub,
    _pretrained,
    _from_scratch,
    one_hot=lambda survey: survey.word("one_hot"),
)
