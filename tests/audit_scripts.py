"""Small scripts that between them show every technique in every state that it can have."""

from __future__ import annotations

from typing import Final

__all__ = ["SMALL"]

TUNED: Final = """\
import copy
import functools
import os
import time
from contextlib import nullcontext

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torch.utils.tensorboard import SummaryWriter
from torchvision import transforms

torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high")


@functools.lru_cache
def read(path):
    return np.load(path)


class Pictures(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.change = transforms.Normalize(0.5, 0.5)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.change(torch.from_numpy(read(self.paths[index]))), index % 4

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 3, bias=False, groups=64)
        self.norm = nn.BatchNorm2d(64)
        self.words = nn.Embedding(64, 64)
        self.head = nn.Linear(64, 64)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        x = F.relu(self.norm(checkpoint(self.conv, x, use_reentrant=False)))
        x = x.flatten(2)
        return self.head(F.scaled_dot_product_attention(x, x, x).mean(2) * self.scale)


def evaluate(model, loader, device):
    model.eval()
    with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
        total = torch.zeros(1, device=device)
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            total += F.cross_entropy(model(x), y)
    model.train()
    return total.item()


def main():
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    sampler = DistributedSampler(Pictures(["a.npy"]))
    loader = DataLoader(
        Pictures(["a.npy"]), batch_size=64, sampler=sampler, num_workers=4, pin_memory=True,
        persistent_workers=True,
    )
    model = Net().to(device, memory_format=torch.channels_last)
    state = torch.load("last.pt")
    model.load_state_dict(state)
    backbone = torch.hub.load("repository", "network")
    for p in backbone.parameters():
        p.requires_grad = False
    model = DistributedDataParallel(model, device_ids=[device.index])
    model = torch.compile(model)
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=1e-3, fused=True
    )
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=100)
    writer = SummaryWriter()
    best, best_state, patience = 1e9, None, 0
    for epoch in range(10):
        sampler.set_epoch(epoch)
        start = time.perf_counter()
        for i, (x, y) in enumerate(loader):
            x = x.to(device, non_blocking=True)
            y = y.to(device, non_blocking=True)
            last = (i + 1) % 4 == 0
            with nullcontext() if last else model.no_sync():
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = F.cross_entropy(model(x), y)
                (loss / 4).backward()
            if last:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        value = evaluate(model, loader, device)
        writer.add_scalar("loss", value, epoch)
        writer.add_scalar("seconds", time.perf_counter() - start, epoch)
        mean = torch.tensor(value, device=device)
        dist.all_reduce(mean)
        if value < best:
            best, best_state = value, copy.deepcopy(model.state_dict())
        else:
            patience += 1
        if patience > 3:
            break
    with torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=2)) as p:
        p.step()
    torch.save({"model": torch.cat([mean, mean]), "best": best_state}, "last.pt")


if __name__ == "__main__":
    main()
"""

PLAIN: Final = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import models, transforms


class Pictures(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.tensor(np.load(self.paths[index])), index


model = models.resnet18()
model.fc = nn.Linear(512, 4)
model.cuda()
stem = nn.Sequential(nn.Conv2d(64, 64, 3), nn.Conv2d(64, 64, 3), nn.Conv2d(64, 30, 3)).cuda()
rnn = nn.LSTM(64, 64).cuda()
loader = DataLoader(Pictures(["a.npy", "b.npy"]), batch_size=8)
optimizer = torch.optim.Adam(model.parameters())
best_state = None
for epoch in range(10):
    for x, y in loader:
        loss = F.cross_entropy(model(stem(x.cuda())), y.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        model.eval()
        for x, y in loader:
            print(model(x.cuda()))
        model.train()
torch.save(model.state_dict(), "model.pt")
"""

NOTHING: Final = """\
import torch


def norm(x):
    return x / x.sum()
"""

LIGHTNING: Final = """\
import lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(100, 4)

    def training_step(self, batch, index):
        x, y = batch
        return F.mse_loss(self.head(x), y)

    def configure_optimizers(self):
        return torch.optim.RMSprop(self.parameters(), lr=1e-2)


def main(data, workers, batch_size):
    loader = DataLoader(data, num_workers=workers, batch_size=batch_size)
    lightning.Trainer(max_epochs=3).fit(Net(), loader)
"""

ON_CPU: Final = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x, y = torch.randn(512, 4), torch.randn(512, 1)
loader = DataLoader(TensorDataset(x, y), batch_size=8, pin_memory=False)
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
optimizer = torch.optim.LBFGS(model.parameters())
criterion = nn.MSELoss()
for inputs, targets in loader:

    def closure():
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        return loss

    optimizer.step(closure)
"""

PART: Final = """\
import logging

import torch
from torch.profiler import record_function

import networks
import trackers


def train(model, loader, criterion, optimizer, device, args):
    tracker = trackers.make(args, networks.tokenizer)
    model = networks.widen(model)
    for x, y in loader:
        x = x.to(device)
        scores, state = model(x)
        extra = torch.ones(4)
        value = networks.score(state).item()
        torch.distributed.all_reduce(state)
        loss = criterion(scores, y) * value
        loss.backward()
        optimizer.step()
        trackers.save_checkpoint(model, value)
        torch.save(state, "state.pt")
    tracker.close()


def evaluate(model, loader, device):
    found = []
    for x, y in loader:
        scores = model(x.to(device))
        found.append(networks.score(scores).item())
    return found
"""

LEFT_OPEN: Final = """\
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import networks

parser = argparse.ArgumentParser()
parser.add_argument("--repeat", action="store_true")
args = parser.parse_args()
if args.repeat:
    torch.backends.cudnn.deterministic = True


def look(values, ids):
    net = nn.Linear(4, 4).cuda()
    for p in net.parameters():
        p.requires_grad = False
    rows = torch.tensor(values)
    table = torch.tensor([values, values])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    networks.save_network(net)
    return net(F.one_hot(ids).float() @ rows), table, optimizer
"""

SEVERAL_PROCESSES: Final = """\
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import networks


def main(args, loader):
    dist.init_process_group("nccl")
    model = networks.make(args).cuda()
    probe = DistributedDataParallel(networks.probe(), find_unused_parameters=args.unused)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, (x, y) in enumerate(loader):
        x = torch.from_numpy(np.stack(x)).cuda()
        loss = F.cross_entropy(model(x), y.cuda()) / 4
        loss.backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
"""

SPAWNED: Final = """\
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(rank):
    dist.init_process_group("nccl", rank=rank, world_size=2)


if __name__ == "__main__":
    mp.spawn(run, nprocs=2)
"""

EVALUATED_ELSEWHERE: Final = """\
import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3), nn.Dropout(0.5))


def evaluate(loader, learning):
    net.train(learning)
    with torch.set_grad_enabled(learning):
        for x, y in loader:
            print(net(x))
"""

BATCHES_BY_HAND: Final = """\
import torch

data = torch.arange(1000)


def get_batch():
    start = torch.randint(len(data) - 8, (1,)).item()
    return data[start : start + 8]
"""

PRETRAINING: Final = """\
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.attention.flex_attention import flex_attention
from torch.optim.swa_utils import AveragedModel
from torchao.float8 import convert_to_float8_training


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(512, 512)

    def forward(self, x, mask):
        return self.out(flex_attention(x, x, x, block_mask=mask))


def main(loader, mask):
    net = convert_to_float8_training(Block().cuda())
    averaged = AveragedModel(net)
    fully_shard(net)
    net = torch.compile(net, mode="max-autotune")
    optimizer = torch.optim.Muon(net.parameters(), lr=2e-3)
    for step, x in enumerate(loader):
        loss = net(x, mask).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        averaged.update_parameters(net)
        if step % 1000 == 0:
            dcp.async_save(net.state_dict(), checkpoint_id=step)
"""

FINE_TUNING: Final = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from texts import raw, tokenize

args = TrainingArguments(
    "out",
    bf16=True,
    optim="adamw_torch_fused",
    dataloader_num_workers=4,
    dataloader_persistent_workers=True,
    gradient_checkpointing=True,
    warmup_steps=100,
    eval_strategy="epoch",
    per_device_train_batch_size=32,
)
model = AutoModelForCausalLM.from_pretrained("gpt2", attn_implementation="sdpa")
rows = raw.map(tokenize, batched=True)
Trainer(model, args, train_dataset=rows["train"], eval_dataset=rows["test"]).train()
"""

CACHED: Final = """\
import cv2
import torch
import torch.nn.functional as F
import torchmetrics
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from pictures import Pictures, encode

cv2.setNumThreads(0)


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(12))
        self.lm_head = nn.Linear(64, 32000)

    def forward(self, x, targets):
        for layer in self.layers:
            x = layer(x)
        x = F.scaled_dot_product_attention(x, x, x, is_causal=True)
        options = nn.LinearCrossEntropyOptions()
        return F.linear_cross_entropy(x, self.lm_head.weight, targets, options=options)


def main(vae, rank):
    vae.requires_grad_(False)
    cached_latents = encode(vae, Pictures())
    loader = DataLoader(cached_latents, batch_size=64, num_workers=4, in_order=False)
    net = Blocks().to(rank)
    for block in net.layers:
        block.compile(mode="max-autotune-no-cudagraphs")
    net = DistributedDataParallel(net, device_ids=[rank], gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    hits = torchmetrics.MeanMetric().to(rank)
    for x, y in loader:
        loss = net(x.to(rank, non_blocking=True), y.to(rank, non_blocking=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        hits.update(loss.detach())
    print(hits.compute())
"""

UNCACHED: Final = """\
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from pictures import Pictures, networks


def main(rank):
    encoder, net = networks()
    encoder.requires_grad_(False)
    loader = DataLoader(Pictures(), batch_size=64, num_workers=4)
    net = DistributedDataParallel(torch.compile(net), device_ids=[rank])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    for x, y in loader:
        loss = F.cross_entropy(net(encoder(x.to(rank)), attention=y), y.to(rank))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""

WATCHED: Final = """\
import albumentations
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from texts import accuracy, best, rows

args = TrainingArguments(
    "out", logging_nan_inf_filter=False, torch_compile=True, torch_compile_mode="reduce-overhead",
    accelerator_config={"non_blocking": True},
)
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(
    model, args, train_dataset=rows, compute_metrics=accuracy, preprocess_logits_for_metrics=best
).train()
"""

UNWATCHED: Final = """\
from transformers import Trainer, TrainingArguments

from texts import accuracy, best, rows

trainer = Trainer(
    best, TrainingArguments("out", logging_steps=50), train_dataset=rows, compute_metrics=accuracy
)
trainer.train()
"""

SMALL: Final = {
    "everything tuned": TUNED,
    "everything plain": PLAIN,
    "no training": NOTHING,
    "a framework trains": LIGHTNING,
    "on the CPU": ON_CPU,
    "part of a program": PART,
    "left open": LEFT_OPEN,
    "several processes": SEVERAL_PROCESSES,
    "processes are spawned": SPAWNED,
    "batches by hand": BATCHES_BY_HAND,
    "evaluation as the caller wants it": EVALUATED_ELSEWHERE,
    "pre-training of a large model": PRETRAINING,
    "a Trainer fine-tunes": FINE_TUNING,
    "latents are cached": CACHED,
    "nothing is cached": UNCACHED,
    "a Trainer is watched": WATCHED,
    "a Trainer is left alone": UNWATCHED,
}
