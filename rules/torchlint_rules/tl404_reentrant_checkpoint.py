"""TL404: activation checkpoints that do not say how they recompute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, How, Rule, Safety, Script, State

_CHECKPOINTS: Final = frozenset(
    f"torch.utils.checkpoint.{word}" for word in ("checkpoint", "checkpoint_sequential")
)
_FROZEN: Final = (
    "a block whose input needs no gradient was silently not trained by the reentrant variant, and "
    "now is"
)
_DEPTH: Final = 8


class ReentrantCheckpoint(Rule):
    """
    ## What it does
    Flags `checkpoint` and `checkpoint_sequential` of `torch.utils.checkpoint` that are called
    without `use_reentrant`.

    ## Why it is slow
    Without it torch warns and takes the reentrant variant, which recomputes a block in an autograd
    run of its own, whole even when only a part is needed. Measured on a CPU, a step with
    `use_reentrant=False` was 1.03 to 1.33 times faster. The reentrant variant also gives no
    gradients to a block whose inputs need none, and takes no keyword arguments.

    ## When not to
    Pass `use_reentrant=True` where a block's forward is not deterministic on purpose, and the
    check that the variant without reentrance makes would fail.

    ## Fix safety
    Exact where the file shows that what a block gets was computed by layers: the gradients are the
    same. Unsafe where it may be the input of the network: a block that the reentrant variant left
    untrained is trained then. There is no fix where a `**` splat may carry the argument.
    """

    code = "TL404"
    name = "reentrant-checkpoint"
    summary = "the checkpoint falls back to the slower reentrant variant, with a warning"
    impact = "low"
    safety = Safety.EXACT
    articles = ("S1", "S3.8")
    needs = ("utils.checkpoint", "utils import checkpoint")
    since = (1, 11)

    invalid = {
        "blocks behind an embedding": """
              from torch import nn
              from torch.utils.checkpoint import checkpoint
              class Net(nn.Module):
                  def forward(self, ids):
                      x = self.embed(ids)
                      x = x.flatten(1)
                      for block in self.blocks:
            -             x = checkpoint(block, x)
            +             x = checkpoint(block, x, use_reentrant=False)
                      return self.head(x)
            """,
        "the module under an alias, a sequence of layers": """
              import torch.utils.checkpoint as ckpt
              from torch import nn
              class Net(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.stem = nn.Linear(8, 8)
                      self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
                  def forward(self, x):
                      x = self.stem(x) + 1
            -         y = ckpt.checkpoint_sequential(self.body, 2, x)
            +         y = ckpt.checkpoint_sequential(self.body, 2, x, use_reentrant=False)
            -         return ckpt.checkpoint(
            -             self.body,
            -             y,  # again
            -         )
            +         return ckpt.checkpoint(
            +             self.body,
            +             y,  # again
            +             use_reentrant=False,
            +         )
            """,
        "with the full name; what is handed in may be the batch": """
              import torch
              import torch.utils.checkpoint
              def forward(model, x):
            -     x = torch.utils.checkpoint.checkpoint(model.layer1, x)
            +     x = torch.utils.checkpoint.checkpoint(model.layer1, x, use_reentrant=False)
                  return model.layer2(x)
            """,
        "under a name of its own, with arguments taken apart": """
              from torch.utils.checkpoint import checkpoint as cp
              def forward(block, *args):
            -     return cp(block, *args, preserve_rng_state=False)
            +     return cp(block, *args, preserve_rng_state=False, use_reentrant=False)
            """,
        "a partial object that does not say it either": """
              from functools import partial
              from torch.utils.checkpoint import checkpoint
            - recompute = partial(checkpoint, preserve_rng_state=False)
            + recompute = partial(checkpoint, preserve_rng_state=False, use_reentrant=False)
              def forward(block, x):
                  return recompute(block, x)
            """,
    }
    valid = {
        "it is said, either way": """
            import torch.utils.checkpoint as ckpt
            def forward(block, x, flag):
                x = ckpt.checkpoint(block, x, use_reentrant=False)
                x = ckpt.checkpoint(block, x, use_reentrant=True)
                return ckpt.checkpoint_sequential(block, 2, x, use_reentrant=flag)
            """,
        "a partial object says it": """
            from functools import partial
            from torch.utils.checkpoint import checkpoint
            checkpoint_once = partial(checkpoint, use_reentrant=False)
            checkpoint = partial(checkpoint, use_reentrant=False)
            def forward(block, x):
                return checkpoint(block, checkpoint_once(block, x))
            """,
        "a call of a partial object says it": """
            from functools import partial
            from torch.utils.checkpoint import checkpoint
            recompute = partial(checkpoint, preserve_rng_state=False)
            def forward(block, x):
                return recompute(block, x, use_reentrant=False)
            """,
        "a splat may carry it": """
            from torch.utils.checkpoint import checkpoint
            def forward(block, x, **kwargs):
                options = {"use_reentrant": False}
                return checkpoint(block, checkpoint(block, x, **options), **kwargs)
            """,
        "a library that sets it for its models": """
            import torch.utils.checkpoint
            from transformers import AutoModelForCausalLM
            model = AutoModelForCausalLM.from_pretrained("gpt2")
            model.gradient_checkpointing_enable()
            """,
        "a checkpoint is also a file": """
            import torch
            import torch.utils.checkpoint
            def checkpoint(model, path):
                torch.save({"model": model.state_dict()}, path)
            def train(model):
                checkpoint(model, "last.pt")
            """,
        "a function of a library of its own": """
            import torch.utils.checkpoint
            from fairscale.nn import checkpoint_wrapper
            from deepspeed.checkpointing import checkpoint
            def forward(block, x):
                return checkpoint(block, checkpoint_wrapper(block)(x))
            """,
        "torch before 1.11 does not know it": """
            # target-torch: 1.10
            from torch.utils.checkpoint import checkpoint
            def forward(block, x):
                return checkpoint(block, x)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every checkpoint that leaves it to the default how to recompute."""
        said = any(
            arg.keyword is not None and arg.keyword.value == "use_reentrant"
            for arg in script.all(cst.Arg)
        )
        for site in script.calls(*_CHECKPOINTS, "functools.partial"):
            first = site.node.args[0].value if site.node.args else None
            partial = site.name == "functools.partial"
            if first is None or (partial and (said or script.name(first) not in _CHECKPOINTS)):
                continue
            if site.argument("use_reentrant").state is not State.ABSENT:
                continue
            what = script.code(first if partial else site.node.func)
            edits = script.rewrite.with_keyword(site.node, "use_reentrant", "False")
            fix = Fix.exact("Pass use_reentrant=False", edits)
            if partial or not _computed(script, site.node, _DEPTH):
                fix = Fix.unsafe("Pass use_reentrant=False", edits, because=_FROZEN)
            message = (
                f"`{what}` without `use_reentrant` warns and recomputes by the slower reentrant "
                "variant: pass `use_reentrant=False`"
            )
            yield Finding(self.code, script.span(site.node), message, fix)


def _computed(script: Script, call: cst.Call, depth: int) -> bool:
    """Whether something that a checkpointed block gets surely came out of layers that train."""
    if "requires_grad" in script.source.text:
        return False
    return any(
        arg.keyword is None and not arg.star and _by_layers(script, arg.value, depth)
        for arg in call.args[1:]
    )


def _by_layers(script: Script, node: cst.BaseExpression, depth: int) -> bool:
    """Whether a value surely came out of a layer."""
    if not depth:
        return False
    if isinstance(node, cst.Name):
        found = [
            binding.how is How.ASSIGN
            and binding.value is not None
            and _by_layers(script, binding.value, depth - 1)
            for binding in script.scopes.reaching(node)
            if not _recomputed(script, binding.value)
        ]
        return bool(found) and all(found)
    if isinstance(node, cst.BinaryOperation):
        return _by_layers(script, node.left, depth - 1) or _by_layers(script, node.right, depth - 1)
    if not isinstance(node, cst.Call):
        return False
    if _recomputed(script, node):
        return _computed(script, node, depth - 1)
    if script.module_call(node) is not None:
        return True
    func = node.func
    if not isinstance(func, cst.Attribute) or script.name(func) is not None:
        return False
    if isinstance(func.value, cst.Name) and func.value.value == "self":
        return script.definition(func) is None
    return _by_layers(script, func.value, depth - 1)


def _recomputed(script: Script, node: cst.BaseExpression | None) -> bool:
    """Whether a value is what a checkpoint gives."""
    return isinstance(node, cst.Call) and script.name(node.func) in _CHECKPOINTS
