"""TL108: tensors in memory that a loader takes apart and stacks up again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Edits, Finding, Fix, Layout, Rule, Safety, Script, State
from torchlint_rules._batchsampler import whole_batches

_LOST: Final = frozenset("batch_size batch_sampler drop_last sampler collate_fn".split())
_MODULE: Final = "torch.utils.data"


class TensorDatasetByItem(Rule):
    """
    ## What it does
    Flags a `DataLoader` over tensors in memory (a `TensorDataset`, a part of one, or a class whose
    `__getitem__` only indexes its tensors) that makes its batches out of single items.

    ## Why it is slow
    Each batch is taken apart into as many items as it has, and these are stacked together again:
    thousands of small tensors where one indexing operation does. Batches of 128 out of 20,000
    rows came 4.2 times as fast when taken whole, and a whole training script was 1.79 times as
    fast. Workers do not help here: they only add the way of the batches between processes.

    ## When not to
    Where the loader is handed to a framework that makes it anew from its attributes (Lightning,
    Accelerate, Opacus), or the script reads its `batch_size`, `batch_sampler`, `drop_last` or `sampler`,
    which change: the rule is silent there, and where the loader has a `collate_fn` or a
    `batch_sampler`.

    ## Fix safety
    Exact: the same batches in the same order, and the same random numbers are drawn. Unsafe where
    the tensors are permuted views (`x.permute(0, 3, 1, 2)`), for batches of them come out permuted
    in memory too, so that `view` may fail and sums are rounded otherwise; where the file does not
    show how they are made; and where a function out of sight gets the loader. No fix under
    `DataParallel`, whose successor needs a sampler of its own.
    """

    code = "TL108"
    name = "tensor-dataset-by-item"
    summary = "a batch of tensors is stacked up item by item"
    impact = "high"
    safety = Safety.EXACT
    articles = ("S1",)
    needs = ("DataLoader",)

    invalid = {
        "shuffled, with a name for the dataset": """
            - from torch.utils.data import DataLoader, TensorDataset
            + from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
              import torch
              from mine import model
              data = TensorDataset(torch.rand(900, 2), torch.rand(900))
            - loader = DataLoader(data, batch_size=32, shuffle=True)
            + loader = DataLoader(data, batch_size=None,
            +                     sampler=BatchSampler(RandomSampler(data), 32, drop_last=False))
              for x, y in loader:
                  model(x, y).backward()
            """,
        "in the order of the rows, the dataset gets a name": """
              import torch
              import torch.utils.data as td
              from mine import model
              def main():
                  x, y = torch.rand(900, 2), torch.rand(900)
            -     test_loader = td.DataLoader(td.TensorDataset(x, y), 64)
            +     test_dataset = td.TensorDataset(x, y)
            +     test_loader = td.DataLoader(test_dataset, None,
            +                                 sampler=td.BatchSampler(td.SequentialSampler(test_dataset),
            +                                                         64, drop_last=False))
                  for a, b in test_loader:
                      model(a, b).backward()
            """,
        "the last batch is dropped, a generator shuffles": """
              import torch
            - from torch.utils.data import (
            -     DataLoader,
            -     TensorDataset,
            - )
            + from torch.utils.data import (
            +     BatchSampler,
            +     DataLoader,
            +     RandomSampler,
            +     TensorDataset,
            + )
              from mine import args, model
              data = TensorDataset(torch.rand(900, 2), torch.rand(900))
              g = torch.Generator().manual_seed(0)
            ! loader = DataLoader(
                  data,
            -     batch_size=args.batch_size,  # of rows
            -     shuffle=True,
            -     drop_last=True,
            +     batch_size=None,  # of rows
            +     sampler=BatchSampler(RandomSampler(data, generator=g), args.batch_size, drop_last=True),
                  generator=g,
              )
              for x, y in loader:
                  model(x, y).backward()
            """,
        "workers make it slower still, and go": """
              import torch
              import torch.utils.data
              from mine import model
              data = torch.utils.data.TensorDataset(torch.rand(900, 2), torch.rand(900))
            - loader = torch.utils.data.DataLoader(data, 8, True, num_workers=4)
            + loader = torch.utils.data.DataLoader(data, None,
            +                                      sampler=torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(data),
            +                                                                            8, drop_last=False))
              for x, y in loader:
                  model(x, y).backward()
            """,
        "persistent workers shuffle otherwise, so they stay": """
              import torch
              import torch.utils.data as td
              from mine import model
              ds = td.TensorDataset(torch.rand(900, 2), torch.rand(900))
            ! dl = td.DataLoader(
                  ds,
            -     shuffle=True,
            -     batch_size=8,
            +     sampler=td.BatchSampler(td.RandomSampler(ds), 8, drop_last=False),
            +     batch_size=None,
                  num_workers=4,
                  persistent_workers=True,
              )
              for x, y in dl:
                  model(x, y).backward()
            """,
        "an argument says whether to shuffle": """
              import torch
              from torch.utils import data
              from mine import model
              def loader_of(x, shuffle):
                  rows = data.TensorDataset(x)
            !     return data.DataLoader(
            -         rows, batch_size=16, shuffle=shuffle
            +         rows, batch_size=None,
            +         sampler=data.BatchSampler(data.RandomSampler(rows) if shuffle else data.SequentialSampler(rows),
            +                                   16, drop_last=False)
                  )
              for x, in loader_of(torch.rand(900, 2), True):
                  model(x).backward()
            """,
        "a sampler of its own draws the rows": """
              import torch
              import torch.utils.data as td
              from mine import model, weights
              ds = td.TensorDataset(torch.rand(900, 2), torch.rand(900))
            ! dl = td.DataLoader(
                  ds,
            -     batch_size=8,
            -     sampler=td.WeightedRandomSampler(weights, 900),
            +     batch_size=None,
            +     sampler=td.BatchSampler(td.WeightedRandomSampler(weights, 900), 8, drop_last=False),
              )
              for x, y in dl:
                  model(x, y).backward()
            """,
        "a part of the tensors": """
              import torch
              import torch.utils.data as td
              from mine import model
              whole = td.TensorDataset(torch.rand(900, 2), torch.rand(900))
              train, held = td.random_split(whole, [800, 100])
            ! dl = td.DataLoader(
                  train,
            -     batch_size=8,
            +     batch_size=None,
            +     sampler=td.BatchSampler(td.SequentialSampler(train), 8, drop_last=False),
              )
              for x, y in dl:
                  model(x, y).backward()
            """,
        "a class that only indexes its tensors": """
              import torch
              import torch.utils.data as td
              from mine import model
              class Rows(td.Dataset):
                  def __init__(self, x, y):
                      self.x, self.y = x, y
                  def __len__(self):
                      return len(self.x)
                  def __getitem__(self, i):
                      row = self.x[i].float()
                      return {"x": row, "y": self.y[i]}
              ds = Rows(torch.rand(900, 2), torch.rand(900))
            ! dl = td.DataLoader(
                  ds,
            -     batch_size=8,
            +     batch_size=None,
            +     sampler=td.BatchSampler(td.SequentialSampler(ds), 8, drop_last=False),
              )
              for batch in dl:
                  model(batch).backward()
            """,
        "images that were permuted make it unsafe": """
              import numpy as np
              import torch
              import torch.utils.data as td
              from mine import model
              images = torch.from_numpy(np.load("images.npy")).permute(0, 3, 1, 2) / 255
              ds = td.TensorDataset(images)
            ! dl = td.DataLoader(
                  ds,
            -     batch_size=8,
            +     batch_size=None,
            +     sampler=td.BatchSampler(td.SequentialSampler(ds), 8, drop_last=False),
              )
              for x, in dl:
                  model(x).backward()
            """,
        "a function out of sight gets the loader, which makes it unsafe": """
              import torch
              import torch.utils.data as td
              from mine import train
              ds = td.TensorDataset(torch.rand(900, 2))
            ! dl = td.DataLoader(
                  ds,
            -     batch_size=8,
            +     batch_size=None,
            +     sampler=td.BatchSampler(td.SequentialSampler(ds), 8, drop_last=False),
              )
              train(dl)
            """,
        "what a dictionary gives cannot be taken out of it": """
              import torch
              from torch.utils.data import DataLoader, TensorDataset
              from mine import model
              options = {"batch_size": 32, "shuffle": True}
              data = TensorDataset(torch.rand(900, 2), torch.rand(900))
            ! for x, y in DataLoader(data, **options):
                  model(x, y).backward()
            """,
        "the successor of DataParallel needs a sampler": """
              import torch
              from torch.utils.data import DataLoader, TensorDataset
              from mine import net
              model = torch.nn.DataParallel(net)
              data = TensorDataset(torch.rand(900, 2), torch.rand(900))
            ! for x, y in DataLoader(data, batch_size=32):
                  model(x, y).backward()
            """,
    }
    valid = {
        "whole batches already": """
            import torch
            from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
            ds = TensorDataset(torch.rand(900, 2))
            sampler = BatchSampler(RandomSampler(ds), 32, drop_last=False)
            for x, in DataLoader(ds, batch_size=None, sampler=sampler):
                print(x)
            """,
        "one item is a batch": """
            import torch
            from torch.utils.data import DataLoader, TensorDataset
            for x, in DataLoader(TensorDataset(torch.rand(900, 2)), shuffle=True):
                print(x)
            """,
        "a collate function of its own expects items": """
            import torch
            from torch.utils.data import DataLoader, TensorDataset
            from mine import pad
            for x in DataLoader(TensorDataset(torch.rand(900, 2)), batch_size=8, collate_fn=pad):
                print(x)
            """,
        "a batch sampler takes the place of the batch size": """
            import torch
            from torch.utils.data import DataLoader, TensorDataset
            from mine import buckets
            for x, in DataLoader(TensorDataset(torch.rand(900, 2)), batch_sampler=buckets):
                print(x)
            """,
        "the batch size is read later, and would be None": """
            import torch
            from torch.utils.data import DataLoader, TensorDataset
            loader = DataLoader(TensorDataset(torch.rand(900, 2)), batch_size=8)
            def train(loader):
                for i, (x,) in enumerate(loader):
                    print(i * loader.batch_size)
            train(loader)
            """,
        "the sampler is told the epoch through the loader": """
            import torch
            from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
            data = TensorDataset(torch.rand(900, 2))
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            for epoch in range(3):
                loader.sampler.set_epoch(epoch)
                for x, in loader:
                    print(x)
            """,
        "Accelerate makes the loader anew from its attributes": """
            import torch
            from accelerate import Accelerator
            from torch.utils.data import DataLoader, TensorDataset
            accelerator = Accelerator()
            loader = accelerator.prepare(DataLoader(TensorDataset(torch.rand(900, 2)), batch_size=8))
            for x, in loader:
                accelerator.backward(x.sum())
            """,
        "Opacus makes the loader anew too": """
            import torch
            from opacus import PrivacyEngine
            from torch.utils.data import DataLoader, TensorDataset
            from mine import model
            loader = DataLoader(TensorDataset(torch.rand(900, 2)), batch_size=8)
            model, optimizer, loader = PrivacyEngine().make_private(data_loader=loader)
            for x, in loader:
                print(x)
            """,
        "numbers are collated as other types than tensors": """
            import torch
            from torch.utils.data import DataLoader, Dataset
            class Rows(Dataset):
                def __init__(self):
                    self.x = torch.rand(900, 2)
                def __len__(self):
                    return len(self.x)
                def __getitem__(self, i):
                    return self.x[i], i % 2
            for x in DataLoader(Rows(), batch_size=8):
                print(x)
            """,
        "an item is transformed": """
            import torch
            from torch.utils.data import DataLoader, Dataset
            class Rows(Dataset):
                def __init__(self, transform):
                    self.x, self.transform = torch.rand(900, 2), transform
                def __getitem__(self, i):
                    return self.transform(self.x[i])
            for x in DataLoader(Rows(print), batch_size=8):
                print(x)
            """,
        "an item has another shape than the row": """
            import torch
            from torch.utils.data import DataLoader, Dataset
            class Rows(Dataset):
                def __init__(self):
                    self.x = torch.rand(900, 2)
                def __getitem__(self, i):
                    return self.x[i].unsqueeze(0)
            for x in DataLoader(Rows(), batch_size=8):
                print(x)
            """,
        "a list does not take a list of indices": """
            import torch
            from torch.utils.data import DataLoader, Dataset
            class Rows(Dataset):
                def __init__(self):
                    self.x = [torch.rand(2) for _ in range(900)]
                def __getitem__(self, i):
                    return self.x[i]
            for x in DataLoader(Rows(), batch_size=8):
                print(x)
            """,
        "the parts of several datasets are not in one tensor": """
            import torch
            from torch.utils.data import ConcatDataset, DataLoader, TensorDataset
            both = ConcatDataset([TensorDataset(torch.rand(9, 2)), TensorDataset(torch.rand(8, 2))])
            for x, in DataLoader(both, batch_size=8):
                print(x)
            """,
        "indices out of sight may be tensors, which do not go into one list": """
            import torch
            from torch.utils.data import DataLoader, Subset, TensorDataset
            from mine import chosen
            for x, in DataLoader(Subset(TensorDataset(torch.rand(9, 2)), chosen), batch_size=8):
                print(x)
            """,
        "the dictionary may hold a collate function": """
            import torch
            from torch.utils.data import DataLoader, TensorDataset
            def loader_of(x, **kwargs):
                return DataLoader(TensorDataset(x), batch_size=8, **kwargs)
            """,
        "one batch to look at": """
            import torch
            from torch.utils.data import DataLoader, TensorDataset
            loader = DataLoader(TensorDataset(torch.rand(900, 2)), batch_size=8)
            x, = next(iter(loader))
            """,
        "another library's loader of the same name": """
            import torch
            from torch_geometric.loader import DataLoader
            from torch.utils.data import TensorDataset
            for x, in DataLoader(TensorDataset(torch.rand(900, 2)), batch_size=8):
                print(x)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loader that collates items which one indexing operation would give."""
        if script.framework != "none" or any(True for _ in script.calls("opacus.PrivacyEngine")):
            return
        for site in script.calls(f"{_MODULE}.DataLoader"):
            dataset = site.given("dataset", 0)
            tensors = script.batching.tensors(dataset.value) if dataset is not None else None
            if dataset is None or tensors is None or not _makes_batches(site):
                continue
            if script.loaders.draws_once(site.node):
                continue
            if _is_asked(script, site.node):
                continue
            message = (
                f"{script.loaders.label(site.node)} stacks each batch up from single items, though "
                f"`{_short(script, dataset.value)}` can give it whole; pass batch_size=None and a "
                "BatchSampler as sampler"
            )
            change = whole_batches(script, site, dataset.value)
            fix = _fix(script, site, tensors, change) if change is not None else None
            yield Finding(self.code, script.span(site.node), message, fix)


def _makes_batches(site: CallSite) -> bool:
    """Whether a loader surely collates several items by torch's own function."""
    size = site.argument("batch_size", 1)
    if size.state in (State.ABSENT, State.UNKNOWN) or size.equals(1) or size.equals(None):
        return False
    return all(
        (given := site.argument(name, position)).state is State.ABSENT or given.equals(None)
        for name, position in (("batch_sampler", 4), ("collate_fn", 6))
    ) and all(
        site.argument(name, position).state is not State.UNKNOWN
        for name, position in (("shuffle", 2), ("sampler", 3), ("drop_last", 8))
    )


def _is_asked(script: Script, made: cst.Call) -> bool:
    """Whether the file reads an attribute of a loader that the fix would change."""
    return any(
        attribute.attr.value in _LOST and made in script.loaders.made_by(attribute.value)
        for attribute in script.all(cst.Attribute)
    )


def _short(script: Script, dataset: cst.BaseExpression) -> str:
    """Give what the user calls a dataset."""
    return script.code(dataset.func if isinstance(dataset, cst.Call) else dataset)


# -- the fix ------------------------------------------------------------------


def _fix(script: Script, site: CallSite, tensors: list[cst.BaseExpression], change: Edits) -> Fix:
    title = "Take whole batches by their indices"
    layout = script.batching.layout(tensors)
    because = ""
    if layout is Layout.PERMUTED:
        because = "batches of permuted tensors lie permuted in memory: `view` may fail on them"
    elif layout is Layout.UNSEEN:
        because = (
            "if the tensors, which are made out of sight, are permuted views, then batches of "
            "them lie permuted in memory"
        )
    elif script.loaders.handed(site.node) or not script.loaders.passes(site.node):
        because = "code out of sight gets the loader, whose batch_size becomes None"
    return Fix.unsafe(title, change, because=because) if because else Fix.exact(title, change)
