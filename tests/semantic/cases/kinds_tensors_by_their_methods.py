import torch


def move(source, gpu):
    for data in source:
        inp, target = data["input"], data["target"]
        if gpu:
            inp, target = inp.cuda(), target.cuda()
        out = inp + 1  # kind: TENSOR
        right = abs(target)  # kind: TENSOR


def count(outputs, targets):
    for p, g in zip(outputs, targets):
        pair = p.max(dim=-1)  # kind: SEQUENCE
        hits = p.max(dim=-1)[1] == g.long()  # kind: TENSOR
        lowest = p.argmin(dim=0)  # kind: TENSOR
        mean = p.mean(axis=0)  # kind: UNKNOWN
        level = p.mean(dim="time")  # kind: UNKNOWN


def shapes(x, z, vocabulary):
    rows = x.size(0)
    first = x[0]  # kind: TENSOR
    whole = z.view_as(x)
    last = z + 1  # kind: TENSOR
    words = vocabulary.size()
    word = vocabulary[0]  # kind: UNKNOWN


def optimize(optimizers, losses):
    for optimizer, part in zip(optimizers, losses):
        part.backward()
        optimizer.step()


def step(opt, value):
    value.backward()
    opt.step()


def train(gen, one, two, loader):
    for target in loader:
        first, second = gen.parts(target)
        optimize([one, two], [first, second])
        both = first + second  # kind: LOSS
        third = gen.other(target)
        step(one, third)
        shown = third * 2  # kind: LOSS
