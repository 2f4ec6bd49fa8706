# accelerator: no
# framework: none
import torch


def work(net, rows, opt, kind):
    for x, y in rows:
        x = x.to(kind)
        loss = torch.nn.functional.cross_entropy(net(x), y)  # kind: LOSS
        opt.zero_grad()
        loss.backward()
        opt.step()
