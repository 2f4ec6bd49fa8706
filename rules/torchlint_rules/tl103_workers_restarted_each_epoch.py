"""TL103: workers that are stopped and started anew in every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Kind, Rule, Safety, Script, State, Trait

_CHANGING: Final = ("set", "update", "reset", "shuffle", "resample", "next", "add", "append")
_WORKERS: Final = ("num_workers", 5)


class WorkersRestartedEachEpoch(Rule):
    """
    ## What it does
    Flags a `DataLoader` with workers that an epoch loop goes through again and again, without
    `persistent_workers=True`.

    ## Why it is slow
    Each epoch starts its worker processes anew: they import, unpickle the dataset, open its
    files and fill their queues while the GPU waits. On 512 samples with two forked workers an
    epoch took 47 ms instead of 12; where processes are spawned it is seconds.

    ## When not to
    Persistent workers keep the dataset as it was when they started: where the script changes it
    between epochs (`dataset.set_epoch(epoch)`, another transform) they would not see it, and the
    rule is silent. They also keep their memory between epochs.

    ## Fix safety
    Unsafe. A loader draws one random number fewer in each later epoch, so from the second epoch
    on the shuffled order and all that is drawn afterwards differ under the same seed.
    Statistically nothing changes.
    """

    code = "TL103"
    name = "workers-restarted-each-epoch"
    summary = "every epoch starts the workers anew"
    impact = "medium"
    safety = Safety.UNSAFE
    after = ("TL101", "TL102")
    articles = ("S0",)
    needs = ("num_workers",)
    since = (1, 7)

    invalid = {
        "a method of the dataset that only tells something": """
              from torch.utils.data import DataLoader
              from mine import Images, model, optimizer, show
              images = Images()
            - train_loader = DataLoader(images, num_workers=4)
            + train_loader = DataLoader(images, num_workers=4, persistent_workers=True)
              for epoch in range(10):
                  for x, y in train_loader:
                      out = model(x, y)
                      out.backward()
                      optimizer.step()
                      picture = images.decode(out)
                      show(picture)
            """,
        "the epoch loop is around the batch loop": """
              from torch.utils.data import DataLoader
              from mine import Images, model, optimizer
            - train_loader = DataLoader(Images(), batch_size=32, num_workers=4)
            + train_loader = DataLoader(Images(), batch_size=32, num_workers=4, persistent_workers=True)
              for epoch in range(10):
                  for x, y in train_loader:
                      model(x, y).backward()
                      optimizer.step()
            """,
        "the loader is handed to a function that runs in each epoch": """
              from torch.utils.data import DataLoader
              from mine import Images, model, optimizer
              def train(loader):
                  for x, y in loader:
                      model(x, y).backward()
                      optimizer.step()
              def evaluate(loader):
                  for i, (x, y) in enumerate(loader):
                      model(x, y)
              def main():
            -     train_loader = DataLoader(Images(), num_workers=4)
            -     test_loader = DataLoader(Images(), num_workers=2)
            +     train_loader = DataLoader(Images(), num_workers=4, persistent_workers=True)
            +     test_loader = DataLoader(Images(), num_workers=2, persistent_workers=True)
                  for epoch in range(10):
                      train(train_loader)
                      evaluate(test_loader)
            """,
        "a constant says how many": """
              from torch.utils.data import DataLoader
              from mine import Images, model
              WORKERS = 8
              def get_loader():
            -     return DataLoader(Images(), num_workers=WORKERS, shuffle=True)
            +     return DataLoader(Images(), num_workers=WORKERS, shuffle=True, persistent_workers=True)
              def main():
                  loader = get_loader()
                  for epoch in range(10):
                      for x, y in loader:
                          model(x, y).backward()
            """,
        "the loader is kept in an attribute": """
              from torch.utils.data import DataLoader
              from mine import Images
              class Trainer:
                  def __init__(self, model):
                      self.model = model
            -         self.loader = DataLoader(Images(), num_workers=4)
            +         self.loader = DataLoader(Images(), num_workers=4, persistent_workers=True)
                  def train_epoch(self):
                      for x, y in self.loader:
                          self.model(x, y).backward()
                  def train(self):
                      for epoch in range(10):
                          self.train_epoch()
            """,
        "loaders in a dictionary, by phase": """
              from torch.utils.data import DataLoader
              from mine import Images, model, optimizer
            - loaders = {p: DataLoader(Images(p), num_workers=4) for p in ("train", "val")}
            + loaders = {p: DataLoader(Images(p), num_workers=4,
            +                          persistent_workers=True) for p in ("train", "val")}
              for epoch in range(10):
                  for phase in ("train", "val"):
                      for x, y in loaders[phase]:
                          loss = model(x, y)
                          if phase == "train":
                              loss.backward()
                              optimizer.step()
            """,
        "the pass begins anew when the iterator is used up": """
              from torch.utils.data import DataLoader
              from mine import Images, model
            - loader = DataLoader(Images(), num_workers=4)
            + loader = DataLoader(Images(), num_workers=4, persistent_workers=True)
              batches = iter(loader)
              for step in range(100000):
                  try:
                      x, y = next(batches)
                  except StopIteration:
                      batches = iter(loader)
                      x, y = next(batches)
                  model(x, y).backward()
            """,
        "a function out of sight gets the loader in each epoch": """
              from torch.utils.data import DataLoader
              from mine import Images, model, train_one_epoch
            - loader = DataLoader(Images(), num_workers=4)
            + loader = DataLoader(Images(), num_workers=4, persistent_workers=True)
              for epoch in range(10):
                  train_one_epoch(model, loader)
            """,
        "the sampler is told the epoch, which the main process does": """
              from torch.utils.data import DataLoader, DistributedSampler
              from mine import data, model
              sampler = DistributedSampler(data)
            - loader = DataLoader(data, sampler=sampler, num_workers=4)
            + loader = DataLoader(data, sampler=sampler, num_workers=4, persistent_workers=True)
              for epoch in range(10):
                  sampler.set_epoch(epoch)
                  for x, y in loader:
                      model(x, y).backward()
            """,
    }
    valid = {
        "one pass starts the workers once": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            for x, y in DataLoader(Images(), num_workers=4):
                model(x, y).backward()
            """,
        "without workers the option is an error": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            loader = DataLoader(Images(), num_workers=0)
            for epoch in range(10):
                for x, y in loader:
                    model(x, y).backward()
            """,
        "no workers are asked for": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            loader = DataLoader(Images(), batch_size=4)  # num_workers stays 0
            for epoch in range(10):
                for x, y in loader:
                    model(x, y).backward()
            """,
        "the number from arguments may be zero": """
            from torch.utils.data import DataLoader
            from mine import Images, args, model
            loader = DataLoader(Images(), num_workers=args.workers)
            for epoch in range(10):
                for x, y in loader:
                    model(x, y).backward()
            """,
        "as many as there are processors, of which one may be all": """
            import os
            from torch.utils.data import DataLoader
            from mine import Images, model
            loader = DataLoader(Images(), num_workers=os.cpu_count())
            for epoch in range(10):
                for x, y in loader:
                    model(x, y).backward()
            """,
        "what a call answers is known on the machine only": """
            import os
            from torch.utils.data import DataLoader
            from mine import Images, model
            WORKERS = min(4, os.cpu_count() or 1)
            loader = DataLoader(Images(), num_workers=WORKERS)
            for epoch in range(10):
                for x, y in loader:
                    model(x, y).backward()
            """,
        "half of the processors may be none": """
            import os
            from torch.utils.data import DataLoader
            from mine import Images, model
            loader = DataLoader(Images(), num_workers=os.cpu_count() // 2)
            for epoch in range(10):
                for x, y in loader:
                    model(x, y).backward()
            """,
        "the dataset is told the epoch, which persistent workers would not see": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            images = Images()
            loader = DataLoader(images, num_workers=4)
            for epoch in range(10):
                images.set_epoch(epoch)
                for x, y in loader:
                    model(x, y).backward()
            """,
        "the dataset is told the epoch through the loader": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            loader = DataLoader(Images(), num_workers=4)
            for epoch in range(10):
                loader.dataset.set_epoch(epoch)
                for x, y in loader:
                    model(x, y).backward()
            """,
        "the dataset that a function is given is told the epoch": """
            from torch.utils.data import DataLoader
            def train(images, model):
                loader = DataLoader(images, num_workers=4)
                for epoch in range(10):
                    images.set_epoch(epoch)
                    for x, y in loader:
                        model(x, y).backward()
            """,
        "the dataset gets another transform on the way": """
            from torch.utils.data import DataLoader
            from mine import Images, model, plain
            images = Images()
            loader = DataLoader(images, num_workers=4)
            for epoch in range(10):
                if epoch == 8:
                    images.transform = plain
                for x, y in loader:
                    model(x, y).backward()
            """,
        "the loader is made anew in each epoch": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            for epoch in range(10):
                loader = DataLoader(Images(epoch), num_workers=4)
                for x, y in loader:
                    model(x, y).backward()
            """,
        "the loader is made anew by the function that runs in each epoch": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            def train():
                loader = DataLoader(Images(), num_workers=4)
                for x, y in loader:
                    model(x, y).backward()
            for epoch in range(10):
                train()
            """,
        "tensors in memory need no workers at all": """
            import torch
            from torch.utils.data import DataLoader, TensorDataset
            from mine import model, x, y
            loader = DataLoader(TensorDataset(x, y), num_workers=4)
            for epoch in range(10):
                for a, b in loader:
                    model(a, b).backward()
            """,
        "somebody decided": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            loader = DataLoader(Images(), num_workers=4, persistent_workers=False)
            for epoch in range(10):
                for x, y in loader:
                    model(x, y).backward()
            """,
        "the dictionary may hold it": """
            from torch.utils.data import DataLoader
            from mine import Images, kwargs, model
            loader = DataLoader(Images(), num_workers=4, **kwargs)
            for epoch in range(10):
                for x, y in loader:
                    model(x, y).backward()
            """,
        "another library's loader of the same name": """
            from torch_geometric.loader import DataLoader
            from mine import graphs, model
            loader = DataLoader(graphs, num_workers=4)
            for epoch in range(10):
                for graph in loader:
                    model(graph).backward()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loader that starts the same workers in each epoch."""
        for site in script.calls("torch.utils.data.DataLoader"):
            workers = site.argument(*_WORKERS)
            if workers.node is None or not _is_positive(script, workers.node):
                continue
            if site.argument("persistent_workers").state is not State.ABSENT:
                continue
            dataset = site.given("dataset", 0)
            if dataset is None or Trait.IN_MEMORY in script.datasets.traits(dataset.value):
                continue
            if not script.loaders.repeated(site.node) or _is_changed(script, site.node):
                continue
            counted = f"{workers.literal} workers" if workers.is_literal else "workers"
            message = (
                f"{script.loaders.label(site.node)} starts its "
                f"{'one worker' if counted == '1 workers' else counted} anew in every epoch; "
                "pass persistent_workers=True"
            )
            fix = Fix.unsafe(
                "Pass persistent_workers=True",
                script.rewrite.with_keyword(site.node, "persistent_workers", "True"),
                because="under the same seed the order differs from the second epoch on",
            )
            yield Finding(self.code, script.span(site.node), message, fix)


def _is_positive(script: Script, node: cst.BaseExpression) -> bool:
    """Whether a number of workers is written down and above zero."""
    found = script.value_of(node).node or node
    return isinstance(found, cst.Integer) and int(found.value, 0) > 0


def _is_changed(script: Script, made: cst.Call) -> bool:
    """Whether the script changes the dataset of a loader after the loader was made."""
    dataset = script.call(made).given("dataset", 0)
    if dataset is None:
        return True
    word = script.code(dataset.value)
    objects = {id(value) for value in script.origins.of(dataset.value).values}
    for target in _changed(script):
        owner = target
        while isinstance(owner, (cst.Attribute, cst.Subscript)):
            owner = owner.value
            if script.tree.order(owner) > script.tree.order(made) and _is_dataset(
                script, owner, made, objects, word
            ):
                return True
    return False


def _is_dataset(
    script: Script, node: cst.BaseExpression, made: cst.Call, objects: set[int], word: str
) -> bool:
    if isinstance(node, cst.Attribute) and node.attr.value == "dataset":
        return made in script.loaders.made_by(node.value)
    if not isinstance(node, (cst.Name, cst.Attribute)) or script.kind(node) is Kind.LOADER:
        return False
    return script.code(node) == word or any(
        id(value) in objects for value in script.origins.of(node).values
    )


def _changed(script: Script) -> Iterator[cst.BaseExpression]:
    """Yield what is written to, and what a method is called of that may change its object."""
    for line in script.all(cst.Assign):
        for each in line.targets:
            if isinstance(each.target, (cst.Attribute, cst.Subscript)):
                yield each.target
    for added in script.all(cst.AugAssign):
        if isinstance(added.target, (cst.Attribute, cst.Subscript)):
            yield added.target
    for call in script.all(cst.Call):
        if not isinstance(call.func, cst.Attribute) or not any(
            True for _ in script.loops_around(call)
        ):
            continue
        if isinstance(script.parent(call), cst.Expr) or call.func.attr.value.startswith(_CHANGING):
            yield call.func
