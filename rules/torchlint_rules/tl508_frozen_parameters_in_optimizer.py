"""TL508 frozen-parameters-in-optimizer."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import Finding, Fix, Note, Rule, Safety, Script


class FrozenParametersInOptimizer(Rule):
    """
    ## What it does
    Flags an optimizer that is made of all parameters of a network of which a part was frozen
    before, and the misspelling `require_grad`, which freezes nothing.

    ## Why it is slow
    Each step and each `zero_grad()` walks over parameters that never have a gradient: 1.03 to
    1.17 times the time of a step was measured. Frozen batch norm goes on updating its running
    statistics in training mode, by the way: call `eval()` on what should rest.

    ## When not to
    Keep them if you thaw layers later in the run, or continue from checkpoints of the optimizer:
    its groups must have the sizes that were saved. The rule is silent where the file shows either.

    ## Fix safety
    Exact: an optimizer passes over parameters without gradients, so what is left steps as before.
    To spell `requires_grad` right is unsafe, for then something really is frozen.
    """

    code = "TL508"
    name = "frozen-parameters-in-optimizer"
    summary = "the optimizer holds parameters that never learn"
    impact = "low"
    safety = Safety.EXACT
    articles = ("S2",)
    needs = ("requires_grad", "require_grad")

    invalid = {
        "the backbone is frozen, parameter by parameter": """
              import torch
              for p in model.backbone.parameters():
                  p.requires_grad = False
            - optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            + optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
            """,
        "in one call, and the optimizer by keyword": """
              from torch import optim
              net.encoder.requires_grad_(False)
            - opt = optim.SGD(lr=0.1, params=net.parameters())
            + opt = optim.SGD(lr=0.1, params=[p for p in net.parameters() if p.requires_grad])
            """,
        "all of it is frozen, then it gets a new head": """
              import torch
              import torchvision
              model = torchvision.models.resnet18(weights="DEFAULT")
              for param in model.parameters():
                  param.requires_grad = False
              model.fc = torch.nn.Linear(512, 2)
              model = model.to(device)
            - optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            + optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)
            """,
        "all of it is frozen, then a part thaws before the optimizer is made": """
              import torch
              for param in model.parameters():
                  param.requires_grad_(False)
              for param in model.classifier.parameters():
                  param.requires_grad_(True)
            - optimizer = torch.optim.AdamW(model.parameters())
            + optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
            """,
        "some parameters, by their names": """
              import torch
              for name, param in model.named_parameters():
                  if "adapter" not in name:
                      param.requires_grad = False
            - optimizer = torch.optim.AdamW(model.parameters())
            + optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
            """,
        "as a test says": """
              import torch
              for name, param in model.named_parameters():
                  param.requires_grad = "lora" in name
            - optimizer = torch.optim.AdamW(model.parameters())
            + optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
            """,
        "the first layers": """
              import torch
              for layer in list(model.children())[:6]:
                  for p in layer.parameters():
                      p.requires_grad = False
            - optimizer = torch.optim.Adagrad(model.parameters())
            + optimizer = torch.optim.Adagrad([p for p in model.parameters() if p.requires_grad])
            """,
        "one weight": """
              import torch
              model.embedding.weight.requires_grad = False
            - optimizer = torch.optim.Adam(model.parameters())
            + optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
            """,
        "by a function of this file": """
              import torch
              def freeze(module):
                  for p in module.parameters():
                      p.requires_grad = False
              def main():
                  net = build()
                  freeze(net.backbone)
                  net = torch.nn.parallel.DistributedDataParallel(net)
            -     optimizer = torch.optim.Adam(net.parameters())
            +     optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad])
            """,
        "in the network's own class": """
              import torch
              from torch import nn
              class Net(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.backbone = load_backbone()
                      self.head = nn.Linear(8, 2)
                      for p in self.backbone.parameters():
                          p.requires_grad = False
              model = Net().cuda()
            - optimizer = torch.optim.Adam(model.parameters())
            + optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
            """,
        "an object keeps both": """
              import torch
              class Trainer:
                  def __init__(self, net):
                      self.net = net
                      self.net.stem.requires_grad_(False)
            -         self.optimizer = torch.optim.Adam(self.net.parameters())
            +         self.optimizer = torch.optim.Adam([p for p in self.net.parameters() if p.requires_grad])
            """,
        "a framework keeps the optimizer's state: reported only": """
              import torch
              import lightning as L
              class Module(L.LightningModule):
                  def __init__(self):
                      super().__init__()
                      self.backbone = load_backbone()
                      for p in self.backbone.parameters():
                          p.requires_grad = False
                  def configure_optimizers(self):
            !         return torch.optim.Adam(self.parameters())
            """,
        "misspelt, so nothing is frozen": """
              import torch
              for p in model.backbone.parameters():
            -     p.require_grad = False
            +     p.requires_grad = False
              optimizer = torch.optim.Adam(model.backbone.parameters())
            """,
    }
    valid = {
        "only what learns is handed over": """
            import torch
            for p in model.backbone.parameters():
                p.requires_grad = False
            optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
            other = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()))
            head = torch.optim.Adam(model.head.parameters())
            """,
        "the backbone thaws later in the run": """
            import torch
            for p in model.backbone.parameters():
                p.requires_grad = False
            optimizer = torch.optim.Adam(model.parameters())
            for epoch in range(20):
                if epoch == 10:
                    for p in model.backbone.parameters():
                        p.requires_grad = True
                train(train_loader, model, optimizer)
            """,
        "a function of this file may thaw it at any time": """
            import torch
            def thaw(net):
                net.backbone.requires_grad_(True)
            for p in model.backbone.parameters():
                p.requires_grad = False
            optimizer = torch.optim.Adam(model.parameters())
            """,
        "a flag decides, again and again": """
            import torch
            def set_requires_grad(net, learns):
                for p in net.parameters():
                    p.requires_grad = learns
            def step():
                set_requires_grad(discriminator, False)
                set_requires_grad(discriminator, True)
            optimizer = torch.optim.Adam(discriminator.parameters())
            """,
        "it gets a group of its own later": """
            import torch
            model.backbone.requires_grad_(False)
            optimizer = torch.optim.Adam(model.parameters())
            optimizer.add_param_group({"params": extra})
            """,
        "the state of the optimizer is saved: its groups must keep their sizes": """
            import torch
            model.backbone.requires_grad_(False)
            optimizer = torch.optim.Adam(model.parameters())
            torch.save({"optimizer": optimizer.state_dict()}, "last.pt")
            """,
        "the state of the optimizer is loaded": """
            import torch
            model.backbone.requires_grad_(False)
            optimizer = torch.optim.Adam(model.parameters())
            optimizer.load_state_dict(torch.load("last.pt"))
            """,
        "frozen after the optimizer was made": """
            import torch
            optimizer = torch.optim.Adam(model.parameters())
            model.backbone.requires_grad_(False)
            """,
        "another network is frozen": """
            import torch
            for p in teacher.parameters():
                p.requires_grad = False
            optimizer = torch.optim.Adam(student.parameters())
            """,
        "all of it is frozen: a list of what learns would be empty": """
            import torch
            for p in model.parameters():
                p.requires_grad = False
            optimizer = torch.optim.Adam(model.parameters())
            """,
        "either it is frozen, or all of it learns": """
            import torch
            if args.freeze:
                for p in model.parameters():
                    p.requires_grad = False
            model.fc = torch.nn.Linear(512, 2)
            if args.freeze:
                optimizer = torch.optim.Adam(model.fc.parameters())
            else:
                optimizer = torch.optim.Adam(model.parameters())
            """,
        "all of it thaws again": """
            import torch
            model.backbone.requires_grad_(False)
            model.requires_grad_(True)
            optimizer = torch.optim.Adam(model.parameters())
            """,
        "an input that wants gradients is no part of the network": """
            import torch
            x = torch.randn(4, 4)
            x.requires_grad = False
            optimizer = torch.optim.Adam(model.parameters())
            """,
        "an attribute of one's own of that name": """
            import torch
            class Config:
                def __init__(self):
                    self.require_grad = False
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every optimizer of a network that is frozen in part."""
        yield from self._misspelt(script)
        if script.optimizers.restores or script.optimizers.saves:
            return
        if any(True for _ in script.method_calls("add_param_group")):
            return
        for call in script.all(cst.Call):
            name = script.name(call.func) or ""
            if not name.startswith("torch.optim.") or not name.rpartition(".")[2][:1].isupper():
                continue
            arg = script.call(call).given("params", 0)
            network = _all_of(arg.value) if arg is not None else None
            if arg is None or network is None:
                continue
            freeze = script.freezing.frozen(network, call)
            if freeze is None:
                continue
            what = script.code(network)
            part = f"a part of `{what}`" if freeze.partial else f"`{freeze.path}`"
            if freeze.path == what:
                part = f"most of `{what}`"
            text = f"[p for p in {what}.parameters() if p.requires_grad]"
            message = (
                f"{script.optimizers.label(call)} gets all parameters of `{what}`, yet {part} is "
                f"frozen: each step walks over what never learns; hand it `{text}`"
            )
            edits = script.rewrite.replace(arg.value, text)
            fix = Fix.exact("Hand over what learns", edits) if script.framework == "none" else None
            note = Note(script.span(freeze.node), "frozen here")
            yield Finding(self.code, script.span(arg.value), message, fix, (note,))

    def _misspelt(self, script: Script) -> Iterator[Finding]:
        for line in script.all(cst.Assign):
            target = line.targets[0].target
            if not isinstance(target, cst.Attribute) or target.attr.value != "require_grad":
                continue
            if isinstance(target.value, cst.Name) and target.value.value == "self":
                continue
            message = (
                f"`{script.code(target)}` is a new attribute that nothing reads, so nothing is "
                "frozen: write `requires_grad`"
            )
            edits = script.rewrite.replace(target.attr, "requires_grad")
            because = "what has been learning until now really is frozen then"
            fix = Fix.unsafe("Write `requires_grad`", edits, because=because)
            yield Finding(self.code, script.span(target), message, fix)


def _all_of(value: cst.BaseExpression) -> cst.BaseExpression | None:
    """Give the network of `network.parameters()`."""
    if not isinstance(value, cst.Call) or value.args or not isinstance(value.func, cst.Attribute):
        return None
    return value.func.value if value.func.attr.value == "parameters" else None
