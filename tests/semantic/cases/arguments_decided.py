# framework: none
"""Values that somebody chose: argparse, a configuration, the environment."""
import argparse
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("-j", "--workers", default=0, type=int)
parser.add_argument("--pin", action="store_true")
parser.add_argument("--device", default="cuda")
args = parser.parse_args()
opt = parser.parse_known_args()[0]

DataLoader(ds, num_workers=args.workers, pin_memory=args.pin)  # arg num_workers: decided; arg pin_memory: decided; arg shuffle: absent
DataLoader(ds, num_workers=opt.workers)  # arg num_workers: decided
DataLoader(ds, num_workers=cfg.DATA.NUM_WORKERS)  # arg num_workers: decided
DataLoader(ds, num_workers=config["workers"])  # arg num_workers: decided
DataLoader(ds, num_workers=config.get("workers", 0))  # kind: LOADER
DataLoader(ds, num_workers=hparams.num_workers, **vars(args))  # arg num_workers: decided; arg pin_memory: unknown
DataLoader(ds, **vars(args))  # arg num_workers: unknown
DataLoader(ds, **args.loader_options)  # arg num_workers: unknown
loader_args = {"num_workers": args.workers}
DataLoader(ds, **loader_args)  # arg num_workers: decided; arg pin_memory: absent

workers = 0
if torch.cuda.is_available():
    workers = 4
DataLoader(ds, num_workers=workers)  # arg num_workers: decided

workers = 2
DataLoader(ds, num_workers=workers)  # arg num_workers: 2


class Settings:
    workers = 4
    batch_size = 16


DataLoader(ds, num_workers=Settings.workers)  # arg num_workers: 4


class Data:
    def __init__(self, root, num_workers=0):
        self.root = root
        self.num_workers = num_workers
        self.batch_size = 64

    def loader(self):
        return DataLoader(self.root, batch_size=self.batch_size, num_workers=self.num_workers)  # arg num_workers: decided; arg batch_size: 64


def main(args):
    return DataLoader(args.data, num_workers=args.workers)  # arg num_workers: decided


def closure(workers):
    def make(ds):
        return DataLoader(ds, num_workers=workers)  # arg num_workers: decided

    return make


def scope(ds):
    workers = 7
    make = lambda: DataLoader(ds, num_workers=workers)
    return DataLoader(ds, num_workers=workers), make  # arg num_workers: 7
