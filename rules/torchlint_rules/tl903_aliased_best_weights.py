"""TL903: the best weights that go on training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Kind, Loop, Role, Rule, Safety, Script
from torchlint_rules._keptweights import is_saved, stays

_BEST: Final = frozenset("best better improved improves improvement lowest highest min max".split())
_NETWORKS: Final = (Kind.MODULE, Kind.UNKNOWN)
_SHALLOW: Final = frozenset({"copy.copy", "builtins.dict", "collections.OrderedDict"})
_ORDERED: Final = (cst.LessThan, cst.GreaterThan, cst.LessThanEqual, cst.GreaterThanEqual)


class AliasedBestWeights(Rule):
    """
    ## What it does
    Flags weights that are kept as the best so far without a copy: `best = model.state_dict()`, a
    shallow copy of it, or the network itself.

    ## Why it is slow
    It is worse than slow. A state dict holds the live parameters, and each further step of the
    optimizer changes them: in the end the "best" weights are the last ones, and every epoch after
    the best was trained for nothing.

    ## When not to
    A state dict that is saved to disk at once needs no copy, nor does one that no training
    follows, or one of a network that each pass of the loop makes anew.

    ## Fix safety
    Exact where the kept weights are only written to disk: training stays bit for bit what it was,
    and the file holds the best weights. Unsafe where the script goes on to use them, for from there
    on it has the best weights instead of the last. The copy takes as much memory as the network.
    """

    code = "TL903"
    name = "aliased-best-weights"
    summary = "the best weights are not copied and go on training"
    impact = "medium"
    safety = Safety.EXACT
    articles = ("S2",)
    needs = ("best", "state_dict")

    invalid = {
        "saved again by the passes in which nothing got better": """
            + import copy
              import torch
              from mine import evaluate, model, train
              best_loss = 1e9
              for epoch in range(10):
                  train(model)
                  loss = evaluate(model)
                  if loss < best_loss:
                      best_loss = loss
            -         snap = {"epoch": epoch, "model": model.state_dict()}
            +         snap = {"epoch": epoch, "model": copy.deepcopy(model.state_dict())}
                      torch.save(snap, "best.pt")
                  torch.save(snap, "last.pt")
            """,
        "kept for the file that is written in the end": """
            + import copy
              import torch
              from mine import evaluate, loader, model, optimizer
              best_loss, best_weights = 1e9, None
              for epoch in range(10):
                  for x, y in loader:
                      model(x, y).backward()
                      optimizer.step()
                  loss = evaluate(model)
                  if loss < best_loss:
                      best_loss = loss
            -         best_weights = model.state_dict()
            +         best_weights = copy.deepcopy(model.state_dict())
              torch.save(best_weights, "best.pt")
            """,
        "loaded again, which makes it unsafe": """
              from copy import deepcopy
              import torch
              def fit(model, optimizer, loader, evaluate):
                  best, best_wts = 0.0, deepcopy(model.state_dict())
                  for epoch in range(10):
                      for x, y in loader:
                          model(x, y).backward()
                          optimizer.step()
                      accuracy = evaluate(model)
                      if accuracy > best:
            -             best, best_wts = accuracy, model.state_dict()
            +             best, best_wts = accuracy, deepcopy(model.state_dict())
                  model.load_state_dict(best_wts)
                  return model
            """,
        "a dictionary of states, the optimizer's too": """
              import copy
              import torch
              from mine import evaluate, loader, model, optimizer
              best_loss = 1e9
              for epoch in range(10):
                  for x, y in loader:
                      model(x, y).backward()
                      optimizer.step()
                  loss = evaluate(model)
                  if loss < best_loss:
                      best_loss = loss
            !         checkpoint = {
                          "epoch": epoch,
            -             "model": model.state_dict(),
            -             "optimizer": optimizer.state_dict(),
            +             "model": copy.deepcopy(model.state_dict()),
            +             "optimizer": copy.deepcopy(optimizer.state_dict()),
                      }
              torch.save(checkpoint, "best.pt")
            """,
        "in a tuple, and as a dictionary of the same tensors": """
            + import copy
              import torch
              from mine import evaluate, loader, model, optimizer
              best, best_weights = (1e9, None), None
              for epoch in range(10):
                  for x, y in loader:
                      model(x, y).backward()
                      optimizer.step()
                  loss = evaluate(model)
                  if loss < best[0]:
            -         best = (loss, model.state_dict())
            -         best_weights = {k: v for k, v in model.state_dict().items()}
            +         best = (loss, copy.deepcopy(model.state_dict()))
            +         best_weights = {k: v for k, v in copy.deepcopy(model.state_dict()).items()}
              torch.save(best, "best.pt")
              torch.save(best_weights, "weights.pt")
            """,
        "a shallow copy holds the same tensors": """
              import copy
              import torch
              from mine import evaluate, model, train
              best = {"loss": 1e9}
              for epoch in range(10):
                  train(model)
                  loss = evaluate(model)
                  if loss < best["loss"]:
                      best["loss"] = loss
            -         best["model"] = copy.copy(model.state_dict())
            -         best["same"] = model.state_dict().copy()
            +         best["model"] = copy.deepcopy(model.state_dict())
            +         best["same"] = copy.deepcopy(model.state_dict()).copy()
              torch.save(best, "best.pt")
            """,
        "an early stopper keeps them in an attribute": """
            + import copy
              class EarlyStopping:
                  def __init__(self):
                      self.best_loss, self.best_state, self.bad = float("inf"), None, 0
                  def step(self, loss, model):
                      if loss < self.best_loss:
                          self.best_loss = loss
            -             self.best_state = model.state_dict()
            +             self.best_state = copy.deepcopy(model.state_dict())
                          self.bad = 0
                      else:
                          self.bad += 1
                  def restore(self, model):
                      model.load_state_dict(self.best_state)
              import torch
            """,
        "the network itself": """
              import copy
              import torch
              from mine import Net, evaluate, loader, optimizer
              model = Net().cuda()
              best_loss, best_model = 1e9, None
              for epoch in range(10):
                  for x, y in loader:
                      model(x, y).backward()
                      optimizer.step()
                  loss = evaluate(model)
                  if loss < best_loss:
            -         best_loss, best_model = loss, model
            +         best_loss, best_model = loss, copy.deepcopy(model)
              print(evaluate(best_model))
            """,
        "the word copy is taken": """
              import torch
              from mine import copy, evaluate, model, train
              best, weights = 0.0, None
              for epoch in range(10):
                  train(model)
                  score = evaluate(copy(model))
                  if score > best:
                      best = score
            !         weights = model.state_dict()
              torch.save(weights, "best.pt")
            """,
    }
    valid = {
        "copied": """
            import copy
            import torch
            from mine import evaluate, model, train
            best_loss = 1e9
            for epoch in range(10):
                train(model)
                loss = evaluate(model)
                if loss < best_loss:
                    best_loss, best_weights = loss, copy.deepcopy(model.state_dict())
            torch.save(best_weights, "best.pt")
            """,
        "a checkpoint that is loaded before the loop and written in it": """
            import torch
            from mine import evaluate, model, train
            checkpoint = torch.load("last.pt")
            model.load_state_dict(checkpoint["model"])
            best_loss = checkpoint["best_loss"]
            while True:
                train(model)
                loss = evaluate(model)
                if loss < best_loss:
                    best_loss = loss
                    checkpoint = {"model": model.state_dict(), "best_loss": loss}
                    torch.save(checkpoint, "last.pt")
            """,
        "copied tensor by tensor": """
            import torch
            from mine import evaluate, model, train
            best_loss = 1e9
            for epoch in range(10):
                train(model)
                loss = evaluate(model)
                if loss < best_loss:
                    best_loss = loss
                    best_weights = {k: v.detach().clone() for k, v in model.state_dict().items()}
            torch.save(best_weights, "best.pt")
            """,
        "fetched from the GPU, which is a copy": """
            import torch
            from mine import evaluate, model, train
            best_loss = 1e9
            for epoch in range(10):
                train(model)
                loss = evaluate(model)
                if loss < best_loss:
                    best_loss = loss
                    best_weights = {k: v.cpu() for k, v in model.state_dict().items()}
            torch.save(best_weights, "best.pt")
            """,
        "written to disk at once": """
            import torch
            from mine import evaluate, model, train
            best_loss = 1e9
            for epoch in range(10):
                train(model)
                loss = evaluate(model)
                if loss < best_loss:
                    best_loss = loss
                    best_state = {"epoch": epoch, "model": model.state_dict()}
                    torch.save(best_state, "best.pt")
            """,
        "written to disk by a method": """
            import torch
            class Saver:
                def step(self, loss, model):
                    if loss < self.best_loss:
                        self.best_loss = loss
                        self.best_state = model.state_dict()
                        torch.save(self.best_state, "best.pt")
            """,
        "each pass trains a network of its own": """
            import torch
            from mine import Net, evaluate, train
            best_score = 0.0
            for lr in (0.1, 0.01):
                model = Net()
                for epoch in range(10):
                    train(model, lr)
                score = evaluate(model)
                if score > best_score:
                    best_score, best_weights = score, model.state_dict()
            torch.save(best_weights, "best.pt")
            """,
        "nothing is trained any more": """
            import torch
            from mine import evaluate, model, train
            best_loss = 0.1
            for epoch in range(10):
                train(model)
                if evaluate(model) < best_loss:
                    best_weights = model.state_dict()
                    break
            torch.save(best_weights, "best.pt")
            """,
        "what is saved is taken anew in every pass": """
            import torch
            from mine import evaluate, model, train
            best_loss = 1e9
            for epoch in range(10):
                train(model)
                loss = evaluate(model)
                snap = {"epoch": epoch, "model": model.state_dict()}
                if loss < best_loss:
                    best_loss = loss
                    snap = {"epoch": epoch, "best": loss, "model": model.state_dict()}
                torch.save(snap, "last.pt")
            """,
        "taken behind the loop": """
            import torch
            from mine import model, train
            for epoch in range(10):
                train(model)
            best_weights = model.state_dict()
            torch.save(best_weights, "last.pt")
            """,
        "taken in every pass: it is the last one on purpose": """
            import torch
            from mine import model, train
            for epoch in range(10):
                train(model)
                weights = model.state_dict()
            torch.save(weights, "last.pt")
            """,
        "the name of a file": """
            import torch
            from mine import evaluate, model, train
            best_loss = 1e9
            for epoch in range(10):
                train(model)
                loss = evaluate(model)
                if loss < best_loss:
                    best_loss, best_model = loss, f"model-{epoch}.pt"
                    torch.save(model.state_dict(), best_model)
            print(best_model)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every state dict, and every network, that is kept as the best without a copy."""
        for line in _candidates(script):
            for target, value in _pairs(line):
                live = _live(script, value)
                whole = not live and _is_network(script, target, value)
                if not live and not whole:
                    continue
                owner = value if whole else _owner(live[0])
                if not _is_kept(script, line, target, owner):
                    continue
                name, network = script.code(target), script.code(owner)
                held = (
                    f"is `{network}` itself" if whole else f"holds the live weights of `{network}`"
                )
                message = (
                    f"`{name}` {held}, which go{'es' if whole else ''} on training: in the end it "
                    "is the last, not the best; keep a deep copy"
                )
                fix = _fix(script, target, [value] if whole else live, whole)
                yield Finding(self.code, script.span(line), message, fix)


def _candidates(script: Script) -> Iterator[cst.Assign]:
    """Yield the assignments that take a state dict, and those of a name to a name."""
    taking = {id(_line(script, call)) for call in script.method_calls("state_dict")}
    for line in script.all(cst.Assign):
        if id(line) in taking or isinstance(line.value, (cst.Name, cst.Attribute, cst.Tuple)):
            yield line


def _line(script: Script, node: cst.CSTNode) -> cst.CSTNode | None:
    """Give the assignment that a node is a part of."""
    at: cst.CSTNode | None = node
    while at is not None and not isinstance(at, (cst.Assign, cst.BaseStatement)):
        at = script.parent(at)
    return at


def _pairs(line: cst.Assign) -> list[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Give the targets of an assignment with what each gets."""
    if len(line.targets) != 1:
        return []
    target, value = line.targets[0].target, line.value
    if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
        return [
            (one.value, other.value)
            for one, other in zip(target.elements, value.elements, strict=False)
        ]
    return [(target, value)]


def _is_network(script: Script, target: cst.BaseExpression, value: cst.BaseExpression) -> bool:
    """Whether a target that is named the best gets a network itself."""
    if not isinstance(value, (cst.Name, cst.Attribute)) or not _speaks(script, target):
        return False
    return script.kind(value) is Kind.MODULE


def _owner(call: cst.Call) -> cst.BaseExpression:
    assert isinstance(call.func, cst.Attribute)
    return call.func.value


def _live(script: Script, value: cst.BaseExpression) -> list[cst.Call]:
    """Give the calls of `state_dict` whose live tensors a value holds, a network's first."""
    if isinstance(value, cst.Dict):
        found = [
            call
            for each in value.elements
            if isinstance(each, cst.DictElement)
            for call in _live(script, each.value)
        ]
        networks = [call for call in found if script.kind(_owner(call)) in _NETWORKS]
        return [*networks, *(call for call in found if call not in networks)] if networks else []
    if isinstance(value, cst.Tuple):
        return [call for each in value.elements for call in _live(script, each.value)]
    if isinstance(value, cst.DictComp):
        return _live(script, _gone_through(value))
    if not isinstance(value, cst.Call):
        return []
    func = value.func
    if isinstance(func, cst.Attribute) and func.attr.value == "state_dict":
        return [value] if script.kind(func.value) in (*_NETWORKS, Kind.OPTIMIZER) else []
    if isinstance(func, cst.Attribute) and func.attr.value == "copy" and not value.args:
        return _live(script, func.value)
    if script.name(func) in _SHALLOW and len(value.args) == 1 and not value.args[0].star:
        return _live(script, value.args[0].value)
    return []


def _gone_through(value: cst.DictComp) -> cst.BaseExpression:
    """Give the mapping of which `{k: v for k, v in state.items()}` keeps the very values."""
    drawn, target = value.for_in.iter, value.for_in.target
    if not isinstance(drawn, cst.Call) or not isinstance(drawn.func, cst.Attribute):
        return value.value
    if drawn.func.attr.value != "items" or not isinstance(target, cst.Tuple):
        return value.value
    second = target.elements[-1].value
    kept = isinstance(value.value, cst.Name) and value.value.deep_equals(second)
    return drawn.func.value if kept else value.value


# -- what is kept -------------------------------------------------------------


def _is_kept(
    script: Script, line: cst.Assign, target: cst.BaseExpression, owner: cst.BaseExpression
) -> bool:
    """Whether a target keeps the best so far of a network that goes on training."""
    root = _root(target)
    if script.kind(owner) not in _NETWORKS or not _is_guarded(script, line, target):
        return False
    if isinstance(root, cst.Attribute):
        return _speaks(script, target) and not _is_used_at_once(script, line, root)
    loop = _training(script, line, owner)
    bound = script.scopes.stored(root)
    return loop is not None and any(
        script.tree.order(use) >= script.tree.end(loop.node)
        or (
            script.tree.inside(use, loop.node)
            and script.tree.order(use) < script.tree.order(line)
            and (bound is None or bound in script.scopes.reaching(use))
        )
        or (bound is not None and stays(script, line, bound, loop, use))
        for use in _uses(script, root)
    )


def _root(target: cst.BaseExpression) -> cst.BaseExpression:
    while isinstance(target, cst.Subscript):
        target = target.value
    return target


def _speaks(script: Script, node: cst.CSTNode) -> bool:
    """Whether a name in an expression says that something is the best."""
    said = [name.value for name in script.within(node, cst.Name)]
    said += [attribute.attr.value for attribute in script.within(node, cst.Attribute)]
    said += [text.value for text in script.within(node, cst.SimpleString)]
    return any(not _BEST.isdisjoint(script.words(name)) for name in said)


def _is_guarded(script: Script, line: cst.Assign, target: cst.BaseExpression) -> bool:
    """Whether a line runs when something got better, and is not the end of all training."""
    if any(isinstance(each, (cst.Break, cst.Return, cst.Raise)) for each in script.beside(line)):
        return False
    return any(
        _speaks(script, test)
        or (
            _speaks(script, target)
            and any(
                isinstance(each.operator, _ORDERED)
                for each in script.within(test, cst.ComparisonTarget)
            )
        )
        for test in script.tests_around(line)
    )


def _training(script: Script, line: cst.Assign, owner: cst.BaseExpression) -> Loop | None:
    """Give the loop around a line that trains a network which was made before it."""
    root: cst.BaseExpression = owner
    while isinstance(root, cst.Attribute):
        root = root.value
    bindings = script.scopes.reaching(root) if isinstance(root, cst.Name) else ()
    for loop in script.loops_around(line):
        trains = loop.role in (Role.EPOCH, Role.TRAIN_BATCH) or (
            isinstance(loop.node, cst.For)
            and isinstance(loop.node.target, cst.Name)
            and "epoch" in script.words(loop.node.target.value)
        )
        if trains and not any(script.tree.inside(each.node, loop.node) for each in bindings):
            return loop
    return None


def _uses(script: Script, root: cst.BaseExpression) -> list[cst.Name]:
    """Give the places of the same scope that read a name."""
    if not isinstance(root, cst.Name):
        return []
    scope = script.scopes.scope(root)
    return [
        name
        for name in script.within(scope.node, cst.Name)
        if name.value == root.value
        and script.scopes.reads(name)
        and not _is_target(script, name)
        and script.scopes.lookup(name.value, script.scopes.scope(name)) is scope
    ]


def _is_target(script: Script, name: cst.Name) -> bool:
    """Whether a name stands for what a key is set of (`best["model"] = …`)."""
    holder = script.parent(name)
    return isinstance(holder, cst.Subscript) and isinstance(
        script.parent(holder), (cst.AssignTarget, cst.Comparison)
    )


def _is_used_at_once(script: Script, line: cst.Assign, root: cst.Attribute) -> bool:
    """Whether the block of a line goes on to use the attribute that it sets."""
    block = script.parent(script.statement(line))
    return block is not None and any(
        other.attr.value == root.attr.value
        and script.scopes.stored(other) is None
        and script.tree.order(other) > script.tree.order(line)
        for other in script.within(block, cst.Attribute)
    )


# -- the fix ------------------------------------------------------------------


def _fix(
    script: Script,
    target: cst.BaseExpression,
    copied: list[cst.BaseExpression] | list[cst.Call],
    whole: bool,
) -> Fix | None:
    found = script.rewrite.importing("copy", "deepcopy")
    if found is None or found[1]:
        module = script.rewrite.importing("copy")
        found = (f"{module[0]}.deepcopy", module[1]) if module is not None else None
    if found is None:
        return None
    word, edits = found
    for value in copied:
        edits = (*edits, *_copied(script, value, word))
    title = f"Keep a deep copy in {script.code(target)}"
    if not whole and all(is_saved(script, use) for use in _uses(script, _root(target))):
        if not isinstance(_root(target), cst.Attribute):
            return Fix.exact(title, edits)
    return Fix.unsafe(
        title, edits, because="what is used later are the best weights instead of the last"
    )


def _copied(script: Script, value: cst.BaseExpression, word: str) -> Edits:
    """Give the edits that copy a value deeply, a shallow copy around it gone."""
    holder = script.parent(value)
    outer = script.parent(holder) if isinstance(holder, cst.Arg) else None
    if isinstance(outer, cst.Call) and script.name(outer.func) == "copy.copy":
        return script.rewrite.replace(outer.func, word)
    span = script.span(value)
    return (
        *script.rewrite.insert(span.start, f"{word}("),
        *script.rewrite.insert(span.end, ")"),
    )
