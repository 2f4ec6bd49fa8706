"""TL102: a loader whose batches are copied to the GPU from pageable memory."""

from __future__ import annotations

from collections.abc import Iterator

from torchlint.api import CallSite, Finding, Fix, Rule, Safety, Script
from torchlint_rules._pinning import available, unpinned


class UnpinnedLoader(Rule):
    """
    ## What it does
    Flags a `DataLoader` without `pin_memory` whose batches go to a GPU.

    ## Why it is slow
    A GPU reads page-locked memory by itself. From any other memory the driver copies each batch
    once more first, and `non_blocking=True` has no effect.

    ## When not to
    Page-locked memory cannot be swapped out: leave it where memory is short. The rule is silent
    where the script runs on the CPU or on Apple's devices alone, where the dataset gives tensors
    that are on the GPU already, where batches are of a class of your own without `pin_memory()`
    (torch leaves them as they are), and where the loop pins by hand. `pin_memory=False` and a
    value from arguments are somebody's decision.

    ## Fix safety
    Exact: only the place of the batches changes. `torch.cuda.is_available()` keeps a run without
    a GPU free of the warning that torch gives for `True`.
    """

    code = "TL102"
    name = "unpinned-loader"
    summary = "batches are copied to the GPU from pageable memory"
    impact = "medium"
    safety = Safety.EXACT
    after = ("TL101", "TL701")
    articles = ("S0", "S1", "S2", "S3.2")
    needs = ("DataLoader",)

    invalid = {
        "the next batch goes to the device at once": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
            - batches = iter(DataLoader(Images(), batch_size=32))
            + batches = iter(DataLoader(Images(), batch_size=32, pin_memory=torch.cuda.is_available()))
              for step in range(100):
                  model(next(batches).to(torch.device("cuda")))
            """,
        "batches go to the device": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            - train_loader = DataLoader(Images(), batch_size=32, num_workers=4)
            + train_loader = DataLoader(Images(), batch_size=32, num_workers=4,
            +                           pin_memory=torch.cuda.is_available())
              for x, y in train_loader:
                  model(x.to(device), y.to(device))
            """,
        "batches go to the device in another function": """
              import torch as th
              from torch.utils import data
              from mine import Images, model
              def step(batch):
                  x, y = (part.cuda(non_blocking=True) for part in batch)
                  return model(x, y)
              def main():
            -     loader = data.DataLoader(Images())
            +     loader = data.DataLoader(Images(), pin_memory=th.cuda.is_available())
                  for batch in loader:
                      step(batch)
            """,
        "only names of torch are imported": """
            + import torch
              from torch import cuda, device
              from torch.utils.data import DataLoader
              from mine import Images, model
              where = device("cuda")
            - loader = DataLoader(Images())
            + loader = DataLoader(Images(), pin_memory=torch.cuda.is_available())
              for x, y in loader:
                  model(x.to(where))
            """,
        "tensors in memory are copied all the same": """
              import torch
              from torch.utils.data import DataLoader, TensorDataset
              from mine import model, x, y
            - loader = DataLoader(TensorDataset(x, y), batch_size=32)
            + loader = DataLoader(TensorDataset(x, y), batch_size=32, pin_memory=torch.cuda.is_available())
              for a, b in loader:
                  model(a.cuda(), b.cuda())
            """,
        "the comment stands behind the call, not behind its last argument": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
            ! loader = DataLoader(Images(), batch_size=32,
            -                     shuffle=True)  # mixed
            +                     shuffle=True,
            +                     pin_memory=torch.cuda.is_available())  # mixed
              for x, y in loader:
                  model(x.cuda())
            """,
        "what makes the batches stands in a dictionary": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Boxes, collate, model
              settings = {"batch_size": 8, "collate_fn": collate, "num_workers": 4}
            - loader = DataLoader(Boxes(), **settings)
            + loader = DataLoader(Boxes(), **settings, pin_memory=torch.cuda.is_available())
              for data in loader:
                  model(data["image"].cuda(), data["boxes"].cuda())
            """,
        "a collate function that gives a tuple": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              def collate(items):
                  return torch.stack([x for x, y in items]), [y for x, y in items]
            - loader = DataLoader(Images(), collate_fn=collate)
            + loader = DataLoader(Images(), collate_fn=collate, pin_memory=torch.cuda.is_available())
              for x, y in loader:
                  model(x.cuda())
            """,
        "the loop uses what the collate function gives as a mapping": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Texts, collate, model
            - for batch in DataLoader(Texts(), collate_fn=collate):
            + for batch in DataLoader(Texts(), collate_fn=collate, pin_memory=torch.cuda.is_available()):
                  batch = {name: value.cuda() for name, value in batch.items()}
                  model(**batch)
            """,
        "a generator hands the batches on": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              def forever(loader):
                  while True:
                      for batch in loader:
                          yield batch
            - loader = DataLoader(Images())
            + loader = DataLoader(Images(), pin_memory=torch.cuda.is_available())
              batches = forever(loader)
              for step in range(1000):
                  model(next(batches).cuda())
            """,
        "a loader that the file hands out, in a file that knows the GPU": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images
              device = "cuda" if torch.cuda.is_available() else "cpu"
              def get_loader():
            -     return DataLoader(Images(), batch_size=32)
            +     return DataLoader(Images(), batch_size=32, pin_memory=torch.cuda.is_available())
            """,
        "a dictionary that surely holds no pinning": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              options = {"batch_size": 32, "num_workers": 4}
            - loader = DataLoader(Images(), **options)
            + loader = DataLoader(Images(), **options, pin_memory=torch.cuda.is_available())
              for x, y in loader:
                  model(x.cuda())
            """,
        "one of several devices is Apple's": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              if torch.cuda.is_available():
                  device = torch.device("cuda")
              elif torch.backends.mps.is_available():
                  device = torch.device("mps")
            - loader = DataLoader(Images())
            + loader = DataLoader(Images(), pin_memory=torch.cuda.is_available())
              for x, y in loader:
                  model(x.to(device))
            """,
        "Intel's GPUs are asked for through torch.accelerator": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              device = torch.device("xpu")
            - loader = DataLoader(Images())
            + loader = DataLoader(Images(), pin_memory=torch.accelerator.is_available())
              for x, y in loader:
                  model(x.to(device))
            """,
        "the deprecated device of the pinned memory goes": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
            - loader = DataLoader(Images(), pin_memory_device="cuda", batch_size=8)
            + loader = DataLoader(Images(), batch_size=8,
            +                     pin_memory=torch.cuda.is_available())
              for x, y in loader:
                  model(x.cuda())
            """,
        "the word torch is taken": """
              from torch.utils.data import DataLoader
              from mine import Images, model, torch
            ! loader = DataLoader(Images())
              for x, y in loader:
                  model(x.cuda())
            """,
        "a collate function out of sight, whose batches are tensors by what is done with them": """
              import torch
              from torch.autograd import Variable
              from torch.utils.data import DataLoader
              from mine import dataset
            - loader = DataLoader(dataset, collate_fn=dataset.collate)
            + loader = DataLoader(dataset, collate_fn=dataset.collate, pin_memory=torch.cuda.is_available())
              for images, targets in loader:
                  images = Variable(images.cuda())
                  model(images, targets).backward()
            """,
    }
    valid = {
        "a dictionary whose function makes batches out of sight": """
            from torch.utils.data import DataLoader
            from mine import Boxes, collate, model
            settings = {"batch_size": 8, "collate_fn": collate, "num_workers": 4}
            for data in DataLoader(Boxes(), **settings):
                model(data.cuda())
            """,
        "a collate function out of sight may hand out objects of its own": """
            from torch.utils.data import DataLoader
            from mine import collate
            def train(model, dataset, device="cuda"):
                train_loader = DataLoader(dataset, batch_size=32, num_workers=4, collate_fn=collate)
                for samples, targets in train_loader:
                    model(samples.to(device), targets).backward()
            """,
        "batches that a network on the host takes as they are": """
            import random
            from torch.utils.data import DataLoader
            from mine import score
            def test(model, dataset, device="cuda"):
                test_loader = DataLoader(dataset, batch_size=32, num_workers=4)
                for images in test_loader:
                    order = random.sample(range(images.size(0)), 8)
                    answer = model(images[order])
                    answer = answer[order]
                    score(answer)
            """,
        "the items are already where the framework's object says": """
            from accelerate import Accelerator
            from torch.utils.data import DataLoader, Dataset
            from mine import model, rows
            def main():
                accelerator = Accelerator()
                device = accelerator.device
                class Rows(Dataset):
                    def __getitem__(self, index):
                        return rows[index].to(device)
                loader = DataLoader(Rows())
                for batch in loader:
                    model(batch.cuda())
            """,
        "the script runs on the CPU": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            for x, y in DataLoader(Images()):
                model(x)
            """,
        "Apple's device has no page-locked memory": """
            import torch
            from torch.utils.data import DataLoader
            from mine import Images, model
            device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
            for x, y in DataLoader(Images()):
                model(x.to(device))
            """,
        "torch.accelerator, which Intel's GPUs need here, is newer than the torch in use": """
            # target-torch: 2.4
            import torch
            from torch.utils.data import DataLoader
            from mine import Images, model
            device = torch.device("xpu")
            for x, y in DataLoader(Images()):
                model(x.to(device))
            """,
        "the dataset gives tensors that are on the GPU: pinning raises": """
            import torch
            from torch.utils.data import DataLoader, TensorDataset
            from mine import model, x, y
            x = x.cuda()
            loader = DataLoader(TensorDataset(x, y.cuda()), batch_size=32)
            for a, b in loader:
                model(a, b)
            """,
        "the collate function moves the batch: pinning raises": """
            import torch
            from torch.utils.data import DataLoader
            from mine import Images, model
            device = torch.device("cuda")
            def collate(items):
                return torch.stack(items).to(device)
            for x in DataLoader(Images(), collate_fn=collate):
                model(x.to(device))
            """,
        "tensors are made on the GPU by default": """
            import torch
            from torch.utils.data import DataLoader
            from mine import Images, model
            torch.set_default_device("cuda")
            for x in DataLoader(Images()):
                model(x.cuda())
            """,
        "batches of a class without `pin_memory()` stay as they are": """
            import torch
            from torch.utils.data import DataLoader
            from mine import Images, model
            class Batch:
                def __init__(self, items):
                    self.x = torch.stack(items)
                def to(self, device):
                    self.x = self.x.to(device)
                    return self
            for batch in DataLoader(Images(), collate_fn=Batch):
                model(batch.to("cuda"))
            """,
        "what the collate function gives is out of sight": """
            from torch.utils.data import DataLoader
            from mine import Images, collate, model
            for batch in DataLoader(Images(), collate_fn=collate):
                model(batch.to("cuda"))
            """,
        "the batches of this loader stay on the host": """
            import torch
            from torch.utils.data import DataLoader
            from mine import Images, model
            model.to("cuda")
            total = 0.0
            for x, y in DataLoader(Images()):
                total = total + x.mean()
            """,
        "only what the batch is an index of goes to the GPU": """
            from torch.utils.data import DataLoader
            from mine import data, model, train_idx
            for idx in DataLoader(train_idx, batch_size=1024):
                model(data.x[idx].to("cuda"))
            """,
        "a collate function of another module": """
            from torch.utils.data import DataLoader
            from mine import Images, model, utils
            for images, targets in DataLoader(Images(), collate_fn=utils.collate_fn):
                model(images.to("cuda"))
            """,
        "the loop pins by hand": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            for x, y in DataLoader(Images()):
                model(x.pin_memory().to("cuda", non_blocking=True))
            """,
        "pinning comes from arguments": """
            from torch.utils.data import DataLoader
            from mine import Images, args, model
            for x, y in DataLoader(Images(), pin_memory=args.pin):
                model(x.cuda())
            """,
        "somebody decided against it": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            for x, y in DataLoader(Images(), pin_memory=False):
                model(x.cuda())
            """,
        "the dictionary may hold it": """
            from torch.utils.data import DataLoader
            from mine import Images, kwargs, model
            for x, y in DataLoader(Images(), **kwargs):
                model(x.cuda())
            """,
        "another library's loader of the same name": """
            from torch_geometric.loader import DataLoader
            from mine import graphs, model
            for graph in DataLoader(graphs):
                model(graph.cuda())
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loader whose batches go to a GPU from pageable memory."""
        for site in unpinned(script):
            asked = available(script)
            assert asked is not None
            message = (
                f"{script.loaders.label(site.node)} hands out pageable memory: every batch is "
                f"copied twice on its way to the GPU; pass pin_memory={asked}"
            )
            yield Finding(self.code, script.span(site.node), message, _fix(script, site, asked))


def _fix(script: Script, site: CallSite, asked: str) -> Fix | None:
    imported = script.rewrite.importing("torch")
    if imported is None:
        return None
    torch, edits = imported
    value = asked.replace("torch", torch, 1)
    change = script.rewrite.with_keyword(site.node, "pin_memory", value)
    deprecated = site.given("pin_memory_device")
    if deprecated is not None:
        if not script.target.has((2, 8)):
            return None
        change = (*change, *script.rewrite.without_argument(site.node, deprecated))
    return Fix.exact(f"Pass pin_memory={value}", change, edits)
