"""TL101: a loader that loads every batch in the training process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import libcst as cst

from torchlint.api import (
    CallSite,
    Edits,
    Finding,
    Fix,
    Rule,
    Safety,
    Script,
    State,
    Trait,
    Traits,
)
from torchlint_rules._workers import GUARD, doubt, in_shell, keeps_on_device, runs_unguarded

_WORKERS: Final = ("num_workers", 5)
_EXEMPT: Final = (
    Trait.IN_MEMORY, Trait.UNSHARDED, Trait.MUTATES, Trait.HANDLE, Trait.ON_DEVICE, Trait.FEW,
)  # fmt: skip
_DEFAULT_DEVICE: Final = ("torch.set_default_device", "torch.set_default_tensor_type")


class LoaderWithoutWorkers(Rule):
    """
    ## What it does
    Flags a `DataLoader` that reads from a dataset which decodes, computes or transforms, and has
    no worker processes: `num_workers` is not given, or is `0`.

    ## Why it is slow
    Without workers the training process makes every batch itself, and the GPU stands still
    meanwhile. Two workers made a dataset of 0.5 ms an item 1.6 times as fast on two cores, four
    workers one that waits for the disk 3.2 times.

    ## When not to
    Tensors that are in memory are slower with workers (0.74 times), and so are a few dozen items
    read over many epochs. A dataset that holds an open file, gives tensors on the GPU or changes
    itself when it is read, and an iterable one that does not ask for its worker, break with
    workers: the rule is silent there. A number that comes from arguments or a configuration is
    somebody's decision. The option `workers` sets how many are asked for at most.

    ## Fix safety
    Exact where the passes over the loader stand behind `if __name__ == "__main__":` and the
    dataset is in sight and draws no random numbers: order and numbers stay what they were.
    Unsafe where items are drawn at random, for workers have random streams of their own, where
    the dataset is out of sight, and where something cannot be pickled. No fix for a script
    without the guard: worker processes would run it again from the top on Windows, on macOS, and
    on Linux from Python 3.14 on.
    """

    code = "TL101"
    name = "loader-without-workers"
    summary = "the training process loads every batch itself"
    impact = "high"
    safety = Safety.EXACT
    articles = ("S0", "S1", "S2", "S3.2")
    needs = ("DataLoader",)
    options: ClassVar[Mapping[str, Any]] = {"workers": 4}

    invalid = {
        "a dataset that decodes, behind the guard": """
            + import os
              import numpy as np
              from torch.utils.data import DataLoader, Dataset
              class Images(Dataset):
                  def __init__(self, paths):
                      self.paths = paths
                  def __len__(self):
                      return len(self.paths)
                  def __getitem__(self, index):
                      return np.load(self.paths[index])
              def main(paths):
            -     train_loader = DataLoader(Images(paths), batch_size=32, shuffle=True)
            +     train_loader = DataLoader(Images(paths), batch_size=32, shuffle=True,
            +                               num_workers=min(4, os.cpu_count() or 1))
                  for batch in train_loader:
                      print(batch)
              if __name__ == "__main__":
                  main(["a.npy"])
            """,
        "the zero is spelled out": """
              import os
              from torchvision import datasets, transforms
              from torch.utils.data import DataLoader
              if __name__ == "__main__":
                  train = datasets.MNIST("data", transform=transforms.ToTensor())
            -     loader = DataLoader(train, 32, True, num_workers=0)
            +     loader = DataLoader(train, 32, True, num_workers=min(4, os.cpu_count() or 1))
                  for x, y in loader:
                      print(x)
            """,
        "the zero is given by position, the module has an alias": """
              import os
              import torch.utils.data as td
              from torchvision import datasets, transforms
              if __name__ == "__main__":
                  train = datasets.MNIST("data", transform=transforms.ToTensor())
            -     loader = td.DataLoader(train, 32, True, None, None, 0)
            +     loader = td.DataLoader(train, 32, True, None, None, min(4, os.cpu_count() or 1))
                  for x, y in loader:
                      print(x)
            """,
        "through `from torch.utils import data`": """
              import os
              from torch.utils import data
              from torchvision import datasets, transforms
              def main():
                  train = datasets.MNIST("data", transform=transforms.ToTensor())
            -     for x, y in data.DataLoader(train, batch_size=32):
            +     for x, y in data.DataLoader(train, batch_size=32, num_workers=min(4, os.cpu_count() or 1)):
                      print(x)
              if __name__ == "__main__":
                  main()
            """,
        "a dictionary that surely holds no workers": """
              import os
              from torch.utils.data import DataLoader
              from torchvision import datasets, transforms
              def main():
                  train = datasets.MNIST("data", transform=transforms.ToTensor())
                  common = {"batch_size": 64, "pin_memory": True}
            -     loader = DataLoader(train, shuffle=True, **common)
            +     loader = DataLoader(train, shuffle=True, **common, num_workers=min(4, os.cpu_count() or 1))
                  for x, y in loader:
                      print(x)
              if __name__ == "__main__":
                  main()
            """,
        "os has another name here, and the call has lines of its own": """
              import os as system
              from torch.utils.data import DataLoader
              from torchvision import datasets, transforms
              def main():
            !     loader = DataLoader(
                      datasets.MNIST("data", transform=transforms.ToTensor()),
                      batch_size=32,  # fits
            +         num_workers=min(4, system.cpu_count() or 1),
                  )
                  for x, y in loader:
                      print(x)
              if __name__ == "__main__":
                  main()
            """,
        "random transforms make it unsafe": """
              import os
              from torch.utils.data import DataLoader
              from torchvision import datasets, transforms
              def main():
                  augment = transforms.Compose([transforms.RandomCrop(32, 4), transforms.ToTensor()])
                  train = datasets.CIFAR10("data", transform=augment)
            -     loader = DataLoader(train, batch_size=32)
            +     loader = DataLoader(train, batch_size=32, num_workers=min(4, os.cpu_count() or 1))
                  for x, y in loader:
                      print(x)
              if __name__ == "__main__":
                  main()
            """,
        "a dataset out of sight makes it unsafe": """
              import os
              from torch.utils.data import DataLoader
              from mine import Images
              def main():
            -     loader = DataLoader(Images(), batch_size=32)
            +     loader = DataLoader(Images(), batch_size=32, num_workers=min(4, os.cpu_count() or 1))
                  for x in loader:
                      print(x)
              if __name__ == "__main__":
                  main()
            """,
        "a lambda cannot be pickled, which makes it unsafe": """
              import os
              from torch.utils.data import DataLoader
              from torchvision import datasets, transforms
              def main():
                  scale = transforms.Compose([transforms.ToTensor(), transforms.Lambda(lambda x: x * 2)])
                  train = datasets.CIFAR10("data", transform=scale)
            -     loader = DataLoader(train, batch_size=32)
            +     loader = DataLoader(train, batch_size=32, num_workers=min(4, os.cpu_count() or 1))
                  for x, y in loader:
                      print(x)
              if __name__ == "__main__":
                  main()
            """,
        "a class inside a function cannot be pickled either": """
              import os
              from torch.utils.data import DataLoader, Dataset
              from PIL import Image
              def main(paths):
                  class Images(Dataset):
                      def __len__(self):
                          return len(paths)
                      def __getitem__(self, index):
                          return Image.open(paths[index])
            -     loader = DataLoader(Images(), batch_size=32)
            +     loader = DataLoader(Images(), batch_size=32, num_workers=min(4, os.cpu_count() or 1))
                  for x in loader:
                      print(x)
              if __name__ == "__main__":
                  main(["a.png"])
            """,
        "a file that only gives loaders cannot show the guard": """
              import os
              from torch.utils.data import DataLoader
              from torchvision import datasets, transforms
              def get_loader():
                  train = datasets.MNIST("data", transform=transforms.ToTensor())
            -     return DataLoader(train, batch_size=32)
            +     return DataLoader(train, batch_size=32, num_workers=min(4, os.cpu_count() or 1))
            """,
        "training without the guard gets no fix": """
              from torch.utils.data import DataLoader
              from torchvision import datasets, transforms
              train = datasets.MNIST("data", transform=transforms.ToTensor())
            ! loader = DataLoader(train, batch_size=32)
              for x, y in loader:
                  print(x)
            """,
        "training in a function that is called without the guard gets no fix": """
              from torch.utils.data import DataLoader
              from torchvision import datasets, transforms
              def main():
                  train = datasets.MNIST("data", transform=transforms.ToTensor())
            !     for x, y in DataLoader(train, batch_size=32):
                      print(x)
              main()
            """,
        "the word os is taken": """
              from torch.utils.data import DataLoader
              from torchvision import datasets, transforms
              def main():
                  train = datasets.MNIST("data", transform=transforms.ToTensor())
            !     for x, y in DataLoader(train, batch_size=32):
                      print(x)
              os = "linux"
              if __name__ == "__main__":
                  main()
            """,
        "an iterable dataset that asks for its worker": """
              import os
              import json
              from torch.utils.data import DataLoader, IterableDataset, get_worker_info
              class Lines(IterableDataset):
                  def __iter__(self):
                      info = get_worker_info()
                      with open("lines.json") as file:
                          for number, line in enumerate(file):
                              if info is None or number % info.num_workers == info.id:
                                  yield json.loads(line)
              def main():
            -     loader = DataLoader(Lines(), batch_size=32)
            +     loader = DataLoader(Lines(), batch_size=32, num_workers=min(4, os.cpu_count() or 1))
                  for x in loader:
                      print(x)
              if __name__ == "__main__":
                  main()
            """,
        "a file that is opened on first use is each worker's own": """
              import os
              import h5py
              from torch.utils.data import DataLoader, Dataset
              class Patches(Dataset):
                  def __init__(self, path, count):
                      self.path, self.count, self.file = path, count, None
                  def __len__(self):
                      return self.count
                  def __getitem__(self, index):
                      if self.file is None:
                          self.file = h5py.File(self.path, "r")
                      return self.file["x"][index]
              def main(path):
            -     loader = DataLoader(Patches(path, 10000), batch_size=32)
            +     loader = DataLoader(Patches(path, 10000), batch_size=32,
            +                         num_workers=min(4, os.cpu_count() or 1))
                  for x in loader:
                      print(x)
              if __name__ == "__main__":
                  main("a.h5")
            """,
        "parts of a dataset are what the whole is": """
              import os
              from torch.utils.data import DataLoader, random_split
              from torchvision import datasets, transforms
              def main():
                  whole = datasets.MNIST("data", transform=transforms.ToTensor())
                  train, held = random_split(whole, [50000, 10000])
            -     loader = DataLoader(train, batch_size=32)
            +     loader = DataLoader(train, batch_size=32, num_workers=min(4, os.cpu_count() or 1))
                  for x, y in loader:
                      print(x)
              if __name__ == "__main__":
                  main()
            """,
        "the option says how many": """
              # options: workers=2
              import os
              from torch.utils.data import DataLoader
              from torchvision import datasets, transforms
              def main():
                  train = datasets.MNIST("data", transform=transforms.ToTensor())
            -     for x, y in DataLoader(train, batch_size=32):
            +     for x, y in DataLoader(train, batch_size=32, num_workers=min(2, os.cpu_count() or 1)):
                      print(x)
              if __name__ == "__main__":
                  main()
            """,
    }
    valid = {
        "a dataset that is told the device, and a loop that moves nothing": """
            from torch.utils.data import DataLoader
            from mine import Texts
            def main(args, model):
                for x, y in DataLoader(Texts("train.txt", cuda=args.cuda), batch_size=32):
                    model(x)
            """,
        "the number comes from arguments: somebody decided": """
            from torch.utils.data import DataLoader
            from mine import Images
            def main(args):
                for x in DataLoader(Images(), num_workers=args.workers):
                    print(x)
            """,
        "a constant is a decision too, also when it is zero": """
            from torch.utils.data import DataLoader
            from mine import Images
            WORKERS = 0
            loader = DataLoader(Images(), num_workers=WORKERS)
            """,
        "the dictionary may hold the number": """
            from torch.utils.data import DataLoader
            from mine import Images
            def get_loader(**kwargs):
                return DataLoader(Images(), batch_size=4, **kwargs)
            """,
        "the dictionary gets the number on one path": """
            from torch.utils.data import DataLoader
            from mine import Images, use_cuda
            kwargs = {"num_workers": 1, "pin_memory": True} if use_cuda else {}
            loader = DataLoader(Images(), batch_size=4, **kwargs)
            """,
        "tensors in memory are slower with workers": """
            import torch
            from torch.utils.data import DataLoader, TensorDataset
            loader = DataLoader(TensorDataset(torch.rand(8, 2), torch.rand(8)), batch_size=4)
            """,
        "a part of tensors in memory": """
            import torch
            from torch.utils.data import DataLoader, Subset, TensorDataset
            whole = TensorDataset(torch.rand(8, 2), torch.rand(8))
            loader = DataLoader(Subset(whole, indices), batch_size=4)
            """,
        "a split of tensors in memory": """
            import torch
            from torch.utils.data import DataLoader, TensorDataset, random_split
            whole = TensorDataset(torch.rand(8, 2), torch.rand(8))
            train, test = random_split(whole, [6, 2])
            loader = DataLoader(train, batch_size=4)
            """,
        "a list of tensors is in memory": """
            import torch
            from torch.utils.data import DataLoader
            pairs = [(torch.rand(2), i) for i in range(1000)]
            loader = DataLoader(pairs, batch_size=4)
            """,
        "a class that only indexes its tensors is in memory": """
            import torch
            from torch.utils.data import DataLoader, Dataset
            class Rows(Dataset):
                def __init__(self, x, y):
                    self.x, self.y = torch.tensor(x), torch.tensor(y)
                def __len__(self):
                    return len(self.x)
                def __getitem__(self, index):
                    return self.x[index].float(), self.y[index]
            def get_loader(x, y):
                return DataLoader(Rows(x, y), batch_size=4)
            """,
        "a dataset with tensors on the GPU cannot be read in workers": """
            from torch.utils.data import DataLoader, Dataset
            from mine import load
            class Rows(Dataset):
                def __init__(self, paths, device):
                    self.paths, self.device = paths, device
                def __getitem__(self, index):
                    return load(self.paths[index]).to(self.device)
            def get_loader(paths, device):
                return DataLoader(Rows(paths, device), batch_size=4)
            """,
        "tensors are made on the GPU by default": """
            import torch
            from torch.utils.data import DataLoader
            from mine import Images
            torch.set_default_device("cuda")
            loader = DataLoader(Images(), batch_size=4)
            """,
        "every worker would give the whole stream": """
            from torch.utils.data import DataLoader, IterableDataset
            class Lines(IterableDataset):
                def __iter__(self):
                    with open("lines") as file:
                        for line in file:
                            yield line.split()
            loader = DataLoader(Lines(), batch_size=4)
            """,
        "a cache that workers fill is lost to the others": """
            from torch.utils.data import DataLoader, Dataset
            from PIL import Image
            class Cached(Dataset):
                def __init__(self, paths):
                    self.paths, self.cache = paths, {}
                def __getitem__(self, index):
                    if index not in self.cache:
                        self.cache[index] = Image.open(self.paths[index])
                    return self.cache[index]
            loader = DataLoader(Cached(["a"]), batch_size=4)
            """,
        "a counter that workers count stays zero here": """
            from torch.utils.data import DataLoader, Dataset
            from PIL import Image
            class Counted(Dataset):
                def __getitem__(self, index):
                    self.count += 1
                    return Image.open(str(index))
            loader = DataLoader(Counted(), batch_size=4)
            """,
        "an open file cannot be shared with workers": """
            import h5py
            import torch
            from torch.utils.data import DataLoader, Dataset
            class Patches(Dataset):
                def __init__(self, path):
                    self.file = h5py.File(path, "r")
                    self.images = self.file["images"]
                def __getitem__(self, index):
                    return torch.FloatTensor(self.images[index] / 255.0)
            loader = DataLoader(Patches("a.h5"), batch_size=4)
            """,
        "a few items are read faster than workers start": """
            from torch.utils.data import DataLoader, Dataset
            from PIL import Image
            class Few(Dataset):
                def __len__(self):
                    return 64
                def __getitem__(self, index):
                    return Image.open(f"{index}.png")
            loader = DataLoader(Few(), batch_size=4)
            """,
        "a notebook has no guard and cannot start workers everywhere": """
            from torch.utils.data import DataLoader
            from mine import Images
            get_ipython().run_line_magic("matplotlib", "inline")
            loader = DataLoader(Images(), batch_size=4)
            """,
        "a daemonic process may not have children": """
            import multiprocessing
            from torch.utils.data import DataLoader
            from mine import Images
            def train(rank):
                for x in DataLoader(Images(), batch_size=4):
                    print(x)
            if __name__ == "__main__":
                with multiprocessing.Pool(2) as pool:
                    pool.map(train, range(2))
            """,
        "one batch to look at is not worth starting workers": """
            from torch.utils.data import DataLoader
            from mine import Images
            loader = DataLoader(Images(), batch_size=4)
            x, y = next(iter(loader))
            """,
        "evaluation between two batches would start workers each time": """
            from torch.utils.data import DataLoader
            from mine import Images, batches, model
            def evaluate():
                for x, y in DataLoader(Images(), batch_size=4):
                    model(x)
            def main():
                for step, batch in enumerate(batches):
                    model(batch).backward()
                    if step % 100 == 0:
                        evaluate()
            """,
        "a dataset out of sight that makes whole batches may be a stream": """
            from torch.utils.data import DataLoader
            from mine import Stream
            loader = DataLoader(Stream(), batch_size=None)
            """,
        "the datasets of torchtext are streams": """
            from torch.utils.data import DataLoader
            from torchtext.datasets import Multi30k
            loader = DataLoader(Multi30k(split="train"), batch_size=4)
            """,
        "indices are in memory": """
            from torch.utils.data import DataLoader
            from mine import train_idx
            loader = DataLoader(train_idx, batch_size=1024)
            """,
        "another library's loader of the same name": """
            from torch_geometric.loader import DataLoader
            from mine import Graphs
            loader = DataLoader(Graphs(), batch_size=4)
            """,
        "what the name means is not certain": """
            from torch.utils import data
            from mine import load
            data = load()
            loader = data.DataLoader(load(), batch_size=4)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loader without workers whose dataset gains by them."""
        if any(True for _ in script.calls("IPython.get_ipython")) or in_shell(script):
            return
        if any(True for _ in script.calls(*_DEFAULT_DEVICE)):
            return
        for site in script.calls("torch.utils.data.DataLoader"):
            traits = self._traits(script, site)
            if traits is None or any(trait in traits for trait in _EXEMPT):
                continue
            if script.guard.in_daemon(site.node) or script.loaders.draws_once(site.node):
                continue
            if script.loaders.made_in_batch_loop(site.node) or keeps_on_device(script, site):
                continue
            if Trait.UNSEEN in traits and site.argument("batch_size", 1).equals(None):
                continue
            message, fix = self._advice(script, site, traits)
            yield Finding(self.code, script.span(site.node), message, fix)

    def _traits(self, script: Script, site: CallSite) -> Traits | None:
        """Give the traits of what a loader without workers reads, None for other loaders."""
        given = site.given(*_WORKERS)
        if given is None:
            if site.argument(*_WORKERS).state is not State.ABSENT:
                return None
        elif not isinstance(given.value, cst.Integer) or given.value.value != "0":
            return None
        dataset = site.given("dataset", 0)
        if dataset is None:
            return None
        found = dict(script.datasets.traits(dataset.value))
        for name, position in (("collate_fn", 6), ("worker_init_fn", 10)):
            function = site.given(name, position)
            if function is not None:
                for trait, word in script.datasets.callable_traits(function.value).items():
                    found.setdefault(trait, word)
        return found

    def _advice(self, script: Script, site: CallSite, traits: Traits) -> tuple[str, Fix | None]:
        message = (
            f"{script.loaders.label(site.node)} has no workers: the loop waits while each batch "
            "is loaded; pass num_workers"
        )
        if not script.is_notebook and runs_unguarded(script, site.node):
            return f"{message} and put the training behind {GUARD}, which workers need", None
        imported = script.rewrite.importing("os")
        if imported is None:
            return message, None
        os, edits = imported
        count = f"min({self.settings['workers']}, {os}.cpu_count() or 1)"
        title = f"Load with num_workers={count}"
        change: Edits = script.rewrite.set_argument(
            site.node, site.given(*_WORKERS), "num_workers", count
        )
        because = doubt(script, traits)
        if because:
            return message, Fix.unsafe(title, change, edits, because=because)
        return message, Fix.exact(title, change, edits)
