"""TL401: a bias that the batch norm behind it cancels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Finding,
    Fix,
    Kind,
    Layer,
    LayerPair,
    Note,
    Rule,
    Safety,
    Script,
    State,
    regex,
)

_BIAS_POSITION: Final = {
    "Conv1d": 7, "Conv2d": 7, "Conv3d": 7, "Linear": 2,
    "ConvTranspose1d": 7, "ConvTranspose2d": 7, "ConvTranspose3d": 7,
    "LazyConv1d": 6, "LazyConv2d": 6, "LazyConv3d": 6, "LazyLinear": 1,
}  # fmt: skip
_NORM: Final = regex(r"(?:Lazy)?BatchNorm([123])d|SyncBatchNorm")
_REWORKED: Final = (
    "torch.quantization", "torch.ao.quantization", "torch.nn.utils.prune", "torch.nn.quantized",
    "torch.ao.nn",
)  # fmt: skip


class BiasBeforeBatchNorm(Rule):
    """
    ## What it does
    Flags a convolution or linear layer with a bias whose only consumer is a batch norm, in a
    `nn.Sequential`, in a list of layers, or through `forward`; a pooling without padding may stand
    in between.

    ## Why it is slow
    Batch norm subtracts the mean of its input, and the bias with it. What is left is one
    more tensor to add, to differentiate and to step, for nothing. The gain is small (0 to 7 %
    of a step on a CPU) and costs one word.

    ## When not to
    Keep the bias if you load checkpoints that were saved with it: they hold `<layer>.bias`. To
    convert one, drop the bias and subtract it from the batch norm's `running_mean`. The rule is
    silent in a file that loads weights, that sets the biases of its layers by hand, that freezes
    its batch norms, or that quantises or prunes.

    ## Fix safety
    Unsafe. `bias=False` drops `<layer>.bias` from the state dict, and one draw fewer at
    construction gives later layers other initial weights under the same seed. With the same
    weights the losses agree within rounding.
    """

    code = "TL401"
    name = "bias-before-batchnorm"
    summary = "the batch norm that follows cancels this bias"
    impact = "low"
    safety = Safety.UNSAFE
    articles = ("S3.15",)
    needs = ("BatchNorm",)

    invalid = {
        "composed in forward, behind an alias": """
              import torch.nn as tnn
              BN = tnn.BatchNorm1d
              class Net(tnn.Module):
                  def __init__(self):
                      super().__init__()
            -         self.fc = tnn.Linear(4, 4)
            +         self.fc = tnn.Linear(4, 4, bias=False)
                      self.norm = BN(4)
                  def forward(self, x):
                      return self.norm(self.fc(x))
            """,
        "one after the other in a Sequential": """
              from torch import nn
              block = nn.Sequential(
            -     nn.Conv2d(3, 8, 3, padding=1),
            +     nn.Conv2d(3, 8, 3, padding=1, bias=False),
                  nn.BatchNorm2d(8),
                  nn.ReLU(),
              )
            """,
        "the bias is asked for in so many words": """
              from torch import nn
            - block = nn.Sequential(nn.Linear(4, 8, bias=True), nn.BatchNorm1d(8))
            + block = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8))
            """,
        "the bias is asked for by position": """
              from torch import nn
            - block = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, 1, 1, True), nn.BatchNorm2d(8))
            + block = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, 1, 1, False), nn.BatchNorm2d(8))
            """,
        "through one name in forward": """
              import torch
              from torch import nn
              class Net(nn.Module):
                  def __init__(self):
                      super().__init__()
            -         self.conv1 = nn.Conv2d(3, 8, kernel_size=3)  # stem
            +         self.conv1 = nn.Conv2d(3, 8, kernel_size=3, bias=False)  # stem
                      self.bn1 = nn.BatchNorm2d(8)
                  def forward(self, x):
                      x = self.conv1(x)
                      x = self.bn1(x)
                      return torch.relu(x)
            """,
        "a maximum over a window keeps a constant": """
              import torch.nn.functional as F
              from torch import nn
              class Net(nn.Module):
                  def __init__(self):
                      super().__init__()
            -         self.conv = nn.Conv2d(3, 8, 3)
            +         self.conv = nn.Conv2d(3, 8, 3, bias=False)
                      self.bn = nn.BatchNorm2d(8)
                  def forward(self, x):
                      return self.bn(F.max_pool2d(self.conv(x), 2))
            """,
        "pooled in a Sequential": """
              from torch import nn
            - block = nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.BatchNorm2d(8))
            + block = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.MaxPool2d(2), nn.BatchNorm2d(8))
            """,
        "a list of layers that grows": """
              from torch import nn
              def make(widths):
                  layers = []
                  for a, b in zip(widths, widths[1:]):
            -         layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()]
            +         layers += [nn.Linear(a, b, bias=False), nn.BatchNorm1d(b), nn.ReLU()]
                  return nn.Sequential(*layers)
            """,
        "appended one by one": """
              from torch import nn
              def make(widths):
                  layers = []
                  for a, b in zip(widths, widths[1:]):
            -         layers.append(nn.Linear(a, b))
            +         layers.append(nn.Linear(a, b, bias=False))
                      layers.append(nn.BatchNorm1d(b))
                      layers.append(nn.ReLU())
                  return nn.Sequential(*layers)
            """,
        "named in an OrderedDict": """
              from collections import OrderedDict
              from torch import nn
              block = nn.Sequential(OrderedDict([
            -     ("conv", nn.ConvTranspose2d(8, 4, 4, 2, 1)),
            +     ("conv", nn.ConvTranspose2d(8, 4, 4, 2, 1, bias=False)),
                  ("norm", nn.BatchNorm2d(4)),
              ]))
            """,
        "initialised where a bias is checked for": """
              from torch import nn
              class Net(nn.Module):
                  def __init__(self):
                      super().__init__()
            -         self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
            +         self.net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8))
                      for m in self.modules():
                          if isinstance(m, nn.Conv2d):
                              nn.init.kaiming_normal_(m.weight)
                              if m.bias is not None:
                                  nn.init.zeros_(m.bias)
                          elif isinstance(m, nn.BatchNorm2d):
                              nn.init.ones_(m.weight)
                              nn.init.zeros_(m.bias)
                  def forward(self, x):
                      return self.net(x)
            """,
        "callers in other files may hand it a bias through the splat, so there is no fix": """
              from torch import nn
              class Block(nn.Module):
                  def __init__(self, i, o, **kwargs):
                      super().__init__()
            !         self.conv = nn.Conv2d(i, o, 3, **kwargs)
                      self.bn = nn.BatchNorm2d(o)
                  def forward(self, x):
                      return self.bn(self.conv(x))
              block = Block(3, 8, stride=2)
            """,
        "a synchronised batch norm is one too": """
              from torch import nn
            - block = nn.Sequential(nn.Conv2d(3, 8, 3), nn.SyncBatchNorm(8))
            + block = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.SyncBatchNorm(8))
            """,
        "the best weights of this very run are put back": """
              import copy
              from torch import nn
            - net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
            + net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4))
              best = copy.deepcopy(net.state_dict())
              net.load_state_dict(best)
            """,
        "added by name, handed on by a sequence, in lists that are added up": """
              from torch import nn
              class Block(nn.Sequential):
                  def __init__(self, c):
            -         super().__init__(nn.Conv2d(c, c, 3), nn.BatchNorm2d(c), nn.ReLU())
            +         super().__init__(nn.Conv2d(c, c, 3, bias=False), nn.BatchNorm2d(c), nn.ReLU())
              class Net(nn.Module):
                  def __init__(self, c):
                      super().__init__()
                      self.head = nn.Sequential()
            -         self.head.add_module("conv", nn.Conv2d(c, c, 3))
            +         self.head.add_module("conv", nn.Conv2d(c, c, 3, bias=False))
                      self.head.add_module("norm", nn.BatchNorm2d(c))
            -         body = [nn.Conv2d(c, c, 7), nn.BatchNorm2d(c)]
            -         body = body + [nn.Conv2d(c, c, 7), nn.BatchNorm2d(c)]
            +         body = [nn.Conv2d(c, c, 7, bias=False), nn.BatchNorm2d(c)]
            +         body = body + [nn.Conv2d(c, c, 7, bias=False), nn.BatchNorm2d(c)]
                      self.body = nn.Sequential(*body)
            """,
    }
    valid = {
        "a sequence with a forward of its own, and modules that nothing runs in order": """
            from torch import nn
            class Block(nn.Sequential):
                def __init__(self, c):
                    super().__init__(nn.Conv2d(c, c, 3), nn.BatchNorm2d(c))
                def forward(self, x):
                    return self[1](self[0](x).relu())
            class Net(nn.Module):
                def __init__(self, c):
                    super().__init__()
                    self.add_module("conv", nn.Conv2d(c, c, 3))
                    self.add_module("norm", nn.BatchNorm2d(c))
            """,
        "a class that walks through the layers may put something in between": """
            from torch import nn
            class Masked(nn.Module):
                def __init__(self, layers):
                    super().__init__()
                    self.layers = layers
                def forward(self, x, mask):
                    for layer in self.layers:
                        x = layer(x).masked_fill(mask, 0)
                    return x
            block = Masked(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
            """,
        "the activation in between makes the bias matter": """
            from torch import nn
            block = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.BatchNorm2d(8))
            """,
        "dropout in between makes the bias matter": """
            from torch import nn
            block = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8))
            """,
        "an average over padding mixes the bias with zeros": """
            from torch import nn
            block = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AvgPool2d(3, padding=1), nn.BatchNorm2d(8))
            """,
        "a residual sum stands before the batch norm": """
            from torch import nn
            class Block(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.conv = nn.Conv2d(8, 8, 3, padding=1)
                    self.bn = nn.BatchNorm2d(8)
                def forward(self, x):
                    return self.bn(x + self.conv(x).relu())
            """,
        "the output of the layer is used twice": """
            from torch import nn
            class Block(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.conv = nn.Conv2d(8, 8, 3, padding=1)
                    self.bn = nn.BatchNorm2d(8)
                def forward(self, x):
                    y = self.conv(x)
                    return self.bn(y) + y
            """,
        "the layer runs twice, once without a batch norm behind it": """
            from torch import nn
            class Block(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.conv = nn.Conv2d(8, 8, 3, padding=1)
                    self.bn = nn.BatchNorm2d(8)
                def forward(self, x):
                    return self.conv(self.bn(self.conv(x)))
            """,
        "the weights are shared with another layer": """
            from torch import nn
            class Tied(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.fc = nn.Linear(8, 8)
                    self.bn = nn.BatchNorm1d(8)
                    self.out = nn.Linear(8, 8)
                    self.out.weight = self.fc.weight
                def forward(self, x):
                    return self.out(self.bn(self.fc(x)))
            """,
        "group norm with fewer groups than channels does not cancel a bias": """
            from torch import nn
            block = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.BatchNorm2d(8))
            """,
        "layer norm does not cancel a bias": """
            from torch import nn
            a = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))
            b = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8))
            """,
        "the batch norm is another dimension's, the code is broken anyhow": """
            from torch import nn
            block = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm3d(8))
            """,
        "weights come from a checkpoint that holds the bias": """
            import torch
            from torch import nn
            net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
            net.load_state_dict(torch.load("net.pt"))
            """,
        "weights come from a model zoo": """
            from torch import nn
            from torch.utils import model_zoo
            net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
            net.load_state_dict(model_zoo.load_url("https://example.org/net.pth"))
            """,
        "the initialisation would fail on a missing bias": """
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
                    for m in self.modules():
                        if isinstance(m, nn.Conv2d):
                            m.weight.data.normal_(0, 0.01)
                            m.bias.data.zero_()
            """,
        "initialised by the name of the class, bias and all": """
            from torch import nn
            def init(m):
                if m.__class__.__name__.find("Conv") != -1:
                    nn.init.constant_(m.bias, 0.0)
            net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
            net.apply(init)
            """,
        "frozen batch norms use running statistics while training": """
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
                def train(self, mode=True):
                    super().train(mode)
                    for m in self.modules():
                        if isinstance(m, nn.BatchNorm2d):
                            m.eval()
            """,
        "layers are fused for quantisation by name": """
            import torch
            from torch import nn
            net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
            torch.quantization.fuse_modules(net, [["0", "1"]], inplace=True)
            """,
        "the bias is off already": """
            from torch import nn
            a = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8))
            b = nn.Sequential(nn.Linear(3, 8, False), nn.BatchNorm1d(8))
            """,
        "whoever calls decides": """
            from torch import nn
            def block(i, o, bias, **kwargs):
                return nn.Sequential(
                    nn.Conv2d(i, o, 3, bias=bias), nn.BatchNorm2d(o), nn.Conv2d(o, o, 3, **kwargs),
                    nn.BatchNorm2d(o),
                )
            """,
        "one convolution made for either of two blocks": """
            from torch import nn
            def make(batch_norm):
                layers = []
                conv = nn.Conv2d(3, 8, 3)
                if batch_norm:
                    layers += [conv, nn.BatchNorm2d(8)]
                else:
                    layers += [conv, nn.ReLU()]
                return nn.Sequential(*layers)
            """,
        "the batch norm is only sometimes there": """
            from torch import nn
            def make(batch_norm):
                layers = [nn.Conv2d(3, 8, 3)]
                if batch_norm:
                    layers.append(nn.BatchNorm2d(8))
                return nn.Sequential(*layers)
            """,
        "a normalised weight is another layer": """
            from torch import nn
            from torch.nn.utils import spectral_norm
            block = nn.Sequential(spectral_norm(nn.Conv2d(3, 8, 3)), nn.BatchNorm2d(8))
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every biased layer that feeds a batch norm and nothing else."""
        pairs = [pair for pair in script.layer_pairs() if _cancels(pair)]
        biased = [pair for pair in pairs if _has_bias(script, pair.layer)]
        if not biased or _weights_loaded(script) or _reworked(script) or _norms_frozen(script):
            return
        for pair in biased:
            if not _bias_touched(script, pair.layer):
                yield self._finding(script, pair)

    def _finding(self, script: Script, pair: LayerPair) -> Finding:
        call = script.call(pair.layer.call)
        what = pair.layer.name or script.code(pair.layer.call.func)
        after = pair.after.name or script.code(pair.after.call.func)
        given = call.given("bias", _BIAS_POSITION[_short(pair.layer)])
        fix = None
        if given is not None or not call.has_splat:
            fix = Fix.unsafe(
                "Pass `bias=False`",
                script.rewrite.set_argument(call.node, given, "bias", "False"),
                because="drops the bias from the state dict and shifts the random stream of what "
                "is initialised later",
            )
        message = f"`{after}` cancels the bias of `{what}`: pass `bias=False`"
        note = Note(script.span(pair.after.call), "the batch norm that takes its output")
        return Finding(self.code, script.span(pair.layer.call), message, fix, (note,))


def _short(layer: Layer) -> str:
    return layer.type.rpartition(".")[2]


def _cancels(pair: LayerPair) -> bool:
    """Whether the second is a batch norm for what the first puts out."""
    match = _NORM.fullmatch(_short(pair.after))
    if match is None or _short(pair.layer) not in _BIAS_POSITION:
        return False
    wanted = "1" if _short(pair.layer).endswith("Linear") else _short(pair.layer)[-2]
    return match.group(1) in (None, wanted)


def _has_bias(script: Script, layer: Layer) -> bool:
    value = script.call(layer.call).argument("bias", _BIAS_POSITION[_short(layer)])
    return value.state is State.ABSENT or value.equals(True)


def _weights_loaded(script: Script) -> bool:
    """Whether weights that were saved elsewhere may be put into a network of this file."""
    for call in script.method_calls("load_state_dict"):
        receiver = call.func.value if isinstance(call.func, cst.Attribute) else call.func
        if script.kind(receiver) in (Kind.OPTIMIZER, Kind.SCHEDULER, Kind.SCALER):
            continue
        if not call.args or "state_dict" not in script.code_of(call.args[0].value):
            return True
    return False


def _reworked(script: Script) -> bool:
    """Whether layers are fused, quantised or pruned, by name or by what they hold."""
    return any(
        (script.name(call.func) or "").startswith(_REWORKED) for call in script.all(cst.Call)
    )


def _norms_frozen(script: Script) -> bool:
    """Whether batch norms are put into evaluation mode one by one."""
    for call in script.method_calls("eval"):
        if any("BatchNorm" in script.code(test) for test in script.tests_around(call)):
            return True
    return any(
        "freeze" in function.name.value and "bn" in function.name.value.lower()
        for function in script.all(cst.FunctionDef)
    )


def _bias_touched(script: Script, layer: Layer) -> bool:
    """Whether some line reads the bias of a layer that may be this one."""
    family = "Linear" if _short(layer).endswith("Linear") else "Conv"
    for mention in script.functions.mentions("bias"):
        if not isinstance(mention, cst.Attribute):
            continue
        if isinstance(script.parent(mention), cst.Comparison):
            continue
        tests = [script.code(test) for test in script.tests_around(mention)]
        if any("bias" in test for test in tests):
            continue
        named = [test for test in tests if re.search(r"Conv|Linear|BatchNorm|Norm|LSTM|GRU", test)]
        if named and family not in named[0]:
            continue
        return True
    return False
