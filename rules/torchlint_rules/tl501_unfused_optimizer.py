"""TL501: an optimizer that could step in one kernel and does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Finding, Fix, Note, Rule, Safety, Script, State

_OWNERS: Final = {
    "torch.optim.Adam": (2, 0),
    "torch.optim.AdamW": (2, 0),
    "torch.optim.SGD": (2, 3),
    "torch.optim.Adagrad": (2, 9),
}
"""Since which torch each has a fused kernel on CUDA; since 2.4 all have one on the CPU."""
_TESTS: Final = ("pytest", "unittest")
_OTHER_TENSORS: Final = (
    "torch_xla",
    "higher",
    "torch.distributed.tensor",
    "torch.distributed._tensor",
    "torch.distributed._composable",
    "torch.distributed.fsdp.fully_shard",
)
"""Imports after which parameters may be tensors that the fused kernels do not take."""
_SHARDED: Final = ("torch.distributed.fsdp", "torch.distributed._fsdp", "fairscale", "apex")
_COMPLEX: Final = frozenset("cfloat cdouble complex64 complex128".split())
_CHOICES: Final = ("fused", "foreach", "differentiable")
_TITLE: Final = "Pass `fused={}`"


class UnfusedOptimizer(Rule):
    """
    ## What it does
    Flags `Adam`, `AdamW`, `Adagrad`, and `SGD` with momentum or weight decay, that are made without
    `fused=True`. Plain `SGD` does one operation a parameter: there is nothing to fuse.

    ## Why it is slow
    An Adam step is a dozen operations, and by default each of them is a pass over all parameters:
    parameter by parameter on a CPU, in a few kernels on a GPU. The fused kernel reads and writes
    every value once. On a CPU, steps were 2.5 to 6.7 times as fast with Adam and 1.3 to 6.7 times
    with SGD. With a `GradScaler` it also saves the wait for the check for infinities.

    ## When not to
    Gradients that are sparse, parameters that are complex, on a TPU or split as `DTensor` have no
    fused kernel. `foreach=True` and `differentiable=True` exclude it.

    ## Fix safety
    Close: the fused kernel rounds otherwise; parameters differed by 1e-7 to 7e-6 after 50 steps.
    Before torch 2.4, unsafe: parameters have to be on the GPU when the optimizer is made.
    There is no fix where optimizer state is loaded, since a state that was saved without `fused`
    switches it off again, and then a `GradScaler` fails with an `AssertionError`: pass `fused=True`,
    and after loading set `group["fused"] = True` for every group of `optimizer.param_groups`.
    """

    code = "TL501"
    name = "unfused-optimizer"
    summary = "the optimizer steps operation by operation"
    impact = "medium"
    safety = Safety.CLOSE
    articles = ("S3.5",)
    needs = ("Adam", "SGD", "Adagrad")
    since = (2, 0)

    invalid = {
        "one tensor: Adam does a dozen operations on it": """
              import torch
              def stylise(image, steps):
            -     optimizer = torch.optim.Adam([image.requires_grad_()], lr=0.02)
            +     optimizer = torch.optim.Adam([image.requires_grad_()], lr=0.02, fused=True)
            """,
        "Adam": """
              import torch
              def main(model, loader):
            -     optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            +     optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
                  for x, y in loader:
                      optimizer.zero_grad()
                      model(x, y).backward()
                      optimizer.step()
            """,
        "AdamW with every default": """
              from torch.optim import AdamW
              def main(model):
            -     optimizer = AdamW(model.parameters())
            +     optimizer = AdamW(model.parameters(), fused=True)
            """,
        "SGD with momentum, one argument a line": """
              from torch import optim
              def main(model, args):
            -     optimizer = optim.SGD(
            +     optimizer = optim.SGD(
                      model.parameters(),
                      lr=args.lr,
                      momentum=0.9,
            +         fused=True,
                  )
            """,
        "SGD with weight decay, by position": """
              from torch import optim
              def main(model):
            -     optimizer = optim.SGD(model.parameters(), 0.1, 0, 0, 1e-4)
            +     optimizer = optim.SGD(model.parameters(), 0.1, 0, 0, 1e-4, fused=True)
            """,
        "SGD whose momentum is set for some groups": """
              from torch import optim
              def main(model):
            -     optimizer = optim.SGD(
            +     optimizer = optim.SGD(
                      [{"params": model.a.parameters(), "momentum": 0.9},
                       {"params": model.b.parameters()}],
            -         lr=0.1)
            +         lr=0.1,
            +         fused=True)
            """,
        "Adagrad on a CPU": """
              import torch
              def main(model):
            -     optimizer = torch.optim.Adagrad(model.parameters())
            +     optimizer = torch.optim.Adagrad(model.parameters(), fused=True)
            """,
        "the class under a name of its own, through the module's file": """
              import torch.optim.adam as adam
              Adam = adam.Adam
              def main(a, b):
            -     optimizer = Adam(list(a.parameters()) + list(b.parameters()), lr=1e-3)
            +     optimizer = Adam(list(a.parameters()) + list(b.parameters()), lr=1e-3, fused=True)
            """,
        "either of two, and the arguments come from a dictionary in sight": """
              from torch import optim
              def main(model, kind):
                  options = dict(lr=1e-3, weight_decay=0.1)
                  if kind == "adam":
            -         optimizer = optim.Adam(model.parameters(), **options)
            +         optimizer = optim.Adam(model.parameters(), **options, fused=True)
                  else:
            -         optimizer = optim.SGD(model.parameters(), **options)
            +         optimizer = optim.SGD(model.parameters(), **options, fused=True)
            """,
        "two networks": """
              from torch import optim
              class Trainer:
                  def __init__(self, g, d):
            -         self.optG = optim.Adam(g.parameters(), lr=2e-4, betas=(0.5, 0.999))
            +         self.optG = optim.Adam(g.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
            -         self.optD = optim.Adam(d.parameters(), lr=2e-4, betas=(0.5, 0.999))
            +         self.optD = optim.Adam(d.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
                  def step(self, loss):
                      loss.backward()
                      self.optG.step()
            """,
        "with a gradient scaler that unscales before the norm is clipped": """
              import torch
              def main(model, loader):
            -     optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            +     optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
                  scaler = torch.amp.GradScaler("cuda")
                  for x, y in loader:
                      scaler.scale(model(x, y)).backward()
                      scaler.unscale_(optimizer)
                      torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                      scaler.step(optimizer)
                      scaler.update()
            """,
        "with a gradient scaler, gradients that are read stay scaled: unsafe": """
              import torch
              def main(model, loader):
            -     optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            +     optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
                  scaler = torch.amp.GradScaler("cuda")
                  for x, y in loader:
                      scaler.scale(model(x, y)).backward()
                      scaler.step(optimizer)
                      scaler.update()
                      print(model.head.weight.grad.norm())
            """,
        "its state is loaded: reported, with what to set again": """
              import torch
              def main(model, path):
            !     optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
                  checkpoint = torch.load(path)
                  optimizer.load_state_dict(checkpoint["optimizer"])
            """,
        "its state is loaded by a function of another file: reported": """
              import torch
              from utils import load_checkpoint
              def main(model, path):
            !     optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
                  load_checkpoint(path, model, optimizer)
            """,
        "whoever steps it may load its state: unsafe": """
              import torch
              class Net(torch.nn.Module):
                  def configure_optimizers(self, config):
            -         optimizer = torch.optim.AdamW(self.parameters(), lr=config.lr)
            +         optimizer = torch.optim.AdamW(self.parameters(), lr=config.lr, fused=True)
                      return optimizer
            """,
        "a framework owns the loop, and loads the state: reported": """
              import lightning as L
              import torch
              class Net(L.LightningModule):
                  def configure_optimizers(self):
            !         return torch.optim.Adam(self.parameters(), lr=1e-3)
            """,
        "parameters are sharded: reported": """
              import torch
              from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
              def main(model):
                  model = FSDP(model)
            !     optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            """,
        "for torch before 2.4 the GPU decides: unsafe": """
              # target-torch: 2.1
              import torch
              def main(model):
                  model.cuda()
            -     optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            +     optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=torch.cuda.is_available())
            """,
    }
    valid = {
        "fused already, or a flag decides": """
            import torch
            def main(model, args, use_fused):
                a = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
                b = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=False)
                c = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=args.fused)
                extra = dict(fused=True) if use_fused else dict()
                d = torch.optim.AdamW(model.parameters(), lr=1e-3, **extra)
            """,
        "a splat may carry it": """
            import torch
            def build(model, **kwargs):
                return torch.optim.AdamW(model.parameters(), **kwargs)
            """,
        "another way to step was chosen, which excludes it": """
            import torch
            def main(model):
                a = torch.optim.Adam(model.parameters(), foreach=True)
                b = torch.optim.Adam(model.parameters(), differentiable=True)
                c = torch.optim.Adam(model.parameters(), foreach=False)
            """,
        "no fused kernel for these": """
            from torch import optim
            def main(model):
                return (
                    optim.RMSprop(model.parameters()), optim.Adadelta(model.parameters()),
                    optim.NAdam(model.parameters()), optim.LBFGS(model.parameters()),
                )
            """,
        "plain SGD has one operation a parameter": """
            from torch import optim
            def main(model):
                a = optim.SGD(model.parameters(), lr=0.1)
                b = optim.SGD(model.parameters(), lr=0.1, momentum=0.0, weight_decay=0)
            """,
        "sparse gradients have no fused kernel": """
            from torch import nn, optim
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.table = nn.EmbeddingBag(1000, 16, sparse=True)
            net = Net()
            optimizer = optim.Adagrad(net.parameters(), lr=0.1)
            """,
        "complex parameters have no fused kernel": """
            import torch
            class Spectral(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.weight = torch.nn.Parameter(torch.rand(4, 4, dtype=torch.cfloat))
            optimizer = torch.optim.Adam(Spectral().parameters())
            """,
        "on a TPU": """
            import torch
            import torch_xla.core.xla_model as xm
            def main(model):
                optimizer = torch.optim.Adam(model.to(xm.xla_device()).parameters())
            """,
        "parameters are DTensors": """
            import torch
            from torch.distributed.fsdp import fully_shard
            def main(model):
                fully_shard(model)
                optimizer = torch.optim.Adam(model.parameters())
            """,
        "a class of one's own with the name": """
            import torch
            class Adam(torch.optim.Optimizer):
                pass
            def main(model):
                optimizer = Adam(model.parameters(), lr=1e-3)
            """,
        "a test": """
            import torch
            def test_step(model):
                optimizer = torch.optim.Adam(model.parameters())
                optimizer.step()
            """,
        "helpers of tests": """
            import pytest
            import torch
            def fitted(model):
                return torch.optim.Adam(model.parameters())
            """,
        "on a CPU there is no fused kernel before torch 2.4": """
            # target-torch: 2.3
            import torch
            def main(model):
                optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            """,
        "SGD has none on the GPU before torch 2.3": """
            # target-torch: 2.2
            import torch
            def main(model):
                model.cuda()
                optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
            """,
        "Adagrad has none on Apple's GPUs": """
            import torch
            device = torch.accelerator.current_accelerator()
            def main(model):
                optimizer = torch.optim.Adagrad(model.to(device).parameters(), lr=1e-3)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every optimizer that has a fused kernel and was not told to use it, or not to."""
        sites = [site for site in script.calls(*_OWNERS) if _undecided(site)]
        sites = [site for site in sites if site.node.args and not _in_test(script, site.node)]
        if not sites or script.imports(*_OTHER_TENSORS, *_TESTS) or _has_odd_parameters(script):
            return
        for site in sites:
            value = _value(script, site)
            if value is not None:
                yield self._finding(script, site, value)

    def _finding(self, script: Script, site: CallSite, value: str) -> Finding:
        label = script.optimizers.label(site.node)
        message = f"{label} steps operation by operation"
        advice = f"pass `fused={value}` to `{script.code(site.node.func)}`"
        restored = script.optimizers.restores
        notes: tuple[Note, ...] = ()
        fix = None
        if restored:
            name = label.strip("`") if label.startswith("`") else "optimizer"
            again = f'`for group in {name}.param_groups: group["fused"] = True`'
            advice += f", and again where its state was loaded: {again}"
            notes = tuple(
                Note(script.span(each), "a state saved without `fused` switches it off")
                for each in restored
            )
        elif script.framework == "none" and not script.imports(*_SHARDED):
            fix = _fix(script, site, value)
        return Finding(self.code, script.span(site.node), f"{message}: {advice}", fix, notes)


def _undecided(site: CallSite) -> bool:
    """Whether nobody chose how the optimizer steps."""
    if any(site.argument(name).state is not State.ABSENT for name in _CHOICES):
        return False
    return site.name != "torch.optim.SGD" or not _is_plain(site)


def _is_plain(site: CallSite) -> bool:
    """Whether an SGD has neither momentum nor weight decay."""
    groups = site.given("params", 0)
    if groups is not None and any(word in site.script.code(groups) for word in ("mom", "decay")):
        return False
    return all(
        value.state is State.ABSENT or value.equals(0) or value.equals(0.0)
        for value in (site.argument("momentum", 2), site.argument("weight_decay", 4))
    )


def _in_test(script: Script, node: cst.CSTNode) -> bool:
    return any(
        isinstance(outer, cst.FunctionDef) and outer.name.value.startswith("test_")
        for outer in script.tree.ancestors(node)
    )


def _has_odd_parameters(script: Script) -> bool:
    """Whether some parameters may be complex, or get sparse gradients."""
    for call in script.calls("torch.nn.Embedding", "torch.nn.EmbeddingBag"):
        sparse = call.argument("sparse")
        if sparse.state is not State.ABSENT and not sparse.equals(False):
            return True
    return any(script.functions.attributes(word) for word in _COMPLEX)


def _value(script: Script, site: CallSite) -> str | None:
    """Give what `fused` is to be, None where the versions in question lack it."""
    adagrad = site.name == "torch.optim.Adagrad"
    if (adagrad or not script.target.has((2, 6))) and script.may_be_mps:
        return None
    on_gpu = script.target.has(_OWNERS[site.name or ""])
    if script.target.has((2, 4)):
        return "True" if on_gpu or not script.can_use_accelerator else None
    return "torch.cuda.is_available()" if on_gpu and script.can_use_accelerator else None


def _fix(script: Script, site: CallSite, value: str) -> Fix | None:
    title = _TITLE.format(value)
    edits = script.rewrite.with_keyword(site.node, "fused", value)
    if value != "True":
        found = script.rewrite.importing("torch")
        if found is None:
            return None
        word, imported = found
        edits = script.rewrite.with_keyword(site.node, "fused", value.replace("torch", word, 1))
        because = "parameters have to be on the GPU when the optimizer is made"
        return Fix.unsafe(title, edits, imported, because=because)
    if _reads_scaled_gradients(script):
        because = "gradients stay scaled by the scaler, and this file reads them"
        return Fix.unsafe(title, edits, because=because)
    if script.optimizers.hidden(site.node):
        because = "a state that another file loads may switch it off, and stop a `GradScaler`"
        return Fix.unsafe(title, edits, because=because)
    return Fix.close(title, edits, because="the fused kernel rounds otherwise")


def _reads_scaled_gradients(script: Script) -> bool:
    """Whether a scaler is used without `unscale_` where gradients are looked at."""
    scalers = script.calls("torch.amp.GradScaler", "torch.cuda.amp.GradScaler")
    if next(scalers, None) is None or next(script.method_calls("unscale_"), None) is not None:
        return False
    return any(
        node.attr.value == "grad" and script.name(node) is None
        for node in script.all(cst.Attribute)
    )
