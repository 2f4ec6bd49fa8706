import torch
from data import loader, nets, stream


def train(net, opt, source, device):
    for x, y in source:
        x = x.to(device)
        out = x * 2  # kind: TENSOR
        other = y.strip()  # kind: UNKNOWN
    for sample in source:
        image = sample["image"].cuda()  # kind: TENSOR
        name = sample["name"]  # kind: UNKNOWN
    batch, options = next(source)
    part = batch[0:8].to(device)  # kind: TENSOR
    label = options.copy()  # kind: UNKNOWN


for x, y in loader:
    x = x.cuda()
    out = abs(x - y)  # kind: TENSOR

held = next(iter(stream))
first, second = held
second = second.to("cuda", non_blocking=True)  # kind: TENSOR

for net in nets:
    net = net.cuda()  # kind: MODULE
