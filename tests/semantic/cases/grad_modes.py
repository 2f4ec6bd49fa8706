# accelerator: yes
# framework: none
"""Where gradients are recorded: `with`, decorators, callers, switches."""
import contextlib

import torch
from torch import no_grad
from torch.autograd import enable_grad
from torch.autograd import no_grad as without


@torch.no_grad()
def decorated(model, loader):
    for x, _ in loader:  # grad: off; role: EVAL_BATCH
        yield model(x.cuda())  # grad: off


@torch.no_grad
def decorated_without_parentheses(model, x):
    return model(x)  # grad: off


@torch.inference_mode()
def inferred(model, x):
    with torch.enable_grad():
        y = model(x)  # grad: off
    return y


@no_grad()
def imported(model, x):
    with enable_grad():
        return model(x)  # grad: on


@torch.enable_grad()
def enabled(model, x):
    return model(x)  # grad: on


@torch.set_grad_enabled(False)
def switched_by_decorator(model, x):
    return model(x)  # grad: off


def contexts(model, x, flag, amp):
    with without():
        a = model(x)  # grad: off
    with torch.autograd.no_grad():
        b = model(x)  # grad: off
    with torch.no_grad(), torch.autocast("cuda"):
        c = model(x)  # grad: off
    with torch.autocast("cuda", enabled=amp), torch.inference_mode():
        d = model(x)  # grad: off
    with torch.set_grad_enabled(False):
        e = model(x)  # grad: off
        with torch.set_grad_enabled(True):
            f = model(x)  # grad: on
    with torch.set_grad_enabled(flag):
        g = model(x)  # grad: unknown
    with torch.inference_mode(mode=flag):
        h = model(x)  # grad: unknown
    with torch.inference_mode(False):
        h = model(x)  # grad: on
    with torch.no_grad() if flag else contextlib.nullcontext():
        i = model(x)  # grad: unknown
    quiet = torch.no_grad()
    with quiet:
        j = model(x)  # grad: off
    mode = torch.enable_grad if flag else torch.no_grad
    with mode():
        k = model(x)  # grad: unknown
    with torch.autocast("cuda"):
        m = model(x)  # grad: on
    n = model(x)  # grad: on
    return a, b, c, d, e, f, g, h, i, j, k, m, n


def defined_inside(model):
    with torch.no_grad():

        def later(x):
            return model(x)  # grad: on

        now = later
    return now


def forward_only(model, x):
    return model(x)  # grad: off


def both_ways(model, x):
    return model(x)  # grad: unknown


def twice_removed(model, x):
    y = forward_only(model, x)  # grad: off
    return y


def driver(model, loader):
    for x, _ in loader:
        both_ways(model, x)  # grad: on
    with torch.no_grad():
        for x, _ in loader:
            both_ways(model, x)  # grad: off
            twice_removed(model, x)  # grad: off


class Evaluator:
    def __init__(self, model, loader):
        self.model = model
        self.loader = loader

    @torch.no_grad()
    def run(self):
        for x, y in self.loader:  # role: EVAL_BATCH
            self.consume(self.model(x.cuda()), y)  # grad: off

    def consume(self, output, y):
        self.hits = output.argmax(1).eq(y.cuda()).sum()  # grad: off; kind: TENSOR

    def free(self, x):
        return self.model(x)  # grad: on


def switched(model, loader):
    before = model(next(iter(loader)))  # grad: on
    torch.set_grad_enabled(False)
    for x in loader:  # grad: off
        model(x)  # grad: off
    torch.set_grad_enabled(True)
    return model(x)  # grad: on


class no_grad_like:
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False


def own_context(model, x):
    with no_grad_like():
        return model(x)  # grad: on
