# accelerator: no
# framework: none
"""Gradient mode that is decided where a function is called."""
import torch
from contextlib import contextmanager, ExitStack


@contextmanager
def evaluating(model):
    model.eval()
    with torch.no_grad():
        yield model  # grad: off
    model.train()


def score(model, loader):
    with evaluating(model):
        return [model(x) for x, _ in loader]  # grad: off


def handed_over(model, x):
    return model(x)  # grad: unknown


def registered(model, loader, hooks):
    hooks.append(handed_over)
    with torch.no_grad():
        handed_over(model, next(iter(loader)))  # grad: off


def main_loop(model, loader, loss_fn, optimizer):
    for x, y in loader:  # role: TRAIN_BATCH; grad: on
        loss_fn(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        evaluate(model, loader)  # grad: off


def evaluate(model, loader):
    def inner(x):
        return model(x)  # grad: off

    for x, _ in loader:  # role: EVAL_BATCH; grad: off
        inner(x)
    return [inner(x) for x in range(3)]  # grad: off


def recursive(model, x, depth):
    if depth == 0:
        return model(x)
    return recursive(model, x, depth - 1)


@torch.no_grad()
def start(model, x):
    return recursive(model, x, 3)  # grad: off


def stacked(model, x, flag):
    with ExitStack() as stack:
        if flag:
            stack.enter_context(torch.no_grad())
        return model(x)  # grad: unknown


class Teacher(torch.nn.Module):
    def forward(self, x):
        return self.net(x)  # grad: on

    @torch.no_grad()
    def update(self, student):
        for p, q in zip(self.parameters(), student.parameters()):  # role: OTHER
            p.mul_(0.99).add_(q, alpha=0.01)  # grad: off

    def copy(self, student):
        with torch.no_grad():
            for p, q in zip(self.parameters(), student.parameters()):
                p.copy_(q)  # grad: off


def distil(student, teacher, loader, optimizer, loss_fn):
    for x, _ in loader:  # role: TRAIN_BATCH
        with torch.no_grad():
            target = teacher(x)  # grad: off
        loss = loss_fn(student(x), target)  # grad: on; kind: LOSS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
