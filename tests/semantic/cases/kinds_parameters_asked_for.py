"""What is asked for its parameters is a network, whatever its name and its class."""

import torch
from somewhere import Captioner, get_model, make_network, wrap


def train(loader, device):
    captioner = Captioner(3)
    optimizer = torch.optim.SGD(captioner.parameters(), 0.1)
    for x, y in loader:
        out = captioner(x)  # kind: TENSOR
        loss = (out - y).square().mean()
        loss.backward()
        optimizer.step()


def parts(flag):
    net = wrap(3)
    if flag:
        net = torch.nn.DataParallel(net)
    print(net)  # kind net: MODULE


def makers(x):
    built = get_model(3)  # kind: UNKNOWN
    other = make_network(x)  # kind: UNKNOWN
    return built, other


def criteria(criterion, x):
    torch.optim.SGD(criterion.parameters(), 0.1)
    return criterion(x)


def measure(thing, wrapped, rows):
    thing.eval()
    wrapped.eval()
    for x in rows:
        y = thing(x)  # kind thing: MODULE
        wrapped.run(x)  # kind wrapped: UNKNOWN
    return y
