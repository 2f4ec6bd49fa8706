"""TL601 evaluation-with-gradients."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import (
    Evaluation,
    Fate,
    Finding,
    Grad,
    Rule,
    Safety,
    Script,
    Span,
)
from torchlint_rules._asides import looks, metrics
from torchlint_rules._nograd import ENTRIES, evaluation_fix, without_graph, wrapped


class EvaluationWithGradients(Rule):
    """
    ## What it does
    Flags an evaluation (a loop over validation or test batches, or a function that scores all
    data at once) that runs a network while autograd records, and a forward pass in a training
    loop whose output is only measured or looked at.

    ## Why it is slow
    Autograd keeps every activation and builds a graph for a backward pass that never comes.
    Without it a convolutional network evaluates up to twice as fast, and the memory that the
    graph took allows larger batches.

    ## When not to
    Where the evaluation itself differentiates: adversarial attacks, saliency maps, optimised
    inputs, physics-informed losses. The rule is silent where it sees any of these.

    ## Fix safety
    Exact: the numbers are the same with and without a graph. Close where the script makes an
    `nn.LSTM`, `nn.MultiheadAttention` or a transformer's encoder: without a graph they take other
    kernels on a CPU, whose outputs differ by rounding (9e-8 to 1e-6). Unsafe where a result that
    carries a graph is returned to callers out of sight, which could still send it backward.
    """

    code = "TL601"
    name = "evaluation-with-gradients"
    summary = "evaluation runs with gradients on"
    impact = "high"
    safety = Safety.EXACT
    articles = ("S2", "S3.16")
    needs = (
        "eval", "valid", "Valid", "val_", "test_", "Test", "infer", "predict",
        "accura", "acc_", "scor", "holdout", "dev_", "volatile", "backward",
    )  # fmt: skip
    invalid = {
        "a function that only evaluates gets the decorator": """
              import torch
            + @torch.no_grad()
              def validate(model, val_loader, criterion):
                  model.eval()
                  total = 0.0
            !     for images, labels in val_loader:
                      total += criterion(model(images), labels).item()
                  return total / len(val_loader)
              validate(model, val_loader, criterion)
            """,
        "in a function that also trains the loop alone is wrapped": """
              import torch
              def train(model, train_loader, val_loader, criterion, optimizer):
                  for epoch in range(3):
                      for images, labels in train_loader:
                          criterion(model(images), labels).backward()
                          optimizer.step()
                      # how good is it
            -         for images, labels in val_loader:
            -             # one batch
            -             loss = criterion(
            -                 model(images), labels
            -             )
            -             print(loss)
            +         with torch.no_grad():
            +             for images, labels in val_loader:
            +                 # one batch
            +                 loss = criterion(
            +                     model(images), labels
            +                 )
            +                 print(loss)
                      print(epoch)
            """,
        "at module level, with torch under another name": """
              import torch as T
              from torch.utils.data import DataLoader
              test_loader = DataLoader(test_set)
              net.eval()
            - for x, y in test_loader:
            -     print(net(x).argmax(1) == y)
            + with T.no_grad():
            +     for x, y in test_loader:
            +         print(net(x).argmax(1) == y)
            """,
        "torch is imported where only its parts were": """
            + import torch
              from torch import nn
              model = nn.Linear(2, 2)
            - for x in test_loader:
            -     print(model(x))
            + with torch.no_grad():
            +     for x in test_loader:
            +         print(model(x))
            """,
        "no_grad is there by its own name": """
              from torch import no_grad
            + @no_grad()
              def test(model, loader):
                  model.eval()
            !     for x in loader:
                      print(model(x))
              test(model, loader)
            """,
        "below the decorators that make methods": """
              import torch
              class Experiment:
                  @staticmethod
            +     @torch.no_grad()
                  def evaluate(model, loader):
                      hits = 0
            !         for x, y in loader:
                          hits += int((model(x).argmax(1) == y).sum())
                      return hits
            """,
        "a property": """
              import torch
              class Experiment:
                  @property
            +     @torch.no_grad()
                  def val_accuracy(self):
                      hits = 0
            !         for x, y in self.val_loader:
                          hits += int((self.model(x).argmax(1) == y).sum())
                      return hits
            """,
        "another decorator may want the function as it is: the loop is wrapped": """
              import torch
              import functools
              @functools.lru_cache
              def evaluate():
            -     for x in loader:
            -         print(model(x))
            +     with torch.no_grad():
            +         for x in loader:
            +             print(model(x))
            """,
        "volatile has done nothing for years": """
              import torch
              from torch.autograd import Variable
            + @torch.no_grad()
              def test(model, loader):
                  model.eval()
            !     for x, y in loader:
                      print(model(Variable(x, volatile=True)))
              test(model, loader)
            """,
        "all data at once": """
              import torch
            + @torch.no_grad()
              def test():
                  model.eval()
            !     out = model(data.x, data.edge_index)
                  return int((out.argmax(1) == data.y).sum())
              print(test())
            """,
        "eval tells that it is a network": """
              import torch
              import model
              model = model.RNN()
            + @torch.no_grad()
              def evaluate(source):
                  model.eval()
                  total = 0
            !     for i in range(0, 100, 10):
                      total += criterion(model(source[i]), source[i + 1]).item()
                  return total
              evaluate(source)
            """,
        "only eval tells what the loop is for": """
              import torch
            + @torch.no_grad()
              def report(model, loader):
                  model.eval()
            !     for x in loader:
                      print(model(x))
            """,
        "batches by a call, in a while loop": """
              import torch
            + @torch.no_grad()
              def evaluate():
                  at, total = 0, 0.0
            !     while at < 10:
                      x, y = get_batch("val")
                      total += criterion(model(x), y).item()
                      at += 1
                  return total
            """,
        "a metric of a training step": """
              import torch
              for x, y in train_loader:
                  criterion(model(x), y).backward()
                  optimizer.step()
            -     hits = (model(x).argmax(1) == y).sum()
            +     with torch.no_grad():
            +         hits = (model(x).argmax(1) == y).sum()
            """,
        "the test data, now and then": """
              import torch
              cnn = torch.nn.Linear(4, 2)
              for step, (x, y) in enumerate(train_loader):
                  loss = loss_func(cnn(x), y)
                  optimizer.zero_grad()
                  loss.backward()
                  optimizer.step()
                  if step % 50 == 0:
            -         test_output = cnn(test_x)
            +         with torch.no_grad():
            +             test_output = cnn(test_x)
                      accuracy = (test_output.argmax(1) == test_y).float().mean()
                      print(accuracy)
            """,
        "the test data, behind the step of a loop that trains on all data at once": """
              import torch
              model = torch.nn.Linear(4, 2)
              for epoch in range(100):
                  model.train()
                  loss = loss_func(model(x_train), y_train)
                  optimizer.zero_grad()
                  loss.backward()
                  optimizer.step()
                  model.eval()
            -     output = model(x_test)
            +     with torch.no_grad():
            +         output = model(x_test)
                  print(loss_func(output, y_test))
            """,
        "a loss with its graph is returned out of sight": """
              import torch
            + @torch.no_grad()
              def validate(model, loader):
                  total = 0
            !     for x, y in loader:
                      total += criterion(model(x), y)
                  return total
            """,
        "some function elsewhere gets the network: reported, left alone": """
              import torch
              from metrics import score
              def validate(model, val_loader):
            !     for x, y in val_loader:
                      print(model(x), score(model, x))
            """,
        "a line of several statements: reported, left alone": """
              import torch
              for x, y in train_loader:
                  criterion(model(x), y).backward()
            !     hits = model(x).argmax(1).eq(y).sum(); print(hits)
            """,
    }
    valid = {
        "no graph is recorded around the loop": """
            import torch
            def validate(model, val_loader):
                model.eval()
                with torch.no_grad():
                    for images, labels in val_loader:
                        print(model(images))
            """,
        "no graph is recorded around the forward call": """
            import torch
            def validate(model, val_loader):
                model.eval()
                for images, labels in val_loader:
                    with torch.inference_mode():
                        output = model(images)
                    print(output)
            """,
        "a decorator does it": """
            import torch
            @torch.no_grad()
            def validate(model, val_loader):
                for images in val_loader:
                    print(model(images))
            """,
        "a decorator of another file says that it does": """
            from utils import smart_inference_mode
            @smart_inference_mode()
            def validate(model, val_loader):
                for images in val_loader:
                    print(model(images))
            """,
        "every caller does it": """
            import torch
            def validate(model, val_loader):
                for images in val_loader:
                    print(model(images))
            with torch.no_grad():
                validate(model, val_loader)
            """,
        "gradients are off for the whole script": """
            import torch
            torch.set_grad_enabled(False)
            for images in val_loader:
                print(model(images))
            """,
        "one loop trains or evaluates by a flag": """
            import torch
            def run(model, val_loader, training):
                with torch.set_grad_enabled(training):
                    for x, y in val_loader:
                        print(model(x))
            """,
        "one loop for both phases": """
            import torch
            for phase in ["train", "val"]:
                for x, y in dataloaders[phase]:
                    with torch.set_grad_enabled(phase == "train"):
                        loss = criterion(model(x), y)
                        if phase == "train":
                            loss.backward()
                            optimizer.step()
            """,
        "an attack differentiates by the input": """
            import torch
            def test(model, test_loader):
                model.eval()
                for x, y in test_loader:
                    x.requires_grad = True
                    loss = criterion(model(x), y)
                    loss.backward()
                    print(model(x + 0.1 * x.grad.sign()))
            """,
        "an attack of another package differentiates": """
            import torch
            from attacks import pgd
            def test_robust(model, test_loader):
                model.eval()
                for x, y in test_loader:
                    print(model(pgd(model, x, y)))
            """,
        "saliency needs gradients": """
            import torch
            def evaluate_saliency(model, test_loader):
                for x in test_loader:
                    x = x.clone().requires_grad_(True)
                    print(torch.autograd.grad(model(x).sum(), x))
            """,
        "inputs are optimised": """
            import torch
            def predict(model, test_loader):
                for x in test_loader:
                    guess = torch.zeros(3, requires_grad=True)
                    print(model(x + guess))
            """,
        "a physics-informed loss differentiates in a helper": """
            import torch
            def residual(net, x):
                u = net(x)
                return torch.autograd.grad(u.sum(), x, create_graph=True)[0]
            def evaluate(net, test_loader):
                for x in test_loader:
                    print(net(x), residual(net, x))
            """,
        "second derivatives, sample by sample": """
            import torch
            def evaluate(model, test_loader):
                for x in test_loader:
                    print(torch.func.hessian(model)(x), model(x))
            """,
        "a network that learns from a few shots takes gradient steps while it is evaluated": """
            import torch
            from models import Learner
            learner_net = Learner()
            learner_net.eval()
            for data_shot, data_query in val_loader:
                print(learner_net(data_shot, data_query))
            """,
        "a generator runs under its caller's mode": """
            import torch
            def predictions(model, test_loader):
                for x in test_loader:
                    yield model(x)
            with torch.no_grad():
                for y in predictions(model, test_loader):
                    print(y)
            """,
        "an agent in its environment": """
            import torch
            def evaluate(policy_net, env):
                for episode in range(10):
                    state, done = env.reset(), False
                    while not done:
                        state, reward, done, _ = env.step(policy_net(state).argmax())
            """,
        "the other network learns now and then": """
            import torch
            for i, (x, _) in enumerate(train_loader):
                optimizer_d.zero_grad()
                d_loss = net_d(net_g(z).detach()).mean() - net_d(x).mean()
                d_loss.backward()
                optimizer_d.step()
                if i % 5 == 0:
                    g_loss = -net_d(net_g(z)).mean()
                    g_loss.backward()
                    optimizer_g.step()
                if i % 4 == 0:
                    penalty = net_d(x).square().mean()
                    total = d_loss.detach() + penalty
                    total.backward()
                if i % 2 == 0:
                    with torch.no_grad():
                        save(net_g(z))
            """,
        "a teacher in a training loop": """
            import torch
            def train(student_model, teacher_model, train_loader):
                teacher_model.eval()
                for x, y in train_loader:
                    target = teacher_model(x)
                    criterion(student_model(x), target).backward()
                    optimizer.step()
            """,
        "a framework runs this step without gradients": """
            import pytorch_lightning as pl
            class Classifier(pl.LightningModule):
                def validation_step(self, batch, index):
                    for x, y in self.val_loader:
                        print(self.model(x))
            """,
        "the forward pass runs it, in the mode of whoever runs the network": """
            import torch
            class Update(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.linear, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)
                def _inference_forward(self, z, size):
                    for start in range(0, z.shape[1], size):
                        part = self.linear(z[:, start : start + size])
                        z[:, start : start + size] += self.norm(part)
                    return z
                def forward(self, z, in_place=False):
                    if in_place:
                        return self._inference_forward(z, 256)
                    return z + self.norm(self.linear(z))
            """,
        "a network whose base is elsewhere, which runs it in a mode of its own": """
            import torch
            from segmentation import BaseSegmentor
            class Segmentor(BaseSegmentor):
                def forward_train(self, img, img_metas, gt):
                    return self.decode_head(self.backbone(img), gt)
                def encode_decode(self, img, img_metas):
                    return self.decode_head(self.backbone(img))
                def slide_inference(self, img, img_meta, rescale):
                    preds = img.new_zeros((1, 19, 512, 512))
                    for top in range(0, 512, 128):
                        crop = img[:, :, top : top + 128]
                        preds[:, :, top : top + 128] += self.encode_decode(crop, img_meta)
                    return preds
                def inference(self, img, img_meta, rescale):
                    return self.slide_inference(img, img_meta, rescale).softmax(dim=1)
            """,
        "what the loop adds up is sent backward": """
            import torch
            total = 0
            for x, y in val_loader:
                total = total + criterion(model(x), y)
            total.backward()
            optimizer.step()
            """,
        "what the function returns is sent backward": """
            import torch
            def validation_loss(model, val_loader):
                total = 0
                for x, y in val_loader:
                    total += criterion(model(x), y)
                return total
            loss = validation_loss(model, val_loader)
            loss.backward()
            """,
        "something out of sight gets the optimizer": """
            import torch
            from engine import step
            def validate_and_adapt(model, val_loader, optimizer):
                for x, y in val_loader:
                    step(model(x), y, optimizer)
            """,
        "somebody wants gradients here": """
            import torch
            def evaluate(model, test_loader):
                with torch.enable_grad():
                    for x in test_loader:
                        print(model(x))
            """,
        "nothing says that this is an evaluation": """
            import torch
            def extract(model, loader):
                for x in loader:
                    print(model(x))
            """,
        "a unit test": """
            import torch
            def test_shapes(model):
                model.eval()
                for x in inputs:
                    print(model(x))
            """,
        "the output of a training step is a metric too": """
            import torch
            for x, y in train_loader:
                output = model(x)
                criterion(output, y).backward()
                optimizer.step()
                hits = (output.argmax(1) == y).sum()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every evaluation, and every metric of a training step, that records a graph."""
        for evaluation in script.evaluations():
            recording = [each for each in evaluation.forwards if each.records is Grad.ON]
            if not recording or any(e.records is Grad.UNKNOWN for e in evaluation.forwards):
                continue
            region = evaluation.body
            if _is_wanted(script, evaluation.node) or script.needs_gradients(region):
                continue
            fate = script.fate(evaluation)
            if fate is Fate.TRAINED:
                continue
            if fate is Fate.HIDDEN and isinstance(evaluation.node, cst.FunctionDef):
                continue
            names = list(dict.fromkeys(script.code(each.network) for each in recording))
            message = (
                f"{_subject(evaluation)} runs {_listed(names)} with gradients on: autograd keeps "
                f"every activation for a backward pass that never comes; use `torch.no_grad()`"
            )
            if any(_is_volatile(call) for call in script.within(region, cst.Call)):
                message += " (`volatile=True` has done nothing since torch 0.4)"
            place = _place(script, evaluation, recording[0].call)
            yield Finding(self.code, place, message, evaluation_fix(script, evaluation, fate))
        for call in metrics(script):
            yield self._aside(script, call, "a metric only")
        for call in looks(script):
            yield self._aside(script, call, "a look at its output only")

    def _aside(self, script: Script, call: cst.Call, purpose: str) -> Finding:
        message = (
            f"`{script.code(call)}` is run for {purpose}, yet records a graph: put it "
            "under `torch.no_grad()`"
        )
        edits = wrapped(script, script.statement(call))
        fix = without_graph(script, "Run it without gradients", edits) if edits else None
        return Finding(self.code, script.span(call), message, fix)


def _is_wanted(script: Script, node: cst.CSTNode) -> bool:
    """Whether somebody switched gradients on around an evaluation (`with torch.enable_grad():`)."""
    at = script.parent(node)
    while at is not None:
        if isinstance(at, cst.With):
            if any(script.grad_mode(item.item) is Grad.ON for item in at.items):
                return True
        at = script.parent(at)
    return False


def _subject(evaluation: Evaluation) -> str:
    if evaluation.function is not None and evaluation.function.name.value not in ENTRIES:
        return f"`{evaluation.function.name.value}`"
    return "this evaluation"


def _listed(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def _is_volatile(call: cst.Call) -> bool:
    return any(arg.keyword is not None and arg.keyword.value == "volatile" for arg in call.args)


def _place(script: Script, evaluation: Evaluation, forward: cst.Call) -> Span:
    """Give the head of the loop, or the first forward call of a function without one."""
    node = evaluation.node
    if isinstance(node, cst.FunctionDef):
        return script.span(forward)
    head = node.iter if isinstance(node, cst.For) else node.test
    return Span(script.span(node).start, script.span(head).end)
