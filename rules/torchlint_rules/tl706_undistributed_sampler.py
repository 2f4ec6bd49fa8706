"""TL706: several processes that all train on all of the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Kind, Loop, Role, Rule, Script, State, Trait

_LOADER: Final = "torch.utils.data.DataLoader"
_SHARING: Final = frozenset(
    "rank ranks world shard shards sharded replica replicas distributed ddp node nodes".split()
)
_SWITCHES: Final = _SHARING | frozenset("gpu gpus parallel nproc multi single".split())
_DEPTH: Final = 2


class UndistributedSampler(Rule):
    """
    ## What it does
    Flags a `DataLoader` without a sampler whose batches train a `DistributedDataParallel` network.

    ## Why it is slow
    Each process draws from a loader of its own, and without a `DistributedSampler` each goes
    through all of the data. An epoch takes as long as on one GPU, however many there are, and with
    equal seeds all processes see the same batches and average equal gradients.

    ## When not to
    Data that is split otherwise (a dataset that is told its rank, an `IterableDataset` that splits
    itself) needs no sampler and is left alone, as far as the file shows it.

    ## Fix safety
    Reported only. `sampler=DistributedSampler(dataset)` takes the place of `shuffle`, wants
    `sampler.set_epoch(epoch)` in every epoch, and divides the number of steps of an epoch by the
    number of processes, which the learning rate, its schedule and the batch size have to follow.
    """

    code = "TL706"
    name = "undistributed-sampler"
    summary = "every process trains on all of the data"
    impact = "high"
    safety = None
    articles = ("S1",)
    needs = ("DistributedDataParallel", "DDP")

    invalid = {
        "one function": """
              import torch
              import torchvision
              from torch.nn.parallel import DistributedDataParallel as DDP
              from torch.utils.data import DataLoader
              def main(local_rank):
                  data = torchvision.datasets.CIFAR10("data")
            !     loader = DataLoader(data, batch_size=64, shuffle=True)
                  model = DDP(torch.nn.Linear(4, 4), device_ids=[local_rank])
                  for x, y in loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            """,
        "a trainer, and a loader made in a helper": """
              import torch
              from torch.utils.data import DataLoader
              from data import Pictures
              class Trainer:
                  def __init__(self, model, loader):
                      self.model = torch.nn.parallel.DistributedDataParallel(model)
                      self.loader = loader
                      self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                  def step(self, x):
                      self.model(x).backward()
                      self.optimizer.step()
                  def run(self):
                      for x in self.loader:
                          self.step(x)
              def make_loader():
            !     return DataLoader(Pictures("train"), batch_size=64, sampler=None)
              Trainer(torch.nn.Linear(4, 4), make_loader()).run()
            """,
        "only a run in several processes wraps the network": """
              import torch
              from torch.utils.data import DataLoader
              from data import Pictures
            ! train_loader = DataLoader(Pictures("train"), batch_size=64, shuffle=True)
              model = torch.nn.Linear(4, 4)
              if args.distributed:
                  model = torch.nn.parallel.DistributedDataParallel(model)
              for x in train_loader:
                  model(x).backward()
                  optimizer.step()
            """,
    }
    valid = {
        "it has a sampler, or a sampler of batches": """
            import torch
            from torch.nn.parallel import DistributedDataParallel as DDP
            from torch.utils.data import BatchSampler, DataLoader, DistributedSampler
            from data import Pictures
            data = Pictures()
            sampler = DistributedSampler(data)
            first = DataLoader(data, sampler=sampler)
            second = DataLoader(data, batch_sampler=BatchSampler(sampler, 8, True))
            third = DataLoader(data, 8, False, None if single else sampler)
            model = DDP(net)
            for loader in (first, second, third):
                for x in loader:
                    model(x).backward()
                    optimizer.step()
            """,
        "somebody else decides about the sampler": """
            import torch
            from torch.nn.parallel import DistributedDataParallel as DDP
            from torch.utils.data import DataLoader
            from data import Pictures
            def train(options):
                loader = DataLoader(Pictures(), 8, **options)
                model = DDP(net)
                for x in loader:
                    model(x).backward()
                    optimizer.step()
            """,
        "the dataset knows its rank": """
            import torch
            import torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel as DDP
            from torch.utils.data import DataLoader, Subset
            from data import Pictures
            data = Pictures()
            own = Subset(data, range(dist.get_rank(), len(data), dist.get_world_size()))
            first, second = DataLoader(own, 8), DataLoader(Pictures(rank=0), 8)
            model = DDP(net)
            for x in first:
                model(x).backward()
                optimizer.step()
            for x in second:
                model(x).backward()
                optimizer.step()
            """,
        "a dataset of the file splits itself": """
            import torch
            import torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel as DDP
            from torch.utils.data import DataLoader, Dataset
            class Pictures(Dataset):
                def __init__(self, files):
                    self.files = files[dist.get_rank() :: dist.get_world_size()]
                def __getitem__(self, index):
                    return read(self.files[index])
            loader = DataLoader(Pictures(files), 8)
            model = DDP(net)
            for x in loader:
                model(x).backward()
                optimizer.step()
            """,
        "a stream, which takes no sampler": """
            import torch
            from torch.nn.parallel import DistributedDataParallel as DDP
            from torch.utils.data import DataLoader, IterableDataset
            class Stream(IterableDataset):
                def __iter__(self):
                    yield from read()
            loader = DataLoader(Stream(), 8)
            model = DDP(net)
            for x in loader:
                model(x).backward()
                optimizer.step()
            """,
        "the data comes from a caller, who may have split it": """
            import torch
            from torch.nn.parallel import DistributedDataParallel as DDP
            from torch.utils.data import DataLoader
            def train(data):
                loader = DataLoader(data, 8)
                model = DDP(net)
                for x in loader:
                    model(x).backward()
                    optimizer.step()
            """,
        "the loader of the branch for one process": """
            import torch
            from torch.nn.parallel import DistributedDataParallel as DDP
            from torch.utils.data import DataLoader, DistributedSampler
            from data import Pictures
            data = Pictures()
            model = net
            if args.distributed:
                model = DDP(net)
                loader = DataLoader(data, 8, sampler=DistributedSampler(data))
            else:
                loader = DataLoader(data, 8, shuffle=True)
            for x in loader:
                model(x).backward()
                optimizer.step()
            """,
        "every process evaluates all of it": """
            import torch
            from torch.nn.parallel import DistributedDataParallel as DDP
            from torch.utils.data import DataLoader
            from data import Pictures
            loader = DataLoader(Pictures("test"), 8)
            model = DDP(net)
            with torch.no_grad():
                for x in loader:
                    model(x)
            """,
        "a network of one process is trained": """
            import torch
            from torch.nn.parallel import DistributedDataParallel
            from torch.utils.data import DataLoader
            from data import Pictures
            loader = DataLoader(Pictures(), 8)
            model = torch.nn.Linear(4, 4)
            for x in loader:
                model(x).backward()
                optimizer.step()
            shared = DistributedDataParallel(model)
            """,
        "made-up data that only counts": """
            import torch
            from torch.nn.parallel import DistributedDataParallel as DDP
            from torch.utils.data import DataLoader
            loader = DataLoader(range(32), collate_fn=invent)
            model = DDP(net)
            for x in loader:
                model(x).backward()
                optimizer.step()
            """,
        "there is one process": """
            import torch
            import torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel as DDP
            from torch.utils.data import DataLoader
            from data import Pictures
            dist.init_process_group("gloo", init_method="tcp://localhost:10001", rank=0, world_size=1)
            loader = DataLoader(Pictures(), 8)
            model = DDP(net)
            for x in loader:
                model(x).backward()
                optimizer.step()
            """,
        "a framework gives it one": """
            import torch
            from accelerate import Accelerator
            from torch.nn.parallel import DistributedDataParallel as DDP
            from torch.utils.data import DataLoader
            from data import Pictures
            loader = DataLoader(Pictures(), 8)
            model = DDP(net)
            for x in loader:
                model(x).backward()
                optimizer.step()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loader without a sampler that a wrapped network is trained on."""
        if script.framework != "none" or not script.processes.has_wraps or _is_alone(script):
            return
        seen: set[int] = set()
        for loop in script.loops(Role.TRAIN_BATCH):
            made = script.loaders.made_by(loop.loader) if loop.loader is not None else []
            for call in made:
                if id(call) in seen or not _draws_all(script, call):
                    continue
                if _trains_wrapped(script, loop):
                    seen.add(id(call))
                    yield Finding(self.code, script.span(call), _message(script, call))


def _message(script: Script, call: cst.Call) -> str:
    given = script.call(call).given("dataset", 0)
    data = script.code(given.value) if given is not None else ""
    named = f"`{data}`" if data.replace(".", "").isidentifier() else "its data"
    loader = script.loaders.label(call)
    return (
        f"every process goes through all of {named} in each epoch: give {loader} a "
        "`DistributedSampler`, which deals it out among them"
    )


def _is_alone(script: Script) -> bool:
    """Whether the file says that there is one process."""
    joined = list(script.calls("torch.distributed.init_process_group"))
    return bool(joined) and all(site.argument("world_size", 3).equals(1) for site in joined)


def _draws_all(script: Script, call: cst.Call) -> bool:
    """Whether nothing shows that a loader draws a part of the data only."""
    site = script.call(call)
    for name, place in (("sampler", 3), ("batch_sampler", 4)):
        value = site.argument(name, place)
        if value.state is not State.ABSENT and not value.equals(None):
            return False
    dataset = site.given("dataset", 0)
    if dataset is None or _is_switched(script, call):
        return False
    origin = script.origins.of(dataset.value)
    if not origin.complete or Trait.ITERABLE in script.datasets.traits(dataset.value):
        return False
    if any(script.kind(value) is Kind.SEQUENCE for value in origin.values):
        return False
    return not any(_is_shared(script, value) for value in (dataset.value, *origin.values))


def _is_switched(script: Script, call: cst.Call) -> bool:
    """Whether a test that speaks of processes decides that a loader is made."""
    for outer in script.tree.ancestors(call):
        if isinstance(outer, (cst.If, cst.IfExp)) and _says(script, outer.test, _SWITCHES):
            return True
    return False


def _is_shared(script: Script, value: cst.BaseExpression) -> bool:
    """Whether a dataset, or the class of the file that it is of, knows of other processes."""
    if _says(script, value, _SHARING):
        return True
    owner = script.definition(value.func) if isinstance(value, cst.Call) else None
    return owner is not None and _says(script, owner, _SHARING)


def _says(script: Script, node: cst.CSTNode, spoken: frozenset[str]) -> bool:
    return not spoken.isdisjoint(script.words(script.code(node)))


def _trains_wrapped(script: Script, loop: Loop) -> bool:
    """Whether the network that a loop trains is one of several processes."""
    return any(
        any(True for _ in script.processes.networks(region))
        for region in script.functions.reached(loop.node.body, _DEPTH)
    )
