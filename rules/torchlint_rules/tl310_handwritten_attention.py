"""TL310: attention written out with two products and a softmax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Attention, Finding, Kind, Role, Rule, Safety, Script, regex
from torchlint_rules._attention import FUNCTION, Rewriting, kept_where

_FUSED: Final = ("flash_attn", "memory_efficient_attention", "xformers", "flex_attention")
_CONSTANT: Final = regex(r"torch\.sqrt\(torch\.(?:FloatTensor|[tT]ensor)\(\[?[\w.]+\]?\)\)")


class HandwrittenAttention(Rule):
    """
    ## What it does
    Flags attention that is spelled out, `softmax(q @ k.transpose(-2, -1) / scale) @ v` with or
    without masks and dropout, in operators, `torch.matmul`, `torch.bmm` or `torch.einsum`.

    ## Why it is slow
    The scores of all pairs of positions are written to memory, read and written again for scaling,
    mask, softmax and dropout, and kept for the backward pass. `F.scaled_dot_product_attention` does
    it in one kernel that never stores them. On a CPU the forward pass was 4.3 to 10.9 times as
    fast, a causal training step 1.8 to 1.95 times; without a causal mask training on a CPU was
    slower, so the rule is silent in a script that trains on the CPU alone.

    ## When not to
    Keep it where the weights themselves are returned, plotted or changed, for scores with a
    learned bias, and where gradients are differentiated again: none of these is flagged. A boolean
    `attn_mask` says what is kept, so the condition of a `masked_fill` is turned round.

    ## Fix safety
    Close: rounding differs by about 1e-6. A row that is masked as a whole gives zeros instead of
    NaN. Unsafe with dropout above 0, which draws other elements, and with a mask that fills in a
    large negative number: a row that it masks as a whole used to give the mean of the values.
    """

    code = "TL310"
    name = "handwritten-attention"
    summary = "attention is written out"
    impact = "high"
    safety = Safety.CLOSE
    articles = ("S3.bonus",)
    needs = ("softmax", "Softmax")
    since = (2, 0)

    invalid = {
        "line by line, with the width of the keys": """
              import math
              import torch.nn.functional as F
              def attend(q, k, v):
            -     att = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
            -     att = F.softmax(att, dim=-1)
            -     return att @ v
            +     return F.scaled_dot_product_attention(q, k, v)
              print(math.pi)
            """,
        "a mask of what is kept, an import that has no other use": """
            - import math
              import torch.nn as nn
              import torch.nn.functional as F
              class Attention(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.drop = nn.Dropout(0.1)
                  def forward(self, q, k, v, mask):
            -         att = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
            -         att = att.masked_fill(mask == 0, float("-inf")).softmax(-1)
            -         y = self.drop(att) @ v
            +         y = F.scaled_dot_product_attention(
            +             q, k, v, attn_mask=mask != 0, dropout_p=self.drop.p if self.training else 0.0
            +         )
                      return y
            """,
        "the triangle of a buffer is a causal mask": """
            - import math
              import torch
              import torch.nn as nn
              from torch.nn import functional as F
              class CausalSelfAttention(nn.Module):
                  def __init__(self, n, width):
                      super().__init__()
                      self.register_buffer("bias", torch.tril(torch.ones(n, n)).view(1, 1, n, n))
                      self.attn_dropout = nn.Dropout(0.0)
                  def forward(self, q, k, v):
                      B, H, T, C = q.size()
                      # causal self-attention
            -         att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            -         att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float('-inf'))
            -         att = F.softmax(att, dim=-1)
            -         att = self.attn_dropout(att)
            -         y = att @ v  # (B, H, T, C)
            +         y = F.scaled_dot_product_attention(
            +             q, k, v, dropout_p=self.attn_dropout.p if self.training else 0.0, is_causal=True
            +         )  # (B, H, T, C)
                      return y.transpose(1, 2).contiguous().view(B, T, H * C)
            """,
        "in one expression, with a scale of its own": """
            - import torch
              import torch.nn.functional as F
              def attend(q, k, v, width):
            -     return torch.softmax(torch.matmul(q, k.mT) * width ** -0.5, dim=-1).matmul(v)
            +     return F.scaled_dot_product_attention(q, k, v, scale=width ** -0.5)
            """,
        "batched products, no scale, the softmax along the third dimension": """
            - import torch
              import torch.nn.functional as F
              def attend(q, k, v):
            -     weights = F.softmax(torch.bmm(q, k.transpose(1, 2)), dim=2)
            -     return torch.bmm(weights, v)
            +     return F.scaled_dot_product_attention(q, k, v, scale=1.0)
            """,
        "einsum, a softmax layer, the queries scaled first": """
            - import torch
            + import torch.nn.functional as F
              from torch import nn
              class Attention(nn.Module):
                  def __init__(self, width):
                      super().__init__()
                      self.scale = width ** -0.5
                      self.softmax = nn.Softmax(dim=-1)
                  def forward(self, q, k, v):
            -         q = q * self.scale
            -         sim = torch.einsum("b h i d, b h j d -> b h i j", q, k)
            -         attn = self.softmax(sim)
            -         return torch.einsum("b h i j, b h j d -> b h i d", attn, v)
            +         return F.scaled_dot_product_attention(q, k, v, scale=self.scale)
            """,
        "the mask may be missing": """
              import math
            - import torch
              import torch.nn.functional as F
              def attend(query, key, value, mask=None):
            -     d_k = query.size(-1)
            -     scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
            -     if mask is not None:
            -         scores = scores.masked_fill(mask == 0, -1e9)
            -     weights = F.softmax(scores, dim=-1)
            -     return torch.matmul(weights, value)
            +     return F.scaled_dot_product_attention(
            +         query, key, value, attn_mask=mask != 0 if mask is not None else None
            +     )
              print(math.pi)
            """,
        "a mask of what is left out, filled in place": """
              import torch.nn.functional as F
              def attend(q, k, v, padding):
            -     scores = q @ k.permute(0, 1, 3, 2)
            -     scores /= q.shape[-1] ** 0.5
            -     scores.masked_fill_(padding, -1e9)
            -     return scores.softmax(dim=-1) @ v
            +     return F.scaled_dot_product_attention(q, k, v, attn_mask=~padding)
            """,
        "a triangle made on the spot": """
            - import torch
              import torch.nn.functional as F
              def attend(q, k, v):
                  T, D = q.shape[-2:]
            -     tril = torch.tril(torch.ones(T, T, device=q.device))
            -     wei = q @ k.transpose(-2, -1) * D**-0.5
            -     wei = wei.masked_fill(tril == 0, float("-inf"))
            -     wei = F.softmax(wei, dim=-1)
            -     return wei @ v
            +     return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=D**-0.5)
            """,
        "the strict triangle of a buffer, under a name": """
              import torch
              import torch.nn.functional as F
              from torch import nn
              class Attention(nn.Module):
                  def __init__(self, n, dropout):
                      super().__init__()
                      self.dropout = nn.Dropout(dropout)
                      self.register_buffer("mask", torch.triu(torch.ones(n, n), diagonal=1))
                  def forward(self, queries, keys, values, count):
            -         scores = queries @ keys.transpose(2, 3)
            -         hidden = self.mask.bool()[:count, :count]
            -         scores.masked_fill_(hidden, -torch.inf)
            -         weights = torch.softmax(scores / keys.shape[-1] ** 0.5, dim=-1)
            -         weights = self.dropout(weights)
            -         return (weights @ values).transpose(1, 2)
            +         return F.scaled_dot_product_attention(
            +             queries, keys, values,
            +             dropout_p=self.dropout.p if self.training else 0.0,
            +             is_causal=True,
            +         ).transpose(1, 2)
            """,
        "a layer made for the softmax, under another name": """
              import torch
              import torch.nn.functional as F
              class Attention(torch.nn.Module):
                  def __init__(self, width):
                      super().__init__()
                      self.scale = width ** -0.5
                      self.attend = torch.nn.Softmax(dim=-1)
                  def forward(self, q, k, v):
            -         dots = torch.matmul(q, k.transpose(-1, -2)) * self.scale
            -
            -         attn = self.attend(dots)
            -
            -         out = torch.matmul(attn, v)
            +         out = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
                      return out
            """,
        "dropout as a function knows when it trains": """
              import torch.nn.functional as F
              class Attention:
                  def forward(self, q, k, v):
            -         w = F.softmax(q @ k.mT / q.size(-1) ** 0.5, dim=-1)
            -         w = F.dropout(w, p=0.1, training=self.training)
            -         return w @ v
            +         return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0)
            """,
        "a mask that is added would have to be of the type of the queries": """
              import torch
              import math
              def attend(q, k, v, attention_mask):
                  scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
                  scores = scores + attention_mask
            !     return scores.softmax(dim=-1) @ v
            """,
        "heads stand behind the positions, so they would have to be moved": """
              import torch
              def attend(q, k, v):
                  scores = torch.einsum("blhe,bshe->bhls", q, k)
            !     weights = torch.softmax(scores * 0.125, dim=-1)
                  return torch.einsum("bhls,bshd->blhd", weights, v)
            """,
        "a scale that is a tensor for no reason": """
              import torch
              class Attention(torch.nn.Module):
                  def __init__(self, width, device):
                      super().__init__()
                      self.scale = torch.sqrt(torch.FloatTensor([width])).to(device)
                  def forward(self, q, k, v):
                      energy = torch.matmul(q, k.permute(0, 1, 3, 2)) / self.scale
            !         attention = torch.softmax(energy, dim=-1)
                      return torch.matmul(attention, v)
            """,
        "operands in a list": """
              import torch
              def attend(query, key, value):
                  energy = torch.einsum("nqhd,nkhd->nhqk", [query, key])
            !     attention = torch.softmax(energy / (256 ** (1 / 2)), dim=3)
                  return torch.einsum("nhql,nlhd->nqhd", [attention, value])
            """,
        "whoever makes it decides on the scale of the queries": """
              import torch
              import torch.nn.functional as F
              class Attention(torch.nn.Module):
                  def __init__(self, temperature):
                      super().__init__()
                      self.temperature = temperature
                  def forward(self, q, k, v):
            -         scores = torch.matmul(q / self.temperature, k.transpose(2, 3))
            -         return torch.matmul(torch.softmax(scores, dim=-1), v)
            +         return F.scaled_dot_product_attention(q / self.temperature, k, v, scale=1.0)
            """,
        "a scale of the scores that may be a tensor": """
              import torch
              class Attention(torch.nn.Module):
                  def __init__(self, temperature):
                      super().__init__()
                      self.temperature = temperature
                  def forward(self, q, k, v):
                      scores = torch.matmul(q, k.transpose(2, 3)) / self.temperature
            !         return torch.matmul(torch.softmax(scores, dim=-1), v)
            """,
        "channels stand before the positions": """
              import torch
              from torch import einsum
              def attend(q, k, v):
                  sim = einsum("b h d i, b h d j -> b h i j", q, k)
            !     attn = sim.softmax(dim=-1)
                  return einsum("b h i j, b h d j -> b h i d", attn, v)
            """,
        "queries, keys and values are images, flattened": """
              import torch
              import torch.nn.functional as F
              def attend(q, k, v, b, c, n):
                  w_ = torch.bmm(q.reshape(b, c, n).permute(0, 2, 1), k)
                  w_ = w_ * (int(c) ** (-0.5))
            !     w_ = F.softmax(w_, dim=2)
                  w_ = w_.permute(0, 2, 1)
                  return torch.bmm(v, w_)
            """,
        "the mask is made on the way": """
              import torch
              from torch import einsum
              class CrossAttention(torch.nn.Module):
                  def __init__(self, width):
                      super().__init__()
                      self.scale = width ** -0.5
                  def forward(self, q, k, v, mask=None):
                      sim = einsum("b i d, b j d -> b i j", q, k) * self.scale
                      if mask is not None:
                          mask = mask.flatten(1)[:, None]
                          sim.masked_fill_(~mask, -torch.finfo(sim.dtype).max)
            !         attn = sim.softmax(dim=-1)
                      return einsum("b i j, b j d -> b i d", attn, v)
            """,
        "a function of another file masks the scores": """
              import torch
              import torch.nn.functional as F
              from util import mask_
              def attend(q, k, v, causal):
                  dot = torch.bmm(q, k.transpose(1, 2)) / q.size(-1) ** 0.5
                  assert dot.size() == (q.size(0), q.size(1), k.size(1))
                  if causal:
                      mask_(dot, maskval=float("-inf"), mask_diagonal=False)
            !     dot = F.softmax(dot, dim=2)
                  return torch.bmm(dot, v)
            """,
        "scaled where a scale is given": """
              import torch
              import torch.nn.functional as F
              def attend(Q, K, V, scale=None):
                  attention = torch.matmul(Q, K.permute(0, 2, 1))
                  if scale:
                      attention = attention * scale
            !     attention = F.softmax(attention, dim=-1)
                  return torch.matmul(attention, V)
            """,
        "two masks would have to be joined": """
              import torch
              import math
              def attend(q, k, v, mask, past):
                  scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
                  scores = scores.masked_fill(mask == 0, float("-inf"))
                  scores = scores.masked_fill(past == 0, float("-inf"))
            !     return scores.softmax(dim=-1) @ v
            """,
        "keys that a caller has transposed, a mask that multiplies": """
              import math
              import torch
              from torch import nn
              class Attention(nn.Module):
                  def __init__(self, scaled, kept):
                      super().__init__()
                      self.scaled, self.kept = scaled, kept
                      self.dropout = nn.Dropout(0.1)
                  def attend(self, q, k, v):
                      w = torch.matmul(q, k)
                      if self.scaled:
                          w = w / math.sqrt(v.size(-1))
                      kept = self.kept[:, :, : w.size(-2), : w.size(-1)]
                      w = w * kept + -1e9 * (1 - kept)
            !         w = nn.Softmax(dim=-1)(w)
                      w = self.dropout(w)
                      return torch.matmul(w, v)
            """,
        "before torch 2.1 the function takes no scale": """
            # target-torch: 2.0
              import torch
              def attend(q, k, v):
            !     return (q @ k.mT).softmax(dim=-1) @ v
            """,
        "the queries change before the product": """
              import torch
              import math
              def attend(q, k, v):
                  scores = q @ k.mT / math.sqrt(q.size(-1))
                  q = q + 1
            !     return scores.softmax(dim=-1) @ v + q
            """,
    }
    valid = {
        "the weights are returned as well": """
            import math
            import torch.nn.functional as F
            def attend(q, k, v):
                att = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(k.size(-1)), dim=-1)
                return att @ v, att
            """,
        "the weights are kept to be looked at": """
            import torch
            import math
            class Attention:
                def forward(self, q, k, v):
                    att = (q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))).softmax(-1)
                    self.weights = att.detach()
                    return att @ v
            """,
        "a learned bias on the positions": """
            import torch
            def attend(q, k, v, position_bias):
                return (q @ k.transpose(-2, -1) * 0.125 + position_bias).softmax(-1) @ v
            """,
        "a learned temperature": """
            import torch
            from torch import nn
            class Attention(nn.Module):
                def __init__(self, heads):
                    super().__init__()
                    self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
                def forward(self, q, k, v):
                    return ((q @ k.transpose(-2, -1)) * self.temperature).softmax(dim=-1) @ v
            """,
        "weights of single and double precision": """
            import torch
            def attend(q, k, v):
                return torch.softmax(q @ k.mT * 0.125, dim=-1, dtype=torch.float32).to(q.dtype) @ v
            """,
        "scores are raised to float32 for the softmax": """
            import torch
            def attend(q, k, v):
                weights = torch.softmax((q @ k.mT * 0.125).float(), dim=-1).type_as(q)
                return weights @ v
            """,
        "the softmax runs over the queries": """
            import torch
            def attend(q, k, v):
                return torch.softmax(q @ k.transpose(-2, -1), dim=-2) @ v
            """,
        "linear attention has a softmax on each side and none in between": """
            import torch
            def attend(q, k, v):
                q, k = q.softmax(dim=-1), k.softmax(dim=-2)
                return q @ (k.transpose(-2, -1) @ v)
            """,
        "the weights pass through relu": """
            import torch
            def attend(q, k, v):
                return (q @ k.transpose(-2, -1)).relu() @ v
            """,
        "scores of a layer, not of keys": """
            import torch
            def attend(scorer, memory):
                weights = torch.softmax(scorer(memory).transpose(1, 2), dim=-1)
                return torch.bmm(weights, memory)
            """,
        "products of what is not called queries and keys, a mask that leaves scores in": """
            import torch
            def attend(q, k, v, a, b, mask):
                first = torch.matmul(a, b).softmax(dim=-1) @ v
                scores = q @ k.mT
                return first, (scores * mask + -1.0 * (1 - mask)).softmax(dim=-1) @ v
            """,
        "filled with a small number, the mask takes nothing out": """
            import torch
            def attend(q, k, v, mask):
                return (q @ k.mT).masked_fill(mask == 0, -1.0).softmax(dim=-1) @ v
            """,
        "the values stand left, the weights are not turned": """
            import torch
            def attend(q, k, v):
                return torch.bmm(v, torch.softmax(torch.bmm(q, k.transpose(1, 2)), dim=-1))
            """,
        "the weights are turned before they weigh": """
            import torch
            def attend(q, k, v):
                return torch.bmm(torch.softmax(torch.bmm(q, k.mT), dim=-1).permute(0, 2, 1), v)
            """,
        "heads talk to each other before and after the softmax": """
            import torch
            def attend(q, k, v, mix, mix_back):
                att = mix((q @ k.transpose(-2, -1)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
                att = mix_back(att.softmax(dim=-1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
                return att @ v
            """,
        "the fused function is there, this is its stand-in": """
            import math
            import torch.nn.functional as F
            from torch import nn
            class Attention(nn.Module):
                def forward(self, q, k, v):
                    if hasattr(F, "scaled_dot_product_attention"):
                        return F.scaled_dot_product_attention(q, k, v)
                    return (q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))).softmax(-1) @ v
            """,
        "the gradient is differentiated again, which fused kernels cannot": """
            import torch
            def attend(q, k, v):
                return (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v
            def penalty(x, y):
                return torch.autograd.grad(y.sum(), x, create_graph=True)[0].norm()
            """,
        "it trains on the CPU alone, where the fused function is slower": """
            import torch
            def attend(q, k, v):
                return (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v
            w = torch.ones(4, 8, requires_grad=True)
            optimizer = torch.optim.SGD([w], lr=0.1)
            for step in range(10):
                loss = attend(w, w, w).sum()
                loss.backward()
                optimizer.step()
            """,
        "before torch 2.0 there is no such function": """
            # target-torch: 1.13
            import torch
            def attend(q, k, v):
                return (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every attention that is written out and can be handed to one function."""
        for attention in script.attentions():
            if _trains_on_host(script) or "create_graph" in script.source.text:
                return
            hint = _hint(script, attention)
            if hint is None or _has_fused(script, attention):
                continue
            fix = None if hint else Rewriting(script, attention).fix()
            message = (
                "this attention stores a weight for every pair of positions: "
                f"`F.{FUNCTION}`{hint} does without"
            )
            yield Finding(self.code, script.span(attention.softmax), message, fix)


def _trains_on_host(script: Script) -> bool:
    return not script.can_use_accelerator and bool(script.loops(Role.TRAIN_BATCH, Role.EPOCH))


def _has_fused(script: Script, attention: Attention) -> bool:
    """Whether the class or function at hand has a fused attention beside the one written out."""
    around = script.scopes.class_of(attention.softmax) or script.function(attention.softmax)
    if around is None:
        return False
    if any(word in script.code(around) for word in _FUSED):
        return True
    named = (
        node
        for node in script.within(around, cst.Attribute)
        if node.attr.value == FUNCTION and script.definition(node) is None
    )
    quoted = (text for text in script.within(around, cst.SimpleString) if FUNCTION in text.value)
    return next(named, None) is not None or next(quoted, None) is not None


def _hint(script: Script, attention: Attention) -> str | None:
    """Say what else the call needs that no fix can give; None where it is no such attention."""
    factor = attention.factor
    hint = ""
    if factor is not None and not script.is_number(factor):
        named = script.code(factor)
        if "mask" in named.lower():
            return None
        hint = f" with `scale={'1 / ' if attention.divides else ''}{named}`"
        if script.kind(factor) in (Kind.TENSOR, Kind.LOSS, Kind.MODULE):
            if not _CONSTANT.match(script.code_of(factor)):
                return None
            hint = f" with `{named}` as a number for its `scale`"
    for mask in attention.masks:
        condition = script.code(mask.condition)
        if mask.fill is None:
            if "mask" not in condition.lower():
                return None
            hint = f" with `attn_mask={condition}`"
        elif script.scores.lowest(mask) is None:
            if script.value_of(mask.fill).is_literal or script.is_number(mask.fill):
                return None
            hint = f" with `attn_mask={kept_where(script, mask)}`"
    if len(attention.masks) > 1:
        hint = " with one `attn_mask` that joins both masks"
    if not attention.heads_apart:
        return " on tensors whose last dimensions are positions and width"
    return hint or ("" if attention.plain else " with its `scale` or `attn_mask`")
