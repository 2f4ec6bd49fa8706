"""TL311: an activation or a norm written out, operation by operation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Rule, Safety, Script
from torchlint_rules._pointwise import Formula, formulas

_FUSING: Final = frozenset({"torch.jit.script", "torch.compile"})
_FUNCTIONAL: Final = "torch.nn.functional"


class HandwrittenPointwise(Rule):
    """
    ## What it does
    Flags formulas that are one function of torch: GELU (with `erf` or `tanh`), SiLU or Swish,
    Mish, sigmoid, `log(sigmoid(x))`, `log(1 + exp(x))`, `log(sum(exp(x)))`, softmax, RMS norm and
    layer norm.

    ## Why it is slow
    Each operation reads a whole tensor, writes another, and keeps it for the backward pass. One
    function does it in one pass over memory. GELU by hand took 7.7 to 10 times as long forward,
    13.7 to 16.6 times forward and backward (3.7 times with a single thread).

    ## When not to
    Code under `torch.compile` or `torch.jit.script` is fused anyway and is not flagged, nor is a
    formula with other constants (`x * sigmoid(1.702 * x)` is no GELU of torch's).

    ## Fix safety
    Close: results differ by about 1e-6 and less. Where the formula overflowed, the function does
    not.
    """

    code = "TL311"
    name = "handwritten-pointwise"
    summary = "a formula that torch computes in one function"
    impact = "medium"
    safety = Safety.CLOSE
    articles = ("S3.bonus",)
    needs = ("sigmoid", "softplus", ".erf", "044715", ".exp", "keepdim")

    invalid = {
        "GELU with a rounded root of two": """
              import torch
              import torch.nn.functional as F
              def gelu(x):
            -     return x * 0.5 * (1 + torch.erf(x / 1.41421))
            +     return F.gelu(x)
              print(torch.ones(1), F)
            """,
        "GELU with the root computed, whose import has no other use": """
            - import math
              import torch
              from torch import nn
              from torch.nn import functional as F
              class GELU(nn.Module):
                  def forward(self, x):
            -         return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))
            +         return F.gelu(x)
              print(torch.ones(1))
            """,
        "GELU halved at the end": """
              import torch
              import torch.nn.functional as F
              ROOT = 0.7071067811865476
            - y = lambda x: x * (1 + torch.erf(x * ROOT)) / 2
            + y = lambda x: F.gelu(x)
              print(torch.ones(1))
            """,
        "GELU as its approximation": """
              import math
              import torch
              import torch.nn.functional as F
              def new_gelu(x):
            -     return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
            +     return F.gelu(x, approximate="tanh")
              print(torch.ones(math.ceil(1)))
            """,
        "the approximation with x outside": """
              import torch
              import torch.nn.functional as F
              def fast_gelu(x):
            -     return 0.5 * x * (1 + torch.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x)))
            +     return F.gelu(x, approximate="tanh")
              print(torch.ones(1))
            """,
        "Swish in a class of its own": """
              import torch
              from torch import nn
              import torch.nn.functional as F
              class Swish(nn.Module):
                  def forward(self, x):
            -         return x * torch.sigmoid(x)
            +         return F.silu(x)
              print(torch.ones(1))
            """,
        "Swish as methods, without an import of the functions": """
              import torch
            + import torch.nn.functional as F
              def swish(x):
            -     return x.mul(x.sigmoid())
            +     return F.silu(x)
              print(torch.ones(1))
            """,
        "Mish, as a method and as a function": """
              import torch
              import torch.nn.functional as F
              def mish(x):
            -     return x * F.softplus(x).tanh() + x * torch.tanh(F.softplus(x))
            +     return F.mish(x) + F.mish(x)
              print(torch.ones(1))
            """,
        "Swish divided out": """
              import torch
              import torch.nn.functional as F
              def swish(x):
            -     return x / (1 + torch.exp(-x))
            +     return F.silu(x)
              print(torch.ones(1))
            """,
        "a logistic function": """
              import torch
              def squash(x):
            -     return 1 / (1 + torch.exp(-x))
            +     return torch.sigmoid(x)
            """,
        "the logarithm of a sigmoid": """
              import torch
              import torch.nn.functional as F
              def score(x, mask):
            -     return -torch.log(torch.sigmoid(x)) * mask
            +     return -F.logsigmoid(x) * mask
            -     return x.sigmoid().log() * mask
            +     return F.logsigmoid(x) * mask
              print(torch.ones(1))
            """,
        "the logarithm of a sigmoid that has a name: reported": """
              import torch
              def focal(x, t, w):
                  p = (x * (2 * t - 1)).sigmoid()
            !     return -w * p.log()
            """,
        "softplus": """
              import torch
              import torch.nn.functional as F
              def smooth(x):
            -     y = torch.log(1 + torch.exp(x))
            +     y = F.softplus(x)
            -     return y + torch.log1p(torch.exp(-x))
            +     return y + F.softplus(-x)
              print(torch.ones(1))
            """,
        "log, sum and exp in one": """
              import torch
              def normaliser(x):
            -     a = torch.log(torch.sum(torch.exp(x), dim=1))
            +     a = torch.logsumexp(x, dim=1)
            -     return a, x.exp().sum(-1, keepdim=True).log()
            +     return a, torch.logsumexp(x, dim=-1, keepdim=True)
            """,
        "softmax": """
              import torch
              def weights(x):
            -     return torch.exp(x) / torch.exp(x).sum(dim=1, keepdim=True)
            +     return torch.softmax(x, dim=1)
            """,
        "root mean square norm": """
              import torch
              import torch.nn.functional as F
              class RMSNorm(torch.nn.Module):
                  def __init__(self, width, eps=1e-6):
                      super().__init__()
                      self.eps = 1e-6
                      self.weight = torch.nn.Parameter(torch.ones(width))
                  def _norm(self, x):
            -         return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
            +         return F.rms_norm(x, x.shape[-1:], eps=self.eps)
                  def forward(self, x):
                      return self._norm(x) * self.weight
            """,
        "the mean square has a line of its own": """
              import torch
              def norm(x):
                  mean_square = torch.mean(x * x, dim=-1, keepdim=True)
            !     return x * torch.rsqrt(mean_square + 1e-6)
            """,
        "layer norm: what it is multiplied with belongs to the call": """
              import torch
              class LayerNorm(torch.nn.Module):
                  def forward(self, x):
                      mean = x.mean(-1, keepdim=True)
                      var = (x - mean).pow(2).mean(-1, keepdim=True)
            !         return self.weight * ((x - mean) / torch.sqrt(var + 1e-5)) + self.bias
            """,
    }
    valid = {
        "another constant makes another function": """
            import torch
            def quick_gelu(x):
                return x * torch.sigmoid(1.702 * x)
            """,
        "the root is rounded too much to be one": """
            import torch
            def gelu(x):
                return 0.5 * x * (1 + torch.erf(x / 1.4))
            """,
        "a gate: one tensor scales another": """
            import torch
            def gate(x, g):
                return x * torch.sigmoid(g)
            """,
        "what is multiplied is computed twice on purpose: dropout differs": """
            import torch
            def noisy(layer, x):
                return layer(x) * torch.sigmoid(layer(x))
            """,
        "a guard against the logarithm of zero changes the value": """
            import torch
            def score(x):
                return torch.log(torch.sigmoid(x) + 1e-6)
            """,
        "numbers of Python and arrays": """
            import math
            import numpy as np
            import torch
            def cdf(x):
                return x * 0.5 * (1.0 + math.erf(x / math.sqrt(2.0))), 1 / (1 + np.exp(-x))
            """,
        "a compiler fuses it": """
            import torch
            @torch.jit.script
            def swish(x):
                return x * torch.sigmoid(x)
            @torch.compile
            def gelu(x):
                return x * 0.5 * (1 + torch.erf(x / 1.41421))
            """,
        "the sum is taken over all there is": """
            import torch
            def normaliser(x):
                return torch.log(torch.exp(x).sum())
            """,
        "the sum does not line up with what it divides": """
            import torch
            def weights(x):
                return torch.exp(x) / torch.exp(x).sum(0)
            """,
        "the deviation of a sample is not what layer norm divides by": """
            import torch
            class LayerNorm(torch.nn.Module):
                def forward(self, x):
                    mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True)
                    return (x - mean) / torch.sqrt(var + 1e-5)
            """,
        "layer norm over channels that are not last": """
            import torch
            class LayerNorm2d(torch.nn.Module):
                def forward(self, x):
                    u = x.mean(1, keepdim=True)
                    s = (x - u).pow(2).mean(1, keepdim=True)
                    return (x - u) / torch.sqrt(s + 1e-6)
            """,
        "torch had no such norm before 2.4": """
            # target-torch: 2.3
            import torch
            def norm(x):
                return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
            """,
        "a slope that is learned": """
            import torch
            def swish(x, beta):
                return x * torch.sigmoid(beta * x)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every formula that one function computes."""
        for formula in formulas(script):
            if not script.target.has(formula.since) or _is_fused(script, formula):
                continue
            short = "F" if formula.module == _FUNCTIONAL else "torch"
            message = (
                f"`{script.brief(formula.node)}` passes over memory once per operation: `{short}.{formula.function}` "
                "does once"
            )
            yield Finding(self.code, script.span(formula.node), message, _fix(script, formula))


def _is_fused(script: Script, formula: Formula) -> bool:
    """Whether a compiler is handed the function around a formula."""
    function = script.function(formula.node)
    while function is not None:
        for each in function.decorators:
            named = each.decorator.func if isinstance(each.decorator, cst.Call) else each.decorator
            if script.name(named) in _FUSING:
                return True
        outer = script.parent(function)
        function = script.function(outer) if outer is not None else None
    return False


def _fix(script: Script, formula: Formula) -> Fix | None:
    alias = "F" if formula.module == _FUNCTIONAL else ""
    found = script.rewrite.importing(formula.module, alias=alias)
    if found is None or not formula.fixed or "#" in script.code(formula.node):
        return None
    word, importing = found
    bound = script.scopes.lookup(word.partition(".")[0], script.scopes.scope(formula.node))
    if bound is not None and bound is not script.scopes.module:
        return None
    operands = ", ".join((script.argument(formula.operand), *formula.rest))
    text = f"{word}.{formula.function}({operands})"
    kept = {name.value for name in script.within(formula.operand, cst.Name)}
    kept |= {
        part for rest in formula.rest for part in rest.replace(".", " ").replace("=", " ").split()
    }
    kept.add(word.partition(".")[0])
    gone = [name for name in script.within(formula.node, cst.Name) if name.value not in kept]
    imports = script.rewrite.without_imports(*gone)
    if imports is None:
        return None
    edits = script.rewrite.united(script.rewrite.replace(formula.node, text), imports, importing)
    return Fix.close(f"Call `{word}.{formula.function}`", edits, because="rounds otherwise")
