"""TL107: a dataset or collate function that puts tensors on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, ItemCode, Per, Rule, Script

_LOADS: Final = {
    Per.ITEM: "each item",
    Per.STREAM: "each item",
    Per.BATCH: "each batch",
}


class DeviceWorkInDataset(Rule):
    """
    ## What it does
    Flags a dataset's `__getitem__`, or a collate function, that puts tensors on the GPU.

    ## Why it is slow
    Loading is the work of the host, so that the GPU can go on meanwhile. With transfers in it, it
    cannot: workers cannot touch CUDA after a fork ("Cannot re-initialize CUDA in forked
    subprocess"), so all loading stays in the training process, and tensors on the GPU cannot be
    pinned, so every transfer blocks. In `__getitem__` it is one small transfer for each item
    besides.

    ## When not to
    A dataset whose tensors all are on the GPU from the start moves nothing when it is read. Nor is
    a wrapper around a loader that moves whole batches any problem: it runs in the training process.

    ## Fix safety
    There is no fix: the transfer has to move to every loop that reads from the loader.
    """

    code = "TL107"
    name = "device-work-in-dataset"
    summary = "loading puts tensors on the device"
    impact = "high"
    safety = None
    articles = ("S1", "S2")
    needs = ("__getitem__", "collate", "__iter__")

    invalid = {
        "items are moved one by one": """
              import torch
              from torch.utils.data import Dataset
              class Rows(Dataset):
                  def __init__(self, x, y):
                      self.x, self.y = x, y
                  def __getitem__(self, i):
            !         return self.x[i].cuda(), self.y[i].cuda()
            """,
        "to the device that the object keeps": """
              import torch
              from torch.utils.data import Dataset
              from mine import load
              device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
              class Images(Dataset):
                  def __init__(self, paths):
                      self.paths, self.device = paths, device
                  def __getitem__(self, i):
            !         return load(self.paths[i]).to(self.device)
            """,
        "made there at once": """
              import torch
              import torch.utils.data as td
              class Rows(td.Dataset):
                  def __getitem__(self, i):
            !         return torch.tensor(self.rows[i], device="cuda:0")
            """,
        "through a method": """
              import torch
              from torch.utils.data import Dataset
              class Rows(Dataset):
                  def _moved(self, x):
            !         return x.to("cuda", non_blocking=True)
                  def __getitem__(self, i):
                      return self._moved(self.x[i])
            """,
        "a class that a loader gets, without a base": """
              import torch
              from torch.utils.data import DataLoader
              class Rows:
                  def __len__(self):
                      return 100
                  def __getitem__(self, i):
            !         return torch.zeros(3).cuda()
              loader = DataLoader(Rows(), batch_size=4)
            """,
        "a stream": """
              import torch
              from torch.utils.data import IterableDataset
              class Stream(IterableDataset):
                  def __iter__(self):
                      for line in self.lines:
            !             yield torch.tensor(line).to("cuda")
            """,
        "a collate function": """
              import torch
              from torch.utils.data import DataLoader
              from mine import data
              device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
              def pad(rows):
                  labels = torch.tensor([label for label, _ in rows])
            !     return labels.to(device)
              loader = DataLoader(data, batch_size=8, collate_fn=pad)
            """,
        "a lambda": """
              import torch
              from torch.utils.data import DataLoader
              from mine import data
            ! loader = DataLoader(data, batch_size=8, collate_fn=lambda rows: torch.stack(rows).cuda())
            """,
        "an object that collates": """
              import torch
              from torch.utils.data import DataLoader
              from mine import data
              class Padding:
                  def __call__(self, rows):
            !         return torch.stack(rows).cuda()
              loader = DataLoader(data, batch_size=8, collate_fn=Padding())
            """,
        "a collate function by its name": """
              import torch
              def collate_fn(rows):
            !     return torch.stack(rows).cuda()
            """,
    }
    valid = {
        "the loop moves the batches": """
            import torch
            from torch.utils.data import DataLoader, Dataset
            from mine import model
            class Rows(Dataset):
                def __getitem__(self, i):
                    return self.x[i]
            for x in DataLoader(Rows(), batch_size=8):
                model(x.cuda()).backward()
            """,
        "everything is there from the start": """
            import torch
            from torch.utils.data import Dataset
            class Rows(Dataset):
                def __init__(self, x):
                    self.x = x.cuda()
                def __getitem__(self, i):
                    return self.x[i]
            """,
        "another type, not another device": """
            import torch
            from torch.utils.data import Dataset
            class Rows(Dataset):
                def __getitem__(self, i):
                    return self.x[i].to(torch.float32), self.y[i].to("cpu")
            device = torch.device("cuda")
            """,
        "where the items are already": """
            import torch
            def collate_fn(rows):
                device = rows[0].device
                out = torch.zeros(len(rows), 8, device=device)
                for i, row in enumerate(rows):
                    out[i, : len(row)] = row.to(out.device)
                return out.to(torch.device("cpu")), torch.ones(3, device=rows[1].device).cuda
            device = torch.device("cuda")
            """,
        "a wrapper around a loader moves whole batches": """
            import torch
            class DeviceLoader:
                def __init__(self, loader, device):
                    self.loader, self.device = loader, device
                def __iter__(self):
                    for x, y in self.loader:
                        yield x.to(self.device), y.to(self.device)
            """,
        "a replay buffer is no dataset": """
            import torch
            class Replay:
                def __getitem__(self, i):
                    return self.states[i].cuda()
            """,
        "a list of networks is none either": """
            import torch
            class Ensemble(torch.nn.Module):
                def __getitem__(self, i):
                    return self.members[i].cuda()
            """,
        "this script runs on the CPU alone": """
            import torch
            from torch.utils.data import Dataset
            device = torch.device("cpu")
            class Rows(Dataset):
                def __getitem__(self, i):
                    return self.x[i].to(device)
            """,
        "what is moved when the dataset is made": """
            import torch
            from torch.utils.data import Dataset
            class Features(Dataset):
                def __init__(self, images, model):
                    self.x = [model(image.cuda()).cpu() for image in images]
                def __getitem__(self, i):
                    return self.x[i]
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every function of loading that puts tensors on a device, once."""
        if not script.can_use_accelerator:
            return
        seen: set[int] = set()
        for code in script.items():
            call = _moving(script, code)
            if call is None or id(call) in seen:
                continue
            seen.add(id(call))
            message = (
                f"`{code.label}` puts {_LOADS[code.per]} on the device, so the loader can have "
                "neither workers nor pinned memory; move whole batches in the loop"
            )
            yield Finding(self.code, script.span(call), message)


def _moving(script: Script, code: ItemCode) -> cst.Call | None:
    """Give the first call that puts a tensor on a device while an item or a batch is loaded."""
    for body in script.functions.reached(code.node):
        for call in script.functions.own(body, cst.Call):
            if script.datasets.work.moves_to_device(call):
                return call
    return None
