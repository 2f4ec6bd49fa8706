# accelerator: yes
# framework: none
"""Modules, optimizers, schedulers, scalers, loaders and datasets through functions and classes."""
from typing import Optional

import timm
import torch
import torch.nn as nn
import torchvision
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, random_split
from torch.utils.data import RandomSampler, WeightedRandomSampler


class Pairs(Dataset):
    def __init__(self, a, b):
        self.a = a
        self.b = b

    def __len__(self):
        return len(self.a)

    def __getitem__(self, index):
        return torch.tensor(self.a[index]), self.b[index]  # kind: SEQUENCE


class Stream(IterableDataset):
    def __iter__(self):
        yield from range(10)


class LargePairs(Pairs):
    pass


class Warmup(LambdaLR):
    pass


class Lion(Optimizer):
    pass


class FocalLoss(nn.Module):
    def forward(self, logits, target):
        return nn.functional.cross_entropy(logits, target)  # kind: LOSS


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, 1, 1)
        self.blocks = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])  # kind: MODULE
        self.scale = nn.Parameter(torch.ones(1))  # kind: TENSOR
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x, mask=None):
        y = self.conv(x)  # kind: TENSOR
        for block in self.blocks:  # kind block: MODULE; role: OTHER
            y = block(y)
        return y * self.scale  # kind: TENSOR


class ResBlock(Block):
    pass


def build_model(name):
    if name == "block":
        return Block()
    return ResBlock()


def build_loaders(train, test, batch_size=32):
    train_dl = DataLoader(train, batch_size=batch_size, shuffle=True)  # arg batch_size: 32
    test_dl = DataLoader(test, batch_size=batch_size)
    return train_dl, test_dl


def build_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)  # kind: OPTIMIZER


pairs = Pairs([1], [2])  # kind: DATASET
stream = Stream()  # kind: DATASET
large = LargePairs([1], [2])  # kind: DATASET
part = Subset(pairs, [0])  # kind: DATASET
left, right = random_split(pairs, [1, 0])  # kind left: DATASET; kind right: DATASET
cifar = torchvision.datasets.CIFAR10("data")  # kind: DATASET
sampler = RandomSampler(pairs)  # kind: SAMPLER
weighted = WeightedRandomSampler([1.0], 1)  # kind: SAMPLER

model = build_model("block").cuda()  # kind: MODULE
wrapped = nn.DataParallel(model)  # kind: MODULE
compiled = torch.compile(model)  # kind: MODULE
pretrained = torchvision.models.resnet18(pretrained=True)  # kind: MODULE
pretrained.fc = nn.Linear(512, 2)  # kind: MODULE
vit = timm.create_model("vit_base_patch16_224", pretrained=True)  # kind: MODULE
hub = torch.hub.load("pytorch/vision", "resnet50")  # kind: MODULE
stack = nn.Sequential(*[nn.Linear(3, 3) for _ in range(4)])  # kind: MODULE
state = model.state_dict()  # kind: MAPPING
optimizer = build_optimizer(model)  # kind: OPTIMIZER
lion = Lion(model.parameters(), {})  # kind: OPTIMIZER
warmup = Warmup(optimizer, lambda step: 1.0)  # kind: SCHEDULER
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)  # kind: SCHEDULER
optimizers = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}  # kind: MAPPING
chosen = optimizers["adam"](model.parameters())
scaler = torch.amp.GradScaler("cuda")  # kind: SCALER
focal = FocalLoss()  # kind: MODULE
device = torch.device("cuda")  # kind: DEVICE
train_dl, test_dl = build_loaders(left, right)  # kind train_dl: LOADER; kind test_dl: LOADER
it = iter(train_dl)

for xb, yb in train_dl:  # role: TRAIN_BATCH; kind xb: TENSOR; kind train_dl: LOADER
    pred = model(xb.cuda())  # kind: TENSOR
    value = nn.functional.cross_entropy(pred, yb.cuda())  # kind: LOSS
    scaler.scale(value).backward()
    scaler.step(optimizer)
    scaler.update()


def annotated(net: nn.Module, opt: torch.optim.Optimizer, dl: DataLoader, ds: "Dataset", sched: Optional[LambdaLR] = None):
    a = net  # kind: MODULE
    b = opt  # kind: OPTIMIZER
    c = dl  # kind: LOADER
    d = ds  # kind: DATASET
    e = sched  # kind: SCHEDULER
    out: torch.Tensor = unknown_call()
    return a, b, c, d, e, out  # kind out: TENSOR


def given_at_call_sites(thing, stuff):
    a = thing  # kind: MODULE
    b = stuff  # kind: UNKNOWN
    return a, b


given_at_call_sites(model, optimizer)
given_at_call_sites(pretrained, scheduler)


def conventional(model, train_loader, optimizer, criterion, device, data, items):
    a = model  # kind: MODULE
    b = train_loader  # kind: LOADER
    c = optimizer  # kind: OPTIMIZER
    d = criterion  # kind: CRITERION
    e = data  # kind: UNKNOWN
    f = items  # kind: UNKNOWN
    g = device  # kind: DEVICE
    return a, b, c, d, e, f, g


def generators(mask_generator, data_generator, image_generator):
    a = mask_generator  # kind: UNKNOWN
    b = data_generator  # kind: UNKNOWN
    c = image_generator  # kind: MODULE
    return a, b, c


def not_what_the_name_says(config):
    model = config["model"]
    loader = "imagenet"
    optimizer = "adam"
    a = loader  # kind: STRING
    b = optimizer  # kind: STRING
    criterion = [1, 2, 3]
    c = criterion  # kind: SEQUENCE
    return a, b, c, model


def moved_in_each_pass(batches, device):
    network = torch.nn.Linear(4, 4)
    for x in batches:
        network = network.to(device)  # kind network: MODULE
        network(x)
