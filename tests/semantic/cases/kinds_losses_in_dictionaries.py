"""Dictionaries of losses: what one call of a function shows of them is true of each call."""

import torch
from torch import nn


class First(nn.Module):
    def compute(self, *parts):
        return {"total": parts[0] + parts[1], "fit": parts[0]}


class Second(nn.Module):
    def compute(self, *parts):
        return {"total": parts[0], "norm": parts[1]}

    def sizes(self, *parts):
        return {"rows": parts[0], "columns": parts[1]}


NETWORKS = {"first": First, "second": Second}


class Workspace:
    def __init__(self, cfg, loader):
        self.net = NETWORKS[cfg.name]()
        self.optimizer = torch.optim.AdamW(self.net.parameters())
        self.loader = loader

    def run(self):
        for batch in self.loader:
            found = self.net.compute(*batch)
            found["total"].backward()
            self.optimizer.step()

    def check(self):
        for batch in self.loader:
            found = self.net.compute(*batch)
            for name, value in found.items():
                print(name, value)  # kind name: UNKNOWN; kind value: TENSOR
            for size in self.net.sizes(*batch).values():
                print(size)  # kind size: UNKNOWN
