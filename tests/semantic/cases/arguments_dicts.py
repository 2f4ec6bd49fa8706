# framework: none
"""Arguments that come through dictionaries."""
import functools
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

use_cuda = torch.cuda.is_available()

kwargs = {"num_workers": 1, "pin_memory": True} if use_cuda else {}
DataLoader(ds, batch_size=64, **kwargs)  # arg num_workers: decided; arg pin_memory: decided; arg batch_size: 64; arg shuffle: absent; arg drop_last: absent

same = {"num_workers": 4} if use_cuda else {"num_workers": 4}
DataLoader(ds, **same)  # arg num_workers: 4; arg pin_memory: absent

plain = {"num_workers": 2, "pin_memory": True}
DataLoader(ds, **plain)  # arg num_workers: 2; arg pin_memory: True; arg persistent_workers: absent

called = dict(num_workers=0, shuffle=True)
DataLoader(ds, **called)  # arg num_workers: 0; arg shuffle: True; arg pin_memory: absent

DataLoader(ds, **{"num_workers": 3})  # arg num_workers: 3
DataLoader(ds, **dict(batch_size=2, num_workers=3))  # arg num_workers: 3; arg batch_size: 2
DataLoader(ds, *positional)  # arg num_workers: unknown; arg batch_size: unknown
DataLoader(ds, 32, False, None, None, 4)  # arg num_workers: 4; arg shuffle: False; arg batch_size: 32; arg pin_memory: absent
DataLoader(dataset=ds, num_workers=os.cpu_count())  # arg num_workers: os.cpu_count()
DataLoader(ds, **config["loader"])  # arg num_workers: unknown; arg pin_memory: unknown
DataLoader(ds, num_workers=0, **config)  # arg num_workers: 0; arg pin_memory: unknown

updated = {"batch_size": 8}
updated.update({"num_workers": 6})
DataLoader(ds, **updated)  # arg num_workers: 6; arg batch_size: 8; arg pin_memory: absent

by_keyword = {"batch_size": 8}
by_keyword.update(num_workers=6, pin_memory=True)
DataLoader(ds, **by_keyword)  # arg num_workers: 6; arg pin_memory: True; arg shuffle: absent

written = {}
written["num_workers"] = 5
DataLoader(ds, **written)  # arg num_workers: 5; arg pin_memory: absent

maybe = {"batch_size": 8}
if use_cuda:
    maybe["num_workers"] = 5
DataLoader(ds, **maybe)  # arg num_workers: decided; arg batch_size: 8; arg pin_memory: absent

extended = {**plain, "batch_size": 16}
DataLoader(ds, **extended)  # arg num_workers: 2; arg batch_size: 16; arg shuffle: absent

from_elsewhere = {"batch_size": 8}
from_elsewhere.update(load_settings())
DataLoader(ds, **from_elsewhere)  # arg num_workers: unknown

handed_out = {"batch_size": 8}
fill_in(handed_out)
DataLoader(ds, **handed_out)  # arg num_workers: unknown



def train(ds, options, workers):
    options["shuffle"] = True
    return DataLoader(ds, batch_size=options["batch_size"], num_workers=workers["train"])


def keep(options):
    global kept
    kept = options


handed_on = {"batch_size": 8, "shuffle": False}
workers = {"train": 4}
train(ds, handed_on, workers)
DataLoader(ds, 8, handed_on["shuffle"], num_workers=workers["train"])  # arg num_workers: 4; arg shuffle: decided
kept_elsewhere = {"num_workers": 4}
keep(kept_elsewhere)
DataLoader(ds, num_workers=kept_elsewhere["num_workers"], **handed_on)  # arg num_workers: decided; arg batch_size: 8

make = functools.partial(DataLoader, num_workers=4, pin_memory=True)
make(ds, batch_size=8)  # kind: LOADER

NUM_WORKERS = 8
DataLoader(ds, num_workers=NUM_WORKERS)  # arg num_workers: 8
NONE_AT_ALL = 0
DataLoader(ds, num_workers=NONE_AT_ALL)  # arg num_workers: 0


def loader_of(ds, **kw):
    return DataLoader(ds, **kw)  # arg num_workers: unknown; kind: LOADER


def loader_with_default(ds, num_workers=0):
    return DataLoader(ds, num_workers=num_workers)  # arg num_workers: decided


def loader_with_call_site(ds, workers):
    return DataLoader(ds, num_workers=workers)  # arg num_workers: 0


loader_with_call_site(train_ds, 0)
loader_with_call_site(test_ds, 0)


def loader_with_call_sites(ds, workers):
    return DataLoader(ds, num_workers=workers)  # arg num_workers: decided


loader_with_call_sites(train_ds, 4)
loader_with_call_sites(test_ds, 0)


def conv(i, o, bias):
    return nn.Conv2d(i, o, 3, 1, 1, 1, 1, bias)  # arg bias: decided; arg padding: 1; arg kernel_size: 3


nn.Conv2d(3, 8, kernel_size=3, bias=not use_cuda)  # arg bias: not use_cuda; arg stride: absent
nn.Linear(3, 8, False)  # arg bias: False; arg in_features: 3; arg out_features: 8
