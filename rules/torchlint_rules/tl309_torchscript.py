"""TL309: networks and functions that run as TorchScript."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Finding, Rule, Script, regex

_SCRIPT: Final = ("torch.jit.script", "torch.jit._script.script")
_TRACE: Final = ("torch.jit.trace", "torch.jit._trace.trace")
_MODULES: Final = frozenset({
    "torch.jit.ScriptModule", "torch.jit._script.ScriptModule", "torch.ScriptModule",
})  # fmt: skip
_EXPORT: Final = regex(
    r"jit\.(?:save|freeze|ignore|unused|export|interface|optimize_for_inference|is_scripting)\b|"
    r"optimize_for_mobile|_save_for_lite_interpreter|torch_tensorrt|coremltools|onnx|"
    r"torch\.jit import [^\r\n]*\b(?:save|freeze|ignore|unused|export)\b"
)
_ELSEWHERE: Final = frozenset(
    "export convert deploy trace infer inference predict test benchmark serve graph save".split()
)
_WAYS: Final = frozenset("jit torchscript script scripted".split())
_FATE: Final = "TorchScript, which is deprecated and not supported on Python 3.14"


class Torchscript(Rule):
    """
    ## What it does
    Flags `torch.jit.script`, `torch.jit.trace` and `ScriptModule` where they are there to make
    training faster.

    ## Why it is slow
    TorchScript is no longer developed: torch 2.13 warns that it is deprecated, and does not
    support it on Python 3.14. Its fusion of pointwise operations was once worth having; `torch.compile` fuses
    more, and the backward pass with it. Measured on a CPU, a scripted GELU was slower than the same
    lines unscripted, a compiled one 2.5 times as fast.

    ## When not to
    TorchScript that leaves the program is not flagged: networks that are saved for C++ or a phone,
    exported, drawn or tested, and files with `torch.jit.ignore`, `torch.jit.export` and the like,
    which were made ready for that. Nor is a file that compiles by `torch.compile` as well.

    ## Fix safety
    Reported only. Compiled code rounds otherwise, draws other dropout masks, takes seconds to
    minutes to compile and needs a C++ compiler or Triton. `model.compile()` keeps the keys of
    checkpoints; `torch.compile(model)` puts `_orig_mod.` before them.
    """

    code = "TL309"
    name = "torchscript"
    summary = "TorchScript stands where torch.compile does more"
    impact = "medium"
    safety = None
    articles = ("S1", "S3.bonus")
    needs = ("jit.script", "jit.trace", "ScriptModule", "torch.jit import")
    since = (2, 0)

    invalid = {
        "a function by its decorator": """
              import torch
            ! @torch.jit.script
              def fused_gelu(x):
                  return x * 0.5 * (1.0 + torch.erf(x / 1.41421))
            """,
        "by the name that an import gives it, by an alias of torch": """
              import torch as th
              from torch.jit import script
            ! @script
              def swish(x: th.Tensor) -> th.Tensor:
                  return x * th.sigmoid(x)
              class Net(th.nn.Module):
            !     @th.jit.script
                  def act(x):
                      return th.relu(x)
            """,
        "a function of the file, by a call": """
              import torch
              def swish(x):
                  return x * torch.sigmoid(x)
            ! swish = torch.jit.script(swish)
            """,
        "the network before it is trained": """
              import torch
              from mine import Net, loader
            ! model = torch.jit.script(Net()).cuda()
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for x, y in loader:
                  loss = (model(x.cuda()) - y.cuda()).square().mean()
                  loss.backward()
                  optimizer.step()
            """,
        "traced, behind an option, in a function that trains": """
              import torch
              def main(args, model, loader, optimizer):
                  if args.jit:
            !         model = torch.jit.trace(model, torch.randn(1, 3))
                  for x, y in loader:
                      loss = (model(x) - y).square().mean()
                      loss.backward()
                      optimizer.step()
            """,
        "a part of a network": """
              import torch
              from torch import jit, nn
              class Net(nn.Module):
                  def __init__(self, cell):
                      super().__init__()
            !         self.cell = jit.script(cell)
                  def forward(self, x):
                      return self.cell(x)
            """,
        "modules of TorchScript; their methods belong to them": """
              import torch
            ! class Block(torch.jit.ScriptModule):
                  def __init__(self):
                      super().__init__()
                      self.fc = torch.nn.Linear(4, 4)
                  @torch.jit.script_method
                  def forward(self, x):
                      return self.fc(x)
            """,
        "before torch 2.2 a network has no `compile` of its own": """
              # target-torch: 2.1
              import torch
              from mine import loader, model, optimizer
            ! model = torch.jit.script(model)
              for x, y in loader:
                  loss = (model(x) - y).square().mean()
                  loss.backward()
                  optimizer.step()
            """,
    }
    valid = {
        "saved for a program in C++": """
            import torch
            from mine import loader, model, optimizer
            for x, y in loader:
                loss = (model(x) - y).square().mean()
                loss.backward()
                optimizer.step()
            scripted = torch.jit.script(model)
            scripted.save("model.pt")
            """,
        "saved as soon as it is traced, and by a function": """
            import torch
            from mine import example, loader, model, optimizer
            def act(x):
                return x.relu()
            torch.jit.trace(act, example).save("act.pt")
            torch.jit.save(torch.jit.script(act), "act2.pt")
            """,
        "it goes to a phone": """
            import torch
            from torch.utils.mobile_optimizer import optimize_for_mobile
            from mine import example, loader, model, optimizer
            traced = torch.jit.trace(model, example)
            optimize_for_mobile(traced)._save_for_lite_interpreter("model.ptl")
            for x, y in loader:
                model(x).sub(y).square().mean().backward()
                optimizer.step()
            """,
        "traced once the training is over": """
            import torch
            from mine import example, loader, model, optimizer
            for x, y in loader:
                model(x).sub(y).square().mean().backward()
                optimizer.step()
            fast = torch.jit.trace(model, example)
            fast(example)
            """,
        "a function that exports, beside the training": """
            import torch
            def train(model, loader, optimizer):
                for x, y in loader:
                    model(x).sub(y).square().mean().backward()
                    optimizer.step()
            def export_model(model, example):
                return torch.jit.trace(model, example)
            """,
        "a way to script a network that others may go or not": """
            import torch
            class Bench:
                def jit_callback(self):
                    self.model = torch.jit.trace(self.model, self.example)
                def train(self):
                    for x, y in self.loader:
                        self.model(x).sub(y).square().mean().backward()
                        self.optimizer.step()
            """,
        "in evaluation mode it is for inference": """
            import torch
            from mine import example, loader, model, optimizer, teacher
            teacher = torch.jit.trace(teacher.eval(), example)
            for x, y in loader:
                (model(x) - teacher(x)).square().mean().backward()
                optimizer.step()
            """,
        "drawn by TensorBoard": """
            import torch
            from mine import example, loader, model, optimizer, writer
            writer.add_graph(torch.jit.trace(model, example), [])
            for x, y in loader:
                model(x).sub(y).square().mean().backward()
                optimizer.step()
            """,
        "a file that trains nothing runs networks that others trained": """
            import torch
            from mine import example, model
            model = torch.jit.script(model)
            print(model(example))
            """,
        "code that was made ready for export": """
            import torch
            class Net(torch.nn.Module):
                @torch.jit.ignore
                def describe(self):
                    return "a net"
            @torch.jit.script
            def act(x):
                return x.relu()
            """,
        "code that runs in both worlds": """
            import torch
            @torch.jit.script
            def act(x):
                return x.relu()
            def forward(x):
                return x if torch.jit.is_scripting() else act(x)
            """,
        "the script offers torch.compile as well": """
            import torch
            from mine import args, loader, model, optimizer
            if args.torchscript:
                model = torch.jit.script(model)
            elif args.torchcompile:
                model = torch.compile(model)
            for x, y in loader:
                model(x).sub(y).square().mean().backward()
                optimizer.step()
            """,
        "a test that it can be scripted": """
            import torch
            def act(x):
                return x.relu()
            def test_act_can_be_scripted():
                assert torch.jit.script(act)(torch.ones(1)) == 1
            """,
        "a class of plain data": """
            import torch
            class Selected:
                index: torch.Tensor
            Selected = torch.jit.script(Selected)
            """,
        "the word for a type": """
            import torch
            def summary(module):
                return not isinstance(module, torch.jit.ScriptModule)
            """,
        "a `script` and a `trace` of one's own": """
            import torch
            from mine import jit, loader, model, optimizer, script
            model = jit.trace(script(model))
            for x, y in loader:
                model(x).sub(y).square().mean().backward()
                optimizer.step()
            """,
        "torch before 2.0 has nothing better": """
            # target-torch: 1.13
            import torch
            @torch.jit.script
            def act(x):
                return x.relu()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the TorchScript that training runs."""
        if _EXPORT.search(script.source.text) or _compiles(script):
            return
        for mark in script.all(cst.Decorator):
            function = script.parent(mark)
            if isinstance(function, cst.FunctionDef) and script.name(mark.decorator) in _SCRIPT:
                if not _is_test(script, mark):
                    yield self._function(script, mark, function.name.value)
        for owner in script.all(cst.ClassDef):
            for base in owner.bases:
                if script.name(base.value) in _MODULES:
                    message = (
                        f"`{owner.name.value}` is {_FATE}: derive from `nn.Module`, "
                        f"and {self._advice(script, 'the network')}"
                    )
                    yield Finding(self.code, script.span(base.value), message)
        for site in script.calls(*_SCRIPT, *_TRACE):
            yield from self._called(script, site)

    def _called(self, script: Script, site: CallSite) -> Iterator[Finding]:
        given = site.given("func" if site.name in _TRACE else "obj", 0)
        if given is None or _is_test(script, site.node) or _leaves(script, site.node):
            return
        what = script.definition(given.value)
        if isinstance(what, cst.FunctionDef):
            yield self._function(script, site.node, what.name.value)
        elif what is None and _is_trained(script, site.node, given.value):
            named = script.code(given.value)
            whole = f"`{named}` runs as {_FATE}: {self._advice(script, named)}"
            yield Finding(self.code, script.span(site.node), whole)

    def _function(self, script: Script, node: cst.CSTNode, name: str) -> Finding:
        message = (
            f"`{name}` runs as {_FATE}: `torch.compile` fuses it too, and its backward pass with it"
        )
        return Finding(self.code, script.span(node), message)

    def _advice(self, script: Script, named: str) -> str:
        """Say how to compile a network, by what the version of torch has."""
        if not re.fullmatch(r"[\w.]+", named):
            named = "model"
        if script.target.has((2, 2)):
            return f"call `{named}.compile()`, which keeps the keys of checkpoints"
        return f"call `torch.compile({named})` and save the `state_dict` of what it wraps"


def _compiles(script: Script) -> bool:
    """Whether a script compiles by torch.compile as well."""
    return any(True for _ in script.calls("torch.compile")) or any(
        script.name(mark.decorator.func if isinstance(mark.decorator, cst.Call) else mark.decorator)
        == "torch.compile"
        for mark in script.all(cst.Decorator)
    )


def _is_test(script: Script, node: cst.CSTNode) -> bool:
    """Whether a node stands in a function that tests, or makes something to export or to show."""
    return any(
        isinstance(outer, cst.FunctionDef)
        and not _ELSEWHERE.isdisjoint(script.words(outer.name.value))
        for outer in script.tree.ancestors(node)
        if script.parent(node) is not outer
    )


def _leaves(script: Script, call: cst.Call) -> bool:
    """Whether what a call makes is saved, or handed to others at once."""
    holder = script.parent(call)
    if isinstance(holder, cst.Arg):
        return True
    if isinstance(holder, cst.Attribute):
        return holder.attr.value == "save"
    if not isinstance(holder, cst.Assign):
        return False
    names = {script.code(each.target) for each in holder.targets}
    return any(
        isinstance(saved.func, cst.Attribute) and script.code(saved.func.value) in names
        for saved in script.method_calls("save")
    )


def _is_trained(script: Script, call: cst.Call, given: cst.BaseExpression) -> bool:
    """Whether a network is one that the file trains, or a part of one."""
    if isinstance(given, cst.Call) and isinstance(given.func, cst.Attribute):
        if given.func.attr.value == "eval":
            return False
    function = script.function(call)
    if function is not None and not _WAYS.isdisjoint(script.words(function.name.value)):
        if not script.functions.callers(function):
            return False
    owner = script.scopes.class_of(function) if function is not None else None
    if owner is not None and "torch.nn.Module" in script.functions.bases(owner):
        return True
    steps = [step.backward for step in script.steps.all]
    beside = [step for step in steps if script.function(step) is function]
    if not beside:
        return bool(steps)
    return any(script.tree.order(call) < script.tree.order(step) for step in beside)
