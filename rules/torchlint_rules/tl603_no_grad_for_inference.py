"""TL603 no-grad-for-inference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Edits,
    Evaluation,
    Fate,
    Finding,
    Fix,
    Grad,
    How,
    Kind,
    Rule,
    Safety,
    Script,
)

_PLAIN: Final = frozenset({Kind.NUMBER, Kind.STRING, Kind.NDARRAY, Kind.NOTHING, Kind.DEVICE})
_PURE: Final = frozenset(
    "eval train to cpu cuda item detach format print write flush set_postfix set_description".split()
)
_CONVERSIONS: Final = frozenset("to cpu cuda xpu half bfloat16 float double type".split())
BECAUSE: Final = (
    "tensors made under inference mode can never again take part in what autograd records, nor be "
    "changed in place outside"
)


class NoGradForInference(Rule):
    """
    ## What it does
    Flags an evaluation under `torch.no_grad()` whose tensors never leave it, so that
    `torch.inference_mode()` would do. Off unless it is selected.

    ## Why it is slow
    Under `no_grad` tensors still count their versions and views remember what they are views of.
    The gain is small: 0.98 to 1.06 times was measured on a CPU.

    ## When not to
    Whenever a tensor could come back to training: cached features, memory banks, targets of a
    teacher. `enable_grad()` does not work inside inference mode. The rule is silent where a
    tensor leaves the evaluation; that a dataset or a module keeps one it cannot always see.

    ## Fix safety
    Unsafe: a tensor that was made under inference mode raises RuntimeError as soon as autograd
    would save it, or something outside changes it in place.
    """

    code = "TL603"
    name = "no-grad-for-inference"
    summary = "inference mode would do more than no_grad here"
    impact = "low"
    safety = Safety.UNSAFE
    after = ("TL202",)
    articles = ("S3.16",)
    needs = ("no_grad",)
    since = (1, 9)
    default = False

    invalid = {
        "a loop over validation batches": """
              import torch
              def validate(model, val_loader):
                  model.eval()
                  correct = 0
            -     with torch.no_grad():
            +     with torch.inference_mode():
                      for x, y in val_loader:
                          correct += (model(x).argmax(1) == y).sum().item()
                  return correct
            """,
        "a function that is decorated": """
              import torch as th
              class Trainer:
            -     @th.no_grad()
            +     @th.inference_mode()
                  def evaluate(self):
                      self.model.eval()
                      total = 0.0
                      for x, y in self.val_loader:
                          total += float(self.criterion(self.model(x), y))
                      print("loss", total / len(self.val_loader))
            """,
        "a bare decorator": """
              import torch
            - @torch.no_grad
            + @torch.inference_mode()
              def test(net, test_loader):
                  hits = 0
                  for x, y in test_loader:
                      hits += int((net(x).argmax(1) == y).sum())
                  return hits / len(test_loader)
            """,
        "around the forward pass alone": """
              import torch
              model.eval()
              losses = []
              for x, y in val_loader:
            -     with torch.no_grad():
            +     with torch.inference_mode():
                      loss = criterion(model(x), y)
                      losses.append(loss.item())
            """,
        "beside another context": """
              import torch
              model.eval()
            - with torch.autocast("cuda"), torch.no_grad():
            + with torch.autocast("cuda"), torch.inference_mode():
                  for x, y in val_loader:
                      print(criterion(model(x), y).item())
            """,
        "imported by name": """
            - from torch import nn, no_grad
            + import torch
            + from torch import nn
              net.eval()
            - with no_grad():
            + with torch.inference_mode():
                  for x in test_loader:
                      print(net(x).argmax(1).tolist())
            """,
    }
    valid = {
        "inference mode": """
            import torch
            model.eval()
            with torch.inference_mode():
                for x, y in val_loader:
                    print(criterion(model(x), y).item())
            """,
        "torch before 1.9 has none": """
            # target-torch: 1.8
            import torch
            model.eval()
            with torch.no_grad():
                for x, y in val_loader:
                    print(criterion(model(x), y).item())
            """,
        "a teacher's outputs meet autograd": """
            import torch
            for x, y in train_loader:
                with torch.no_grad():
                    target = teacher_model(x)
                criterion(student_model(x), target).backward()
                optimizer.step()
            """,
        "features are cached for training": """
            import torch
            backbone.eval()
            features = []
            with torch.no_grad():
                for x, y in eval_loader:
                    features.append(backbone(x))
            train_head(torch.cat(features))
            """,
        "labels that a network gave are trained on, graph or not": """
            import torch
            @torch.no_grad()
            def predict(model, test_loader):
                model.eval()
                return torch.cat([model(x).argmax(1) for x in test_loader])
            for x, y in zip(batches, predict(model, test_loader)):
                criterion(model(x), y).backward()
                optimizer.step()
            """,
        "a memory bank keeps what it is given": """
            import torch
            class Trainer:
                def evaluate(self):
                    self.model.eval()
                    with torch.no_grad():
                        for x, y in self.val_loader:
                            self.bank = self.model(x)
            """,
        "an object out of sight keeps what it is given": """
            import torch
            model.eval()
            with torch.no_grad():
                for x, y in val_loader:
                    memory.update(model(x), y)
            """,
        "a meter of this file keeps what it is given": """
            import torch
            class Meter:
                sum = 0
                def update(self, value):
                    self.sum += value
            def validate(model, val_loader):
                meter = Meter()
                model.eval()
                with torch.no_grad():
                    for x, y in val_loader:
                        meter.update(accuracy(model(x), y))
                return meter.sum
            """,
        "a metric of torchmetrics keeps what it is called with": """
            import torch
            from torchmetrics.classification import Accuracy
            metric = Accuracy(task="multiclass", num_classes=10).to("cuda")
            model.eval()
            with torch.no_grad():
                for x, y in val_loader:
                    metric(model(x), y)
            print(metric.compute())
            """,
        "the network gets new parameters inside, which could not be trained": """
            import torch
            @torch.no_grad()
            def validate(model, val_loader):
                model.eval()
                model.cpu()
                total = 0.0
                for x, y in val_loader:
                    total += criterion(model(x), y).item()
                model.cuda()
                return total
            """,
        "the sum is divided in place outside": """
            import torch
            def validate(model, val_loader):
                model.eval()
                total = 0
                with torch.no_grad():
                    for x, y in val_loader:
                        total += criterion(model(x), y)
                total /= len(val_loader)
                print(total)
            """,
        "a hook takes tensors out": """
            import torch
            kept = []
            vgg.layer.register_forward_hook(lambda module, inputs, output: kept.append(output))
            vgg.eval()
            for x in val_loader:
                with torch.no_grad():
                    vgg(x)
            """,
        "gradients are switched on inside": """
            import torch
            model.eval()
            with torch.no_grad():
                for x, y in test_loader:
                    with torch.enable_grad():
                        grads = torch.autograd.grad(model(x).sum(), x)
                    print(model(x).sum().item())
            """,
        "an attack asks for gradients inside": """
            import torch
            model.eval()
            with torch.no_grad():
                for x, y in test_loader:
                    x.requires_grad_()
                    print(model(x).sum().item())
            """,
        "weights are averaged, which is no inference": """
            import torch
            with torch.no_grad():
                for p, q in zip(ema_model.parameters(), model.parameters()):
                    p.lerp_(q, 0.01)
            """,
        "the network keeps a table that it makes as it runs": """
            import torch
            from torch import nn
            class Net(nn.Module):
                def forward(self, x):
                    self.table = torch.arange(x.size(1))
                    return x + self.table
            net = Net()
            net.eval()
            with torch.no_grad():
                for x in val_loader:
                    print(net(x).sum().item())
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every `no_grad` around an evaluation that no tensor leaves."""
        told: set[int] = set()
        for evaluation in script.evaluations():
            found = _manager(script, evaluation)
            if found is None or id(found[0]) in told:
                continue
            manager, region = found
            told.add(id(manager))
            if not _may_infer(script, evaluation, region):
                continue
            names = ", ".join(f"`{script.code(each)}`" for each in evaluation.networks)
            message = (
                f"no tensor leaves this evaluation of {names}: `torch.inference_mode()` also "
                "spares the bookkeeping that `no_grad` keeps up"
            )
            edits = _edits(script, manager)
            title = "Evaluate under `torch.inference_mode()`"
            fix = Fix.unsafe(title, edits, because=BECAUSE) if edits else None
            yield Finding(self.code, script.span(manager), message, fix)


def _manager(
    script: Script, evaluation: Evaluation
) -> tuple[cst.BaseExpression, cst.BaseSuite] | None:
    """Give the `no_grad` that governs all forward calls of an evaluation, and what it spans."""
    forwards = evaluation.forwards
    if any(each.records is not Grad.OFF for each in forwards):
        return None
    at: cst.CSTNode | None = forwards[0].call
    while at is not None:
        if isinstance(at, cst.With):
            for item in at.items:
                if _is_no_grad(script, item.item):
                    inside = all(script.tree.inside(each.call, at) for each in forwards)
                    return (item.item, at.body) if inside else None
        elif isinstance(at, cst.FunctionDef):
            for decorator in at.decorators:
                if _is_no_grad(script, decorator.decorator):
                    return decorator.decorator, at.body
            return None
        at = script.parent(at)
    return None


def _is_no_grad(script: Script, manager: cst.BaseExpression) -> bool:
    named = manager.func if isinstance(manager, cst.Call) else manager
    return script.name(named) == "torch.no_grad"


def _may_infer(script: Script, evaluation: Evaluation, region: cst.BaseSuite) -> bool:
    if any(True for _ in script.method_calls("register_forward_hook")):
        return False
    if any(_keeps_tensors(script, network) for network in evaluation.networks):
        return False
    if any(_converts(script, call) for call in script.within(region, cst.Call)):
        return False
    if any(_escapes(script, region)) or script.fate(evaluation) is not Fate.DROPPED:
        return False
    return script.only_measures(region) and not script.needs_gradients(region)


def _converts(script: Script, call: cst.Call) -> bool:
    """Whether a call may give a network other parameters: on another device, of another type."""
    func = call.func
    named = isinstance(func, cst.Attribute) and func.attr.value in _CONVERSIONS
    return named and isinstance(func, cst.Attribute) and script.kind(func.value) is Kind.MODULE


def _keeps_tensors(script: Script, network: cst.BaseExpression) -> bool:
    """Whether a network of this file sets attributes of its own while it runs."""
    owner = script.functions.instance_of(network)
    if owner is None:
        return False
    return any(
        isinstance(assign.targets[0].target, cst.Attribute)
        and script.code(assign.targets[0].target).startswith("self.")
        and (function := script.function(assign)) is not None
        and function.name.value != "__init__"
        for assign in script.within(owner, cst.Assign)
    )


# -- what leaves a region --------------------------------------------------------------------


def _escapes(script: Script, region: cst.BaseSuite) -> Iterator[bool]:
    """Yield True for each value of a region that may be a tensor and is seen outside."""
    home = script.function(region)
    whole = isinstance(script.parent(region), cst.FunctionDef)
    targets = [each.target for line in script.within(region, cst.Assign) for each in line.targets]
    targets += [line.target for line in script.within(region, cst.AugAssign)]
    for target in targets:
        if script.function(target) is home:
            yield from _leaves_by(script, target, region, whole)
    for call in script.within(region, cst.Call):
        if script.function(call) is home:
            yield _keeps(script, call, region)
    if whole and home is not None:
        for value in script.functions.returns(home):
            yield not _is_plain(script, value)
    for line in script.within(region, cst.Return):
        yield line.value is not None and not _is_plain(script, line.value)


def _leaves_by(
    script: Script, target: cst.BaseExpression, region: cst.BaseSuite, whole: bool
) -> Iterator[bool]:
    """Judge what is bound: plain values may leave, tensors may not."""
    if isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            yield from _leaves_by(script, element.value, region, whole)
    elif isinstance(target, cst.Name):
        binding = script.scopes.stored(target)
        if binding is None or whole or script.kinds.kind_of_binding(binding) in _PLAIN:
            return
        home = script.scopes.lookup(target.value, script.scopes.scope(target))
        yield home is None or any(
            not script.tree.inside(name, region) for name in script.scopes.uses(binding, home.node)
        )
    else:
        binding = script.scopes.stored(target)
        yield binding is None or script.kinds.kind_of_binding(binding) not in _PLAIN


def _keeps(script: Script, call: cst.Call, region: cst.BaseSuite) -> bool:
    """Whether a call may keep a tensor that it is handed: a list, a meter, a bank."""
    func = call.func
    if isinstance(func, cst.Name) and _is_metric(script, func):
        return True
    if not isinstance(func, cst.Attribute) or func.attr.value in _PURE:
        return False
    if script.name(func) is not None:
        return False
    own = script.functions.callee(call)
    if own is not None:
        return _stores(script, own) and any(not _is_plain(script, arg.value) for arg in call.args)
    if script.kind(func) in (Kind.MODULE, Kind.CRITERION):
        return False
    owner = func.value
    if script.kind(owner) not in (Kind.UNKNOWN, Kind.SEQUENCE, Kind.MAPPING, Kind.DATASET):
        return False
    if isinstance(owner, cst.Name):
        bindings = script.scopes.reaching(owner)
        inside = [each for each in bindings if script.tree.inside(each.node, region)]
        if bindings and len(inside) == len(bindings):
            return False
        if any(each.how is How.IMPORT for each in bindings):
            return False
    return any(not _is_plain(script, arg.value) for arg in call.args)


def _is_metric(script: Script, name: cst.Name) -> bool:
    """Whether a name holds a metric of torchmetrics, which sums what it is called with."""
    made = script.value_of(name).node
    while isinstance(made, cst.Call) and isinstance(made.func, cst.Attribute):
        if not isinstance(made.func.value, cst.Call):
            break
        made = made.func.value
    maker = script.name(made.func) if isinstance(made, cst.Call) else None
    return maker is not None and maker.startswith("torchmetrics.")


def _stores(script: Script, method: cst.FunctionDef) -> bool:
    """Whether a method sets attributes of its object."""
    targets = [each.target for line in script.within(method, cst.Assign) for each in line.targets]
    targets += [line.target for line in script.within(method, cst.AugAssign)]
    return any(script.code(each).startswith("self.") for each in targets)


def _is_plain(script: Script, value: cst.BaseExpression) -> bool:
    """Whether a value surely holds no tensor."""
    if isinstance(value, (cst.Tuple, cst.List)):
        return all(_is_plain(script, each.value) for each in value.elements)
    if isinstance(value, cst.Dict):
        return all(_is_plain(script, each.value) for each in value.elements)
    if isinstance(value, cst.BinaryOperation):
        return _is_plain(script, value.left) and _is_plain(script, value.right)
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        if value.func.attr.value in ("item", "tolist", "numpy", "format"):
            return True
    return script.kind(value) in _PLAIN


# -- the fix --------------------------------------------------------------------------------


def _edits(script: Script, manager: cst.BaseExpression) -> Edits | None:
    named = manager.func if isinstance(manager, cst.Call) else manager
    if isinstance(named, cst.Attribute):
        base = script.code(named.value)
        return script.rewrite.replace(manager, f"{base}.inference_mode()")
    imported, gone = script.rewrite.importing("torch"), script.rewrite.without_imports(manager)
    if imported is None or gone is None:
        return None
    text = f"{imported[0]}.inference_mode()"
    return (*script.rewrite.replace(manager, text), *imported[1], *gone)
