# accelerator: no
# framework: none
"""Code of a helper is as hot as the hottest place it is called from."""
import functools

import torch


def log(writer, loss, step):
    writer.add_scalar("loss", loss.item(), step)  # frequency: rare


def step(net, batch, loss_fn, optimizer):
    loss = loss_fn(net(batch[0]), batch[1])  # frequency: every_pass
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def norms(net):
    total = 0.0
    for p in net.parameters():  # role: OTHER
        if p.grad is not None:
            total += p.grad.norm().item() ** 2  # frequency: every_pass
    return total**0.5


def report(value):
    print(value.item())  # frequency: every_pass


def train(net, loader, loss_fn, optimizer, writer):
    for i, batch in enumerate(loader):  # role: TRAIN_BATCH
        loss = step(net, batch, loss_fn, optimizer)  # frequency: every_pass; kind: LOSS
        grad_norm = norms(net)
        report(loss)
        if i % 50 == 0:
            log(writer, loss, i)  # frequency: rare
            report(loss)


def nested_guards(net, loader, loss_fn, optimizer, args):
    for i, batch in enumerate(loader):
        loss = step(net, batch, loss_fn, optimizer)
        if args.distributed:
            if i % args.every == 0:
                torch.distributed.all_reduce(loss)  # frequency: rare
            torch.distributed.broadcast(loss, 0)  # frequency: every_pass
        for name, value in {"loss": loss}.items():
            if (i + 1) % 20 == 0:
                print(name, value.item())  # frequency: rare
        is_last = i == len(loader) - 1
        if is_last:
            print(loss.item())  # frequency: rare
        if (i % 10 == 0) is False:
            continue
        elif i == 3:
            print(loss.item())  # frequency: rare
        message = f"{loss.item():.3f}" if i % 10 == 0 else ""
        every = 10
        if i % every:
            pass
        else:
            print(loss.item())  # frequency: rare
        if torch.isnan(loss).any():
            print(loss.item())  # frequency: rare
        if not torch.isfinite(loss):
            print(loss.item())  # frequency: rare
        if torch.isfinite(loss):
            print(loss.item())  # frequency: every_pass
        threshold(loss.dtype)


@functools.lru_cache(maxsize=None)
def threshold(dtype):
    return torch.tensor(1.0, dtype=dtype).item()  # frequency: rare
