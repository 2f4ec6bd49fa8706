"""TL104: a loader that every epoch makes anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    CallSite,
    Edits,
    Finding,
    Fix,
    How,
    Loop,
    Role,
    Rule,
    Safety,
    Sameness,
    Script,
    State,
)

_LOADER: Final = "torch.utils.data.DataLoader"
_DEPTH: Final = 3


class LoaderBuiltInLoop(Rule):
    """
    ## What it does
    Flags a `DataLoader` that is made anew in each epoch out of the same things, in the epoch loop
    itself or in a function that the loop calls.

    ## Why it is slow
    A loader that lives for one epoch cannot keep its workers: they start, import and open their
    files again each time, whatever `persistent_workers` says. On 512 samples an epoch took 42 ms
    instead of the 12 ms of one loader that keeps its two workers. Often the dataset is made anew
    with it, and reads its index again.

    ## When not to
    Where the loader depends on the epoch or the fold (another subset, another batch size, a new
    split), on something that the loop changes, or on what a function out of sight gives: the rule
    is silent there.

    ## Fix safety
    Exact: making a loader draws no random numbers. Unsafe with `persistent_workers`, for workers
    that live on draw one random number fewer in each epoch, and with a generator that is seeded in
    the call, which would start anew no longer. No fix where a function or the dataset has to
    change with it, or where the name of the loader gets other values.
    """

    code = "TL104"
    name = "loader-built-in-loop"
    summary = "every epoch makes the same loader anew"
    impact = "medium"
    safety = Safety.EXACT
    articles = ("S2",)
    needs = ("DataLoader",)

    invalid = {
        "the network, which is imported, learns by itself": """
              from torch.utils.data import DataLoader
              from mine import Learner, Tasks
              model = Learner().cuda()
              tasks = Tasks()
            + db = DataLoader(tasks, 4, shuffle=True)
              for epoch in range(9):
            -     db = DataLoader(tasks, 4, shuffle=True)
                  for x, y in db:
                      accuracy = model(x.cuda(), y.cuda())
            """,
        "in the epoch loop": """
              from torch.utils.data import DataLoader
              from mine import data, model, optimizer
            + # batches of 32
            + loader = DataLoader(data, batch_size=32, shuffle=True)  # shuffled
              for epoch in range(10):
            -     # batches of 32
            -     loader = DataLoader(data, batch_size=32, shuffle=True)  # shuffled
                  for x, y in loader:
                      model(x, y).backward()
                      optimizer.step()
            """,
        "two loaders in one line, over several lines": """
              from torch.utils import data
              from mine import held, model, rows
              def main(args):
            +     train_loader, test_loader = (
            +         data.DataLoader(rows, args.batch_size),
            +         data.DataLoader(held, args.batch_size),
            +     )
                  for epoch in range(args.epochs):
            -         train_loader, test_loader = (
            -             data.DataLoader(rows, args.batch_size),
            -             data.DataLoader(held, args.batch_size),
            -         )
                      for x, y in train_loader:
                          model(x, y).backward()
                      for x, y in test_loader:
                          print(model(x, y))
            """,
        "the sampler is made with it": """
              from torch.utils.data import DataLoader, WeightedRandomSampler
              from mine import data, model, weights
            + loader = DataLoader(data, sampler=WeightedRandomSampler(weights, len(data)))
              for epoch in range(10):
                  model.train()
            -     loader = DataLoader(data, sampler=WeightedRandomSampler(weights, len(data)))
                  for x, y in loader:
                      model(x, y).backward()
            """,
        "in the head of the batch loop": """
              from torch.utils.data import DataLoader
              from mine import data, model
            + loader = DataLoader(data, batch_size=8)
              for epoch in range(10):
            -     for x, y in DataLoader(data, batch_size=8):
            +     for x, y in loader:
                      model(x, y).backward()
            """,
        "persistent workers make it unsafe": """
              from torch.utils.data import DataLoader
              from mine import data, model
            + loader = DataLoader(data, num_workers=2, persistent_workers=True)
              for epoch in range(10):
            -     loader = DataLoader(data, num_workers=2, persistent_workers=True)
                  for x, y in loader:
                      model(x, y).backward()
            """,
        "a generator that each epoch seeds anew makes it unsafe": """
              import torch
              from torch.utils.data import DataLoader
              from mine import data, model
            + loader = DataLoader(data, shuffle=True, generator=torch.Generator().manual_seed(0))
              for epoch in range(10):
            -     loader = DataLoader(data, shuffle=True, generator=torch.Generator().manual_seed(0))
                  for x, y in loader:
                      model(x, y).backward()
            """,
        "the dataset is made anew with it, which no fix moves": """
              from torch.utils.data import DataLoader
              from torchvision import datasets, transforms
              from mine import model
              for epoch in range(10):
                  data = datasets.MNIST("data", transform=transforms.ToTensor())
            !     loader = DataLoader(data, batch_size=32)
                  for x, y in loader:
                      model(x).backward()
            """,
        "a function that runs in each epoch": """
              from torch.utils.data import DataLoader
              def train(model, data, size):
            !     loader = DataLoader(data, batch_size=size, num_workers=2)
                  for x, y in loader:
                      model(x, y).backward()
              def main(model, data):
                  for epoch in range(10):
                      train(model, data, 32)
            """,
        "a method that runs in each epoch, through another one": """
              from torch.utils.data import DataLoader
              class Trainer:
                  def __init__(self, model, data):
                      self.model, self.data = model, data
                  def batches(self):
            !         return DataLoader(self.data, batch_size=8)
                  def epoch(self):
                      for x, y in self.batches():
                          self.model(x, y).backward()
                  def fit(self):
                      for epoch in range(10):
                          self.epoch()
            """,
        "the name gets another value": """
              from torch.utils.data import DataLoader
              from mine import data, model, prefetched
              for epoch in range(10):
            !     loader = DataLoader(data, batch_size=8)
                  loader = prefetched(loader)
                  for x, y in loader:
                      model(x, y).backward()
            """,
    }
    valid = {
        "the passes are no epochs": """
            from torch.utils.data import DataLoader
            from mine import model, tasks
            for name in tasks:
                db = DataLoader(tasks[name], 4)
                for x, y in db:
                    accuracy = model(x.cuda(), y.cuda())
            """,
        "made once": """
            from torch.utils.data import DataLoader
            from mine import data, model
            loader = DataLoader(data, batch_size=8)
            for epoch in range(10):
                for x, y in loader:
                    model(x, y).backward()
            """,
        "each fold has a subset of its own": """
            from torch.utils.data import DataLoader, Subset
            from mine import data, folds, model
            for fold, (chosen, held) in enumerate(folds.split(data)):
                loader = DataLoader(Subset(data, chosen), batch_size=8)
                for epoch in range(10):
                    for x, y in loader:
                        model(x, y).backward()
            """,
        "what the epoch makes possible: a curriculum": """
            from torch.utils.data import DataLoader
            from mine import data, easy_first, model
            for epoch in range(10):
                rows = easy_first(data, epoch)
                loader = DataLoader(rows, batch_size=8)
                for x, y in loader:
                    model(x, y).backward()
            """,
        "the batches grow": """
            from torch.utils.data import DataLoader
            from mine import data, model
            size = 8
            for epoch in range(10):
                loader = DataLoader(data, batch_size=size)
                for x, y in loader:
                    model(x, y).backward()
                size *= 2
            """,
        "the batches grow in an attribute": """
            from torch.utils.data import DataLoader
            from mine import args, data, model
            for epoch in range(10):
                loader = DataLoader(data, batch_size=args.size)
                for x, y in loader:
                    model(x, y).backward()
                args.size += 8
            """,
        "the generator is seeded with the epoch": """
            import torch
            from torch.utils.data import DataLoader
            from mine import data, model
            for epoch in range(10):
                loader = DataLoader(data, generator=torch.Generator().manual_seed(epoch))
                for x, y in loader:
                    model(x, y).backward()
            """,
        "each epoch splits the data anew": """
            from torch.utils.data import DataLoader, random_split
            from mine import data, model
            for epoch in range(10):
                train, held = random_split(data, [800, 200])
                for x, y in DataLoader(train, batch_size=8):
                    model(x, y).backward()
            """,
        "each epoch draws another part": """
            import torch
            from torch.utils.data import DataLoader, Subset
            from mine import data, model
            for epoch in range(10):
                part = Subset(data, torch.randperm(1000)[:100])
                for x, y in DataLoader(part, batch_size=8):
                    model(x, y).backward()
            """,
        "the dataset draws its negatives when it is made": """
            import random
            from torch.utils.data import DataLoader, Dataset
            from mine import model, rows
            class Pairs(Dataset):
                def __init__(self, rows):
                    self.pairs = [(row, random.choice(rows)) for row in rows]
                def __len__(self):
                    return len(self.pairs)
                def __getitem__(self, i):
                    return self.pairs[i]
            for epoch in range(10):
                for x, y in DataLoader(Pairs(rows), batch_size=8):
                    model(x, y).backward()
            """,
        "a function out of sight makes the dataset": """
            from torch.utils.data import DataLoader
            from mine import Rows, model
            for epoch in range(10):
                for x, y in DataLoader(Rows("train"), batch_size=8):
                    model(x, y).backward()
            """,
        "the loop collects what it then trains on": """
            from torch.utils.data import DataLoader
            from mine import model, play
            games = []
            for epoch in range(10):
                games.append(play(model))
                for x, y in DataLoader(games, batch_size=8):
                    model(x, y).backward()
            """,
        "the function gets something else in each epoch": """
            from torch.utils.data import DataLoader
            from mine import model, parts
            def train(part):
                for x, y in DataLoader(part, batch_size=8):
                    model(x, y).backward()
            for epoch in range(10):
                train(parts[epoch])
            """,
        "a loop over settings makes one loader for many epochs": """
            from torch.utils.data import DataLoader
            from mine import data, model
            for lr in (0.1, 0.01):
                loader = DataLoader(data, batch_size=8)
                for epoch in range(10):
                    for x, y in loader:
                        model(x, y, lr).backward()
            """,
        "only now and then": """
            from torch.utils.data import DataLoader
            from mine import data, evaluate, model, loader
            for epoch in range(10):
                for x, y in loader:
                    model(x, y).backward()
                if epoch % 5 == 0:
                    evaluate(model, DataLoader(data, batch_size=8))
            """,
        "another library's loader of the same name": """
            from torch_geometric.loader import DataLoader
            from mine import graphs, model
            for epoch in range(10):
                for graph in DataLoader(graphs, batch_size=8):
                    model(graph).backward()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loader that the passes of an epoch loop make out of the same things."""
        sites = list(script.calls(_LOADER))
        epochs = _epoch_loops(script) if sites else []
        for site in sites:
            found = _remade(script, site, epochs)
            if found is None:
                continue
            loop, runs, sameness = found
            label = script.loaders.label(site.node)
            if runs:
                function = script.function(site.node)
                assert function is not None
                message = (
                    f"each epoch makes {label} anew in `{function.name.value}()`; make it once "
                    "before the epochs and hand it in"
                )
            elif sameness is Sameness.REMADE:
                message = f"each epoch makes {label} and what it reads from anew; make them once"
            else:
                message = f"each epoch makes {label} anew; make it once before the loop"
            fixable = not runs and sameness is Sameness.SAME
            fix = _fix(script, site, loop) if fixable else None
            yield Finding(self.code, script.span(site.node), message, fix)


def _epoch_loops(script: Script) -> list[Loop]:
    """Give the loops of which each pass trains on all batches, or is an epoch by its name."""
    named = {
        id(outer.node): outer
        for batches in script.loops(Role.EVAL_BATCH)
        for outer in script.loops_around(batches.node)
        if not outer.is_batch and _counts_epochs(outer)
    }
    found = {
        id(loop.node): loop
        for batches in script.loops(Role.TRAIN_BATCH)
        if (loop := script.program.epoch_loop(batches)) is not None and not loop.is_batch
    }
    return list({**named, **found}.values())


def _counts_epochs(loop: Loop) -> bool:
    target = loop.node.target if isinstance(loop.node, cst.For) else None
    return isinstance(target, cst.Name) and "epoch" in target.value.lower()


def _remade(
    script: Script, site: CallSite, epochs: list[Loop]
) -> tuple[Loop, tuple[cst.Call, ...], Sameness] | None:
    """Give the epoch loop whose passes make a loader anew, and how they come to it."""
    for loop, runs in _ways(script, site.node, _DEPTH):
        if loop not in epochs or _is_rare(script, runs[0] if runs else site.node, loop):
            continue
        found = min(
            (script.sameness(arg.value, loop.node, runs) for arg in site.node.args),
            default=Sameness.CHANGING,
        )
        if found is not Sameness.CHANGING:
            return loop, runs, found
    return None


def _ways(
    script: Script, node: cst.CSTNode, depth: int
) -> Iterator[tuple[Loop, tuple[cst.Call, ...]]]:
    """Yield the loops that come to a node, with the calls on the way."""
    near = next(script.loops_around(node), None)
    function = script.function(node)
    if near is not None:
        yield near, ()
    elif function is not None and depth:
        for call in script.functions.callers(function):
            for loop, runs in _ways(script, call, depth - 1):
                yield loop, (*runs, call)


def _is_rare(script: Script, node: cst.CSTNode, loop: Loop) -> bool:
    """Whether only some passes of a loop come to a node."""
    child: cst.CSTNode = node
    while child is not loop.node:
        parent = script.parent(child)
        if parent is None or isinstance(parent, (cst.ExceptHandler, cst.IfExp)):
            return True
        if isinstance(parent, cst.If) and child is not parent.test:
            return True
        child = parent
    return False


# -- the fix ------------------------------------------------------------------


def _fix(script: Script, site: CallSite, loop: Loop) -> Fix | None:
    edits = _hoisted(script, site, loop)
    if edits is None:
        return None
    title = "Make the loader once, before the loop"
    persistent = site.argument("persistent_workers")
    if persistent.state is not State.ABSENT and not persistent.equals(False):
        because = "workers that live on shuffle otherwise from the second epoch on"
        return Fix.unsafe(title, edits, because=because)
    generator = site.given("generator", 12)
    if generator is not None and isinstance(generator.value, cst.Call):
        because = "each epoch shuffled alike, for it seeded the generator anew"
        return Fix.unsafe(title, edits, because=because)
    return Fix.exact(title, edits)


def _hoisted(script: Script, site: CallSite, loop: Loop) -> Edits | None:
    """Give the edits that move the making of a loader before a loop."""
    statement = script.statement(site.node)
    if not script.rewrite.stands_alone(loop.node) or script.parent(statement) is not loop.node.body:
        return None
    if isinstance(statement, cst.For) and statement.iter is site.node:
        return _named(script, site.node, loop)
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if not isinstance(small, cst.Assign) or not script.rewrite.stands_alone(statement):
        return None
    if script.sameness(small.value, loop.node) is not Sameness.SAME:
        return None
    targets = [element for each in small.targets for element in _elements(each.target)]
    if not all(_is_bound_once(script, target, small, loop) for target in targets):
        return None
    return script.rewrite.moved(statement, loop.node, behind=False)


def _named(script: Script, made: cst.Call, loop: Loop) -> Edits | None:
    """Give a name to a loader that is made where it is used."""
    code = script.code(made)
    if "\n" in code or script.tree.spelled("loader"):
        return None
    return (
        *script.rewrite.before(loop.node, f"loader = {code}"),
        *script.rewrite.replace(made, "loader"),
    )


def _elements(target: cst.BaseExpression) -> list[cst.BaseExpression]:
    if isinstance(target, cst.Tuple):
        return [element.value for element in target.elements]
    return [target]


def _is_bound_once(
    script: Script, target: cst.BaseExpression, line: cst.Assign, loop: Loop
) -> bool:
    """Whether a loop gives a name one value, and reads it behind that line only."""
    if not isinstance(target, cst.Name):
        return False
    scope = script.scopes.scope(target)
    inside = [
        binding
        for binding in scope.bindings.get(target.value, [])
        if script.tree.inside(binding.node, loop.node)
    ]
    early = any(
        name.value == target.value and script.tree.order(name) < script.tree.order(line)
        for name in script.within(loop.node, cst.Name)
    )
    removed = any(
        isinstance(each.target, cst.Name) and each.target.value == target.value
        for each in script.within(loop.node, cst.Del)
    )
    assigned = len(inside) == 1 and inside[0].how in (How.ASSIGN, How.UNPACKED)
    return assigned and not early and not removed and target.value not in scope.outward
