# accelerator: yes
# framework: none
"""Conventional names speak where nothing else does, and are silent where something else does."""
import torch

from data import build
from networks import make_network


def evaluate(model, data_loader, criterion):
    total, correct = 0, 0  # kind total: NUMBER
    model.eval()
    for images, labels in data_loader:  # role: EVAL_BATCH; kind images: TENSOR
        out = model(images.cuda())  # kind: TENSOR
        total += labels.size(0)
        correct += (out.argmax(1).cpu() == labels).sum().item()  # kind: NUMBER
    return correct / total


def main(opt):
    network = make_network(opt)
    things = build(opt)
    evaluate(network, things, None)
    evaluate(make_network(opt), build(opt), torch.nn.CrossEntropyLoss())


class DataLoader:
    """Reads a file, nothing of torch."""

    def __init__(self, path):
        self.path = path

    def __iter__(self):
        return iter(open(self.path))


def read(path):
    loader = DataLoader(path)  # kind: UNKNOWN
    for line in loader:  # role: OTHER; kind line: UNKNOWN
        print(line.strip())
    for number, line in enumerate(loader):  # role: OTHER
        print(number, line)


def yaml_loader(loader, node):
    value = loader.construct_scalar(node)  # kind: UNKNOWN
    for key in loader.keys:  # role: OTHER
        print(key)
    return value


def d2l_style(net, test_iter, loss):
    metric = [0.0, 0]
    for X, y in test_iter:  # role: EVAL_BATCH
        l = loss(net(X), y)
        metric[0] += float(l.sum())  # frequency: every_pass
    return metric


def nas_style(valid_queue, model, criterion):
    model.eval()
    for step, (input, target) in enumerate(valid_queue):  # role: EVAL_BATCH
        logits = model(input.cuda())  # kind: TENSOR
        loss = criterion(logits, target.cuda())  # kind: LOSS


def convert(path):
    model = torch.load(path)
    state = model  # kind: UNKNOWN
    state["weights"] = model["weights"]
