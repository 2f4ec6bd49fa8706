"""TL401: a bias that the following batch norm cancels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Layer, LayerPair, Note, Rule, Script, State
from torchlint_rules.shared.grouping import joined, maker

_BIASED: Final = frozenset(
    "Conv1d Conv2d Conv3d Linear ConvTranspose1d ConvTranspose2d ConvTranspose3d "
    "LazyConv1d LazyConv2d LazyConv3d LazyLinear".split()
)
_NORM: Final = re.compile(r"(?:Lazy)?BatchNorm([123])d|SyncBatchNorm")
_REWORKED: Final = (
    "torch.quantization", "torch.ao.quantization", "torch.nn.utils.prune", "torch.nn.quantized",
    "torch.ao.nn",
)  # fmt: skip


_FEW: Final = 8


class BiasBeforeBatchNorm(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every biased layer that feeds a batch norm and nothing else, class by class."""
        yield from joined(script, self._of_layers(script), ("layer", "layers"))

    def _of_layers(self, script: Script) -> Iterator[tuple[cst.CSTNode, Finding]]:
        pairs = filter(_cancels, script.modules.layers.pairs())
        own = [pair for pair in pairs if script.tree.is_own(pair.layer.call)]
        biased = [pair for pair in own if _has_bias(script, pair.layer)]
        for pair in biased:
            layer = pair.layer
            if _is_tiny(script, layer) or script.modules.saved_weights.may_enter(layer.call):
                continue
            if not (_is_reworked(script, layer) or _bias_touched(script, layer)):
                yield maker(script, layer.call), self._finding(script, pair)

    def _finding(self, script: Script, pair: LayerPair) -> Finding:
        call = script.calls.at(pair.layer.call)
        what = pair.layer.name or script.code(pair.layer.call.func)
        after = pair.after.name or script.code(pair.after.call.func)
        given = call.given("bias")
        fix = None
        if given is not None or not call.has_splat:
            fix = Fix.unsafe(
                "Pass `bias=False`",
                script.edits.set_argument(call.node, given, "bias", "False"),
                because="drops the bias from the state dict and shifts the random stream of what "
                "is initialized later",
            )
        message = f"`{after}` cancels the bias of `{what}`: pass `bias=False`"
        note = Note(script.span(pair.after.call), "the batch norm that takes its output")
        return Finding(self.code, script.span(pair.layer.call), message, fix, (note,))


def _short(layer: Layer) -> str:
    return layer.type.rpartition(".")[2]


def _cancels(pair: LayerPair) -> bool:
    """Return whether the second layer is a batch norm for the output of the first."""
    match = _NORM.fullmatch(_short(pair.after))
    if match is None or _short(pair.layer) not in _BIASED:
        return False
    wanted = "1" if _short(pair.layer).endswith("Linear") else _short(pair.layer)[-2]
    return match.group(1) in (None, wanted)


def _has_bias(script: Script, layer: Layer) -> bool:
    value = script.calls.at(layer.call).argument("bias")
    return value.state is State.ABSENT or value.equals(True)


def _is_tiny(script: Script, layer: Layer) -> bool:
    """Return whether a bias has so few numbers that dropping it changes nothing."""
    at = 0 if _short(layer).startswith("Lazy") else 1
    name = "out_features" if _short(layer).endswith("Linear") else "out_channels"
    channels = script.calls.at(layer.call).argument(name, at).literal
    return isinstance(channels, int) and channels < _FEW


def _is_reworked(script: Script, layer: Layer) -> bool:
    """Return whether the network of a layer is fused, quantized or pruned, or its norms frozen."""
    return any(
        network is None or script.modules.making.may_make(layer.call, network)
        for network in script.once(_reworked)
    )


def _reworked(script: Script) -> tuple[cst.BaseExpression | None, ...]:
    """Return the networks that are fused, quantized, pruned or frozen; None for unknown ones."""
    return (*_fused(script), *_frozen(script))


def _fused(script: Script) -> Iterator[cst.BaseExpression | None]:
    for call in script.tree.all(cst.Call):
        if (script.name(call.func) or "").startswith(_REWORKED):
            function = script.scopes.function(call)
            if call.args:
                yield call.args[0].value
            else:
                yield _self_of(script, function)


def _frozen(script: Script) -> Iterator[cst.BaseExpression | None]:
    """Yield the networks whose batch norms are put into evaluation mode one by one."""
    for site in script.calls.of_methods("eval"):
        if any("BatchNorm" in script.code(test) for test in script.tree.tests_around(site.node)):
            yield site.receiver
    for function in script.tree.all(cst.FunctionDef):
        if "freeze" in function.name.value and "bn" in function.name.value.lower():
            yield _self_of(script, function)


def _self_of(script: Script, function: cst.FunctionDef | None) -> cst.BaseExpression | None:
    """Return the object whose method a function is, None for other functions."""
    params = function.params.params if function is not None else ()
    owned = bool(params) and script.functions.owner_of_self(params[0]) is not None
    return params[0].name if owned else None


def _bias_touched(script: Script, layer: Layer) -> bool:
    """Return whether some line reads the bias of a layer that may be this one.

    Another file may apply a function of this one to the network.
    """
    family = "Linear" if _short(layer).endswith("Linear") else "Conv"
    for mention in script.whole.functions.mentions("bias"):
        if not isinstance(mention, cst.Attribute):
            continue
        taker = script.tree.taker(mention)
        made = script.name(taker.func) if taker is not None else None  # a flag: `bias=config.bias`
        if isinstance(script.tree.parent(mention), cst.Comparison):
            continue
        if (made or "").rpartition(".")[2] in _BIASED:
            continue
        tests = [script.code(test) for test in script.tree.tests_around(mention)]
        if any("bias" in test for test in tests):
            continue
        named = [test for test in tests if re.search(r"Conv|Linear|BatchNorm|Norm|LSTM|GRU", test)]
        if named and family not in named[0]:
            continue
        if script.whole.modules.making.may_make(layer.call, mention.value):
            return True
    return False
