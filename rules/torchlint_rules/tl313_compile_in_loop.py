"""TL313: a network that is compiled again in every pass of a loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Heat, Kind, Rule, Safety, Script

_COMPILE: Final = "torch.compile"
_METHODS: Final = ("forward", "training_step", "__call__")
_KERAS: Final = frozenset("optimizer loss metrics loss_weights".split())
_KEYS: Final = "checkpoints lose the prefix `_orig_mod.` that each further wrapping put before keys"


class CompileInLoop(Rule):
    """
    ## What it does
    Flags `torch.compile(...)` and `model.compile()` in a loop that changes nothing of what is
    compiled, in `forward`, and in functions that run once a batch.

    ## Why it is slow
    Every call wraps the network anew, and the new wrapper looks for compiled code when it first
    runs: 2 ms where it finds some, 181 ms and more where it does not and compiles again.

    ## When not to
    A network that is made in the loop (one per fold, one per setting), a mode that the loop tries
    out, and a call behind a test of the loop's own counter are not flagged.

    ## Fix safety
    Exact: the line moves before the loop. Unsafe where a name is compiled onto itself and weights
    are saved or loaded, for keys change. There is no fix for a call in a function or under an `if`.
    """

    code = "TL313"
    name = "compile-in-loop"
    summary = "a network is compiled again and again"
    impact = "medium"
    safety = Safety.EXACT
    articles = ("S1",)
    needs = (
        "torch.compile", "th.compile", "T.compile", "import compile", "model.compile", "net.compile",
    )  # fmt: skip
    since = (2, 0)

    invalid = {
        "in the epoch loop": """
              import torch
              def fit(model, loader, optimizer, epochs):
            +     fast = torch.compile(model)
                  for epoch in range(epochs):
            -         fast = torch.compile(model)
                      for x, y in loader:
                          fast(x).sub(y).square().mean().backward()
                          optimizer.step()
            """,
        "in the batch loop: before the epochs": """
              import torch
              def fit(model, loader, epochs):
            +     fast = torch.compile(model, mode="reduce-overhead")
                  for epoch in range(epochs):
                      for x in loader:
            -             fast = torch.compile(model, mode="reduce-overhead")  # see the notes
            +             # see the notes
                          fast(x)
            """,
        "onto itself, wrapped once more in every pass": """
              import torch
              def fit(model, batches):
            +     model = torch.compile(model)
                  for x in batches:
            -         model = torch.compile(model)
                      model(x)
            """,
        "one network for each fold, compiled for every epoch": """
              import torch
              from torch import nn
              def fit(folds):
                  for fold in folds:
                      net = nn.Linear(4, 4)
            +         fast = torch.compile(net)
                      for x in fold:
            -             fast = torch.compile(net)
                          fast(x)
            """,
        "the method that compiles in place": """
              import torch
              from torch import nn
              model = nn.Linear(4, 4)
            + model.compile()
              for epoch in range(10):
            -     model.compile()
                  model(torch.ones(4))
            """,
        "where it is used": """
              import torch
              def fit(model, batches):
                  for x in batches:
            !         torch.compile(model)(x)
            """,
        "under a flag": """
              import torch
              def fit(model, batches, use_compile):
                  for x in batches:
                      if use_compile:
            !             model = torch.compile(model)
                      model(x)
            """,
        "in forward": """
              import torch
              from torch import nn
              class Net(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.block = nn.Linear(4, 4)
                  def forward(self, x):
            !         block = torch.compile(self.block)
                      return block(x)
            """,
        "in a function that runs once a batch": """
              import torch
              def step(model, x):
            !     fast = torch.compile(model)
                  return fast(x).mean()
              def fit(model, loader, optimizer):
                  for x, y in loader:
                      loss = step(model, x)
                      loss.backward()
                      optimizer.step()
            """,
        "a function that forward makes and compiles": """
              import torch
              from torch import nn
              class Net(nn.Module):
                  def forward(self, x):
            !         @torch.compile
                      def act(v):
                          return v.relu()
                      return act(x)
            """,
    }
    valid = {
        "before the loop": """
            import torch
            def fit(model, loader):
                model = torch.compile(model)
                for x in loader:
                    model(x)
            """,
        "each pass makes a network of its own": """
            import torch
            from torch import nn
            def fit(folds):
                for fold in folds:
                    model = nn.Linear(4, 4)
                    model = torch.compile(model)
                    model(fold)
            """,
        "each pass compiles another network": """
            import torch
            def compile_all(models):
                for model in models:
                    model.compile()
                return [torch.compile(model) for model in models]
            def compile_blocks(net):
                for i in range(len(net.blocks)):
                    net.blocks[i] = torch.compile(net.blocks[i])
            """,
        "modes are compared": """
            import torch
            def compare(model, x):
                for mode in ("default", "reduce-overhead"):
                    torch.compile(model, mode=mode)(x)
            """,
        "only in one pass": """
            import torch
            def fit(model, loader):
                for step, x in enumerate(loader):
                    if step == 0:
                        model = torch.compile(model)
                    model(x)
            """,
        "a flag that is lowered at once": """
            import torch
            def fit(model, loader):
                compiled = False
                for x in loader:
                    if not compiled:
                        model, compiled = torch.compile(model), True
                    model(x)
            """,
        "compiled from scratch on purpose": """
            import torch
            def measure(model, x):
                for _ in range(5):
                    torch._dynamo.reset()
                    torch.compile(model)(x)
            """,
        "handed to something that measures it": """
            import torch
            def compare(f, timeit, x):
                for size in (10, 100):
                    timeit(funcs=[f, torch.compile(f)], args=x[:size])
            """,
        "a benchmark": """
            import torch
            def benchmark(model, loader):
                for x in loader:
                    fast = torch.compile(model)
                    fast(x)
            """,
        "regular expressions and Keras compile as well": """
            import re
            import torch
            def scan(lines, model):
                for line in lines:
                    re.compile(line)
                    model.compile(optimizer="adam", loss="mse")
                print(torch.compile)
            """,
        "a class decorates its own forward": """
            import torch
            from torch import nn
            class Net(nn.Module):
                @torch.compile
                def forward(self, x):
                    return x
            """,
        "the pass leaves the loop": """
            import torch
            def first(model, batches):
                for x in batches:
                    fast = torch.compile(model)
                    return fast(x)
            """,
        "kept for the next time": """
            import torch
            from torch import nn
            class Net(nn.Module):
                def forward(self, x):
                    if self.fast is None:
                        self.fast = torch.compile(self.block)
                    return self.fast(x)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every compilation that runs again and again for the same network."""
        if "_dynamo.reset" in script.source.text or "compiler.reset" in script.source.text:
            return
        for call in _compilations(script):
            if not _is_used_here(script, call) or script.heat(call) is Heat.COLD:
                continue
            loop = _loop(script, call)
            if loop is not None:
                named = script.code(loop.iter) if isinstance(loop, cst.For) else "while"
                where = f"in every pass of the loop over `{named}`" if named != "while" else ""
                where = where or "in every pass of the loop"
                yield self._finding(script, call, where, _fix(script, call, loop))
            elif loop is None and _runs_often(script, call):
                function = script.function(call)
                named = function.name.value if function is not None else ""
                yield self._finding(script, call, f"in every call of `{named}`", None)
        yield from self._decorated(script)

    def _finding(self, script: Script, call: cst.Call, where: str, fix: Fix | None) -> Finding:
        what = _compiled(script, call)
        message = f"{what} is compiled again {where}: compile it once, before"
        return Finding(self.code, script.span(call), message, fix)

    def _decorated(self, script: Script) -> Iterator[Finding]:
        for mark in script.all(cst.Decorator):
            named = mark.decorator.func if isinstance(mark.decorator, cst.Call) else mark.decorator
            inner = script.parent(mark)
            if script.name(named) != _COMPILE or not isinstance(inner, cst.FunctionDef):
                continue
            outer = script.function(inner)
            if outer is not None and outer.name.value in _METHODS:
                message = (
                    f"`{inner.name.value}` is compiled again in every call of "
                    f"`{outer.name.value}`: define it outside"
                )
                yield Finding(self.code, script.span(mark), message)


def _compilations(script: Script) -> Iterator[cst.Call]:
    for site in script.calls(_COMPILE):
        if not isinstance(script.parent(site.node), cst.Decorator):
            yield site.node
    for call in script.method_calls("compile"):
        if script.name(call.func) is None and isinstance(call.func, cst.Attribute):
            keywords = {arg.keyword.value for arg in call.args if arg.keyword is not None}
            if not keywords & _KERAS and script.kind(call.func.value) is Kind.MODULE:
                yield call


def _is_method(script: Script, call: cst.Call) -> bool:
    return script.name(call.func) != _COMPILE


def _is_used_here(script: Script, call: cst.Call) -> bool:
    """Whether a compiled network gets a name or runs at once: others may measure it."""
    holder = script.parent(call)
    if isinstance(holder, cst.Call):
        return holder.func is call
    return isinstance(holder, (cst.Assign, cst.AnnAssign, cst.Expr))


def _compiled(script: Script, call: cst.Call) -> str:
    """Name what is compiled."""
    if isinstance(call.func, cst.Attribute) and _is_method(script, call):
        return f"`{script.code(call.func.value)}`"
    return f"`{script.code(call.args[0].value)}`" if call.args else "a function"


def _loop(script: Script, call: cst.Call) -> cst.For | cst.While | None:
    """Give the outermost loop of whose passes a compilation does not depend."""
    found: cst.For | cst.While | None = None
    for loop in script.loops_around(call):
        if _depends(script, call, loop.node) or _leaves(script, call, loop.node):
            break
        found = loop.node
    return found


def _depends(script: Script, call: cst.Call, loop: cst.For | cst.While) -> bool:
    """Whether what is compiled, or whether it is, changes with the passes of a loop."""
    line = script.smallest_statement(call)
    guards = [test for test in script.tests_around(call) if script.tree.inside(test, loop)]
    regions: list[cst.CSTNode] = [call, *guards]
    for region in regions:
        for name in script.within(region, cst.Name):
            bindings = script.scopes.reaching(name)
            own = [each for each in bindings if not script.tree.inside(each.node, line)]
            if any(script.tree.inside(each.node, loop) for each in own):
                return True
            if len(own) < len(bindings) and (region is not call or isinstance(line, cst.For)):
                return True
    stored = any(
        script.tree.inside(target, line)
        and isinstance(target.target, (cst.Subscript, cst.Attribute))
        for target in script.within(line, cst.AssignTarget)
    )
    return stored or bool(guards and _settles(script, guards, line))


def _settles(script: Script, guards: list[cst.BaseExpression], line: cst.CSTNode) -> bool:
    """Whether the branch that compiles sees to it that it is not taken again."""
    tested = {name.value for test in guards for name in script.within(test, cst.Name)}
    block = script.parent(line)
    return any(
        name.value in tested and not script.scopes.reads(name)
        for name in script.within(block if block is not None else line, cst.Name)
    )


def _leaves(script: Script, call: cst.Call, loop: cst.For | cst.While) -> bool:
    """Whether the pass that compiles surely ends the loop."""
    first = script.tree.order(script.smallest_statement(call))
    return any(
        isinstance(each, (cst.Return, cst.Break, cst.Raise)) and script.tree.order(each) >= first
        for each in script.beside(call)
    )


def _runs_often(script: Script, call: cst.Call) -> bool:
    """Whether a call stands in `forward` or in a function that runs once a batch."""
    function = script.function(call)
    if function is None or next(script.loops_around(call), None) is not None:
        return False
    if any(True for _ in script.tests_around(call)):
        return False
    targets = script.within(script.statement(call), cst.AssignTarget)
    if any(isinstance(each.target, cst.Attribute) for each in targets):
        return False
    owner = script.scopes.class_of(function)
    if owner is not None and function.name.value in _METHODS:
        return True
    return script.heat(call) is Heat.HOT


def _fix(script: Script, call: cst.Call, loop: cst.For | cst.While) -> Fix | None:
    edits = _hoisted(script, call, loop)
    if edits is None:
        return None
    line = script.statement(call)
    targets = list(script.within(line, cst.AssignTarget))
    target = targets[0].target if targets else None
    named = target.value if isinstance(target, cst.Name) else ""
    onto_itself = any(name.value == named for name in script.within(call, cst.Name))
    title = "Compile before the loop"
    if onto_itself and "state_dict" in script.source.text:
        return Fix.unsafe(title, edits, because=_KEYS)
    return Fix.exact(title, edits)


def _hoisted(script: Script, call: cst.Call, loop: cst.For | cst.While) -> Edits | None:
    """Move the line of a compilation before a loop."""
    line, rewrite = script.statement(call), script.rewrite
    if not isinstance(line, cst.SimpleStatementLine) or not rewrite.stands_alone(line):
        return None
    small, code = line.body[0], script.code(line)
    if not rewrite.stands_alone(loop) or "\n" in code or not _stands_in_loops(script, line, loop):
        return None
    if any(each is not call for each in script.within(line, cst.Call)):
        return None
    if isinstance(small, cst.Expr):
        simple = small.value is call and _is_method(script, call)
        return (*rewrite.before(loop, code), *rewrite.drop(line)) if simple else None
    if not isinstance(small, cst.Assign) or small.value is not call or len(small.targets) != 1:
        return None
    target = small.targets[0].target
    if not isinstance(target, cst.Name) or target.value in script.scopes.scope(target).outward:
        return None
    for name in script.within(loop, cst.Name):
        if name.value != target.value or script.tree.inside(name, line):
            continue
        if not script.scopes.reads(name) or script.tree.order(name) < script.tree.order(line):
            return None
    return (*rewrite.before(loop, code), *rewrite.drop(line))


def _stands_in_loops(script: Script, line: cst.CSTNode, loop: cst.CSTNode) -> bool:
    """Whether nothing but loops stands between a loop and a line of it."""
    at = script.parent(line)
    while at is not None and at is not loop:
        if not isinstance(at, (cst.IndentedBlock, cst.For, cst.While)):
            return False
        at = script.parent(at)
    return at is loop
