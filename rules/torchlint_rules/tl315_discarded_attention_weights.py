"""TL315: attention weights that are computed and thrown away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, How, Rule, Safety, Script, State

_LAYER: Final = "torch.nn.MultiheadAttention"
_POSITION: Final = 4
_HOOKS: Final = ("register_forward_hook", "register_module_forward_hook")


class DiscardedAttentionWeights(Rule):
    """
    ## What it does
    Flags calls of an `nn.MultiheadAttention` whose second result, the attention weights, is
    thrown away: `out, _ = mha(...)`, `mha(...)[0]`, or a name for it that nothing reads.

    ## Why it is slow
    By default the layer returns its weights, so it has to store them for every pair of positions
    and average them over the heads. With `need_weights=False` it calls
    `F.scaled_dot_product_attention`, which never stores them: 1.6 to 2.4 times as fast on a CPU.

    ## When not to
    Keep the weights where a hook reads them; a file that registers forward hooks is not flagged.

    ## Fix safety
    Close: the other kernel rounds otherwise, by about 1e-7. The layer still returns a pair, whose
    second is None. Unsafe where the layer has dropout, which may draw other elements.
    """

    code = "TL315"
    name = "discarded-attention-weights"
    summary = "attention weights are computed and thrown away"
    impact = "medium"
    safety = Safety.CLOSE
    articles = ("S2",)
    needs = ("MultiheadAttention",)
    since = (2, 0)

    invalid = {
        "bound to an underscore": """
              from torch import nn
              class Block(nn.Module):
                  def __init__(self, width):
                      super().__init__()
                      self.attn = nn.MultiheadAttention(width, 4, batch_first=True)
                  def forward(self, x):
            -         out, _ = self.attn(x, x, x)
            +         out, _ = self.attn(x, x, x, need_weights=False)
                      return x + out
            """,
        "the first of the pair is taken; dropout makes it unsafe": """
              from torch import nn
              class Layer(nn.Module):
                  def __init__(self, d_model, nhead, dropout=0.1):
                      super().__init__()
                      self.self_attn = nn.MultiheadAttention(d_model, nhead, dropout=dropout)
                  def forward(self, q, src, mask=None):
            -         return self.self_attn(q, q, value=src, attn_mask=mask)[0]
            +         return self.self_attn(q, q, value=src, attn_mask=mask, need_weights=False)[0]
            """,
        "a name that nothing reads": """
              from torch.nn import MultiheadAttention
              def run(q, k, v):
                  attend = MultiheadAttention(8, 2)
            -     y, weights = attend(q, k, v)
            +     y, weights = attend(q, k, v, need_weights=False)
                  return y
            """,
        "the pair has a name, and only its first is read": """
              from torch import nn
              class Block(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.mha = nn.MultiheadAttention(8, 2)
                  def forward(self, x):
            -         result = self.mha(x, x, x)
            +         result = self.mha(x, x, x, need_weights=False)
                      return result[0]
            """,
        "asked for in so many words, by keyword and by position": """
              from torch import nn
              mha = nn.MultiheadAttention(8, 2)
              def run(x, padding):
            -     a = mha(x, x, x, need_weights=True)[0]
            +     a = mha(x, x, x, need_weights=False)[0]
            -     b = mha(x, x, x, padding, True)[0]
            +     b = mha(x, x, x, padding, False)[0]
                  return a + b
            """,
        "what the call unpacks may hold the keyword, so there is no fix": """
              from torch import nn
              class Block(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.mha = nn.MultiheadAttention(8, 2)
                  def forward(self, x):
                      masks = {"attn_mask": None}
            !         return self.mha(x, x, x, **masks)[0]
            """,
        "one argument a line": """
              from torch import nn
              mha = nn.MultiheadAttention(8, 2)
              def run(x):
            -     out, _ = mha(
            +     out, _ = mha(
                      x,
                      x,
                      x,
            +         need_weights=False,
                  )
                  return out
            """,
    }
    valid = {
        "the weights are returned": """
            from torch import nn
            mha = nn.MultiheadAttention(8, 2)
            def run(x):
                out, weights = mha(x, x, x)
                return out, weights
            """,
        "the pair is returned whole": """
            from torch import nn
            mha = nn.MultiheadAttention(8, 2)
            def run(x):
                return mha(x, x, x)
            """,
        "the second of the pair is taken": """
            from torch import nn
            mha = nn.MultiheadAttention(8, 2)
            def run(x):
                result = mha(x, x, x)
                return result[0], result[1].mean()
            """,
        "they are not asked for": """
            from torch import nn
            mha = nn.MultiheadAttention(8, 2)
            def run(x, padding):
                out, _ = mha(x, x, x, need_weights=False)
                return mha(out, out, out, padding, False)[0]
            """,
        "whoever calls decides": """
            from torch import nn
            mha = nn.MultiheadAttention(8, 2)
            def run(x, need_weights, **kwargs):
                out, _ = mha(x, x, x, need_weights=need_weights)
                return mha(out, out, out, **kwargs)[0]
            """,
        "a hook reads what the layer puts out": """
            from torch import nn
            mha = nn.MultiheadAttention(8, 2)
            seen = []
            mha.register_forward_hook(lambda module, inputs, outputs: seen.append(outputs[1]))
            def run(x):
                return mha(x, x, x)[0]
            """,
        "an attention of one's own that returns a pair": """
            from torch import nn
            class MultiheadAttention(nn.Module):
                def forward(self, q, k, v):
                    return q, k
            mha = MultiheadAttention()
            def run(x):
                out, _ = mha(x, x, x)
                return out
            """,
        "a module-level name may be read elsewhere": """
            import torch
            from torch import nn
            x = torch.randn(4, 2, 8)
            out, weights = nn.MultiheadAttention(8, 2)(x, x, x)
            """,
        "before torch 2.0 both ways compute the weights": """
            # target-torch: 1.13
            from torch import nn
            mha = nn.MultiheadAttention(8, 2)
            def run(x):
                return mha(x, x, x)[0]
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every call of an attention layer of which only the first result is used."""
        if not any(script.calls(_LAYER)) or any(script.method_calls(*_HOOKS)):
            return
        for call in script.all(cst.Call):
            if len(call.args) < 2 or not _is_first_only(script, call):
                continue
            layer = script.value_of(call.func).node
            if not isinstance(layer, cst.Call) or script.name(layer.func) != _LAYER:
                continue
            wanted = script.call(call).argument("need_weights", _POSITION)
            if wanted.state is State.ABSENT or wanted.equals(True):
                yield self._finding(script, call, layer)

    def _finding(self, script: Script, call: cst.Call, layer: cst.Call) -> Finding:
        site = script.call(call)
        given = site.given("need_weights", _POSITION)
        fix = None
        if given is not None or not site.has_splat:
            edits = script.rewrite.set_argument(call, given, "need_weights", "False")
            title = "Pass `need_weights=False`"
            dropout = script.call(layer).argument("dropout", 2)
            if dropout.state is State.ABSENT or dropout.literal in (0, 0.0):
                fix = Fix.close(title, edits, because="another kernel rounds otherwise")
            else:
                because = "dropout may draw other elements under the same seed"
                fix = Fix.unsafe(title, edits, because=because)
        named = script.code(call.func)
        named = f"`{named}`" if "(" not in named else "the layer"
        message = (
            f"{named} stores attention weights that are thrown away: pass `need_weights=False`"
        )
        return Finding(self.code, script.span(call), message, fix)


def _is_first_only(script: Script, call: cst.Call) -> bool:
    """Whether of what a call returns only the first is used."""
    holder = script.parent(call)
    if isinstance(holder, cst.Subscript):
        return holder.value is call and _takes_first(holder)
    if not isinstance(holder, cst.Assign) or len(holder.targets) != 1:
        return False
    target = holder.targets[0].target
    if isinstance(target, cst.Name):
        uses = _uses(script, target)
        holders = [script.parent(use) for use in uses or ()]
        return bool(holders) and all(
            isinstance(each, cst.Subscript) and _takes_first(each) for each in holders
        )
    if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
        return False
    second = target.elements[1].value
    return isinstance(second, cst.Name) and _uses(script, second) == []


def _takes_first(node: cst.Subscript) -> bool:
    index = node.slice[0].slice if len(node.slice) == 1 else None
    return isinstance(index, cst.Index) and (
        isinstance(index.value, cst.Integer) and index.value.value == "0"
    )


def _uses(script: Script, target: cst.Name) -> list[cst.Name] | None:
    """Give what reads a name that an assignment binds; None where it may be read elsewhere."""
    binding = script.scopes.stored(target)
    function = script.function(target)
    if binding is None or binding.how not in (How.ASSIGN, How.UNPACKED):
        return None
    outward = script.scopes.scope(target).outward
    if (function is None and target.value != "_") or target.value in outward:
        return None
    return list(script.scopes.uses(binding, function or script.tree.module))
