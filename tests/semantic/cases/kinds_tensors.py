# accelerator: no
"""Tensors, losses, arrays and numbers, and how they turn into each other."""
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def tensors(x: torch.Tensor, n: int, ratio: float, names: list, text: str, table: dict):
    a = x  # kind: TENSOR
    b = x + 1  # kind: TENSOR
    c = 1 / x.sum()  # kind: TENSOR
    d = x @ x.T  # kind: TENSOR
    e = -x  # kind: TENSOR
    f = x[0]  # kind: TENSOR
    g = x[:, None, 1:3]  # kind: TENSOR
    h = x > 0  # kind: TENSOR
    i = x.shape  # kind: UNKNOWN
    j = x.detach().cpu()  # kind: TENSOR
    k = x.detach().cpu().numpy()  # kind: NDARRAY
    m = x.item()  # kind: NUMBER
    o = float(x)  # kind: NUMBER
    p = int(x.argmax())  # kind: NUMBER
    q = x.tolist()  # kind: UNKNOWN
    r = n  # kind: NUMBER
    s = n * ratio  # kind: NUMBER
    t = names  # kind: SEQUENCE
    u = text  # kind: STRING
    v = table  # kind: MAPPING
    w = n * x  # kind: TENSOR
    y = torch.stack([a, b]).mean(0)  # kind: TENSOR
    z = x.size(0)  # kind: NUMBER
    return a, b, c, d, e, f, g, h, i, j, k, m, o, p, q, r, s, t, u, v, w, y, z


def arrays(path):
    a = np.load(path)  # kind: UNKNOWN
    b = np.zeros((3, 4), dtype=np.float32)  # kind: NDARRAY
    c = b.T @ b  # kind: NDARRAY
    d = b.sum().item()
    e = b[0]
    f = np.concatenate([b, b]) * 2  # kind: NDARRAY
    g = torch.from_numpy(b)  # kind: TENSOR
    h = torch.tensor(b)  # kind: TENSOR
    i = torch.as_tensor(b).float()  # kind: TENSOR
    j = np.random.randn(3)  # kind: NDARRAY
    k = b.astype(np.int64).reshape(-1)  # kind: NDARRAY
    m = np.asarray([1, 2])  # kind: NDARRAY
    return a, b, c, d, e, f, g, h, i, j, k, m


def losses(model, batch, target, criterion, weights):
    out = model(batch)  # kind: TENSOR
    loss = criterion(out, target)  # kind: LOSS
    scaled = loss * 0.5  # kind: LOSS
    both = loss + F.mse_loss(out, target)  # kind: LOSS
    weighted = 0.1 * F.l1_loss(out, target) + 0.9 * both  # kind: LOSS
    total = sum([loss, both])
    plain = loss.detach()  # kind: TENSOR
    number = loss.item()  # kind: NUMBER
    also = float(loss)  # kind: NUMBER
    python = loss.data.cpu().numpy()  # kind: NDARRAY
    bce = nn.BCEWithLogitsLoss(weight=weights)(out, target)  # kind: LOSS
    ce = F.cross_entropy(out, target, reduction="none")  # kind: LOSS
    regularised = loss + 1e-4 * sum(p.pow(2).sum() for p in model.parameters())  # kind: LOSS
    regularised.backward()
    return scaled, weighted, total, plain, number, also, python, bce, ce


def by_its_backward(network, images, labels):
    objective = network(images, labels)
    objective = objective.mean()  # kind: TENSOR
    objective.backward()  # kind objective: LOSS
    logits, error = network(images, labels)
    error.backward()
    print(error)  # kind error: LOSS
    output = network(images)
    output.loss.backward()
    output.loss  # kind: LOSS


def conditional(x: torch.Tensor, flag):
    if flag:
        y = x.sum()
    else:
        y = 0.0
    z = y  # kind: UNKNOWN
    if flag:
        w = x.sum()
    else:
        w = x.mean()
    v = w  # kind: TENSOR
    u = x if flag else x + 1  # kind: TENSOR
    t = x if flag else None
    s = x if flag else "none"  # kind: UNKNOWN
    return z, v, u, t, s


def rebound(x: torch.Tensor):
    value = x  # kind: TENSOR
    value = value.numpy()  # kind: NDARRAY
    value = value.tolist()  # kind: UNKNOWN
    value = "done"  # kind: STRING
    return value  # kind: STRING


def traps(history, frame, settings):
    total = 0  # kind: NUMBER
    for key, item in settings.items():  # kind item: UNKNOWN; role: OTHER
        total += item
    best = history.loss.item()  # kind: UNKNOWN
    value = frame["score"].max().item()  # kind: UNKNOWN
    root = math.sqrt(2)  # kind: NUMBER
    size = len(history)  # kind: NUMBER
    label = f"{total}"  # kind: STRING
    pairs = [(1, 2), (3, 4)]  # kind: SEQUENCE
    squares = {n: n * n for n in range(3)}  # kind: MAPPING
    joined = ", ".join(str(n) for n in pairs)  # kind: STRING
    loss = settings["loss"]  # kind: UNKNOWN
    return total, best, value, root, size, label, pairs, squares, joined, loss


def unpacked(x: torch.Tensor):
    values, indices = x.topk(5)  # kind values: TENSOR; kind indices: TENSOR
    top, _ = torch.max(x, dim=1)  # kind top: TENSOR
    left, right = x.chunk(2, dim=1)  # kind left: TENSOR; kind right: TENSOR
    mean, log_var = x.mean(), x.var().log()  # kind mean: TENSOR; kind log_var: TENSOR
    count, text = 3, "three"  # kind count: NUMBER; kind text: STRING
    (a, b), c = (x, x.numpy()), 1  # kind a: TENSOR; kind b: NDARRAY; kind c: NUMBER
    first, *rest = x.unbind(0)  # kind first: TENSOR
    batch, channels, height, width = x.size()
    chained = again = x.float()  # kind chained: TENSOR; kind again: TENSOR
    if (walrus := x.sum()) > 0:
        print(walrus)  # kind walrus: TENSOR
    return values, indices, top, left, right, mean, log_var, count, text, a, b, c, first, rest


def filled(x):
    found = []
    found.append(x.float().mean())
    return found


(one,) = filled(torch.rand(4))
result = one  # kind: TENSOR


def unsqueezed(x):
    wide = torch.unsqueeze(x, 0)
    module = torch  # kind module: UNKNOWN
    return wide, module


def parts(net: nn.Module, x: torch.Tensor, at: int):
    found = net(x)[0]
    for name in found:  # kind name: UNKNOWN; role: OTHER
        found[name] = found[name][:3]
    for row in net(x):  # kind row: TENSOR; role: OTHER
        print(row)
    pair = (x.mean(), x.std())
    one = pair[at]  # kind one: TENSOR
    mixed = [x, "text"][at]  # kind mixed: UNKNOWN
    return found, one, mixed
