# accelerator: yes
# framework: none
import torch


def work(net, rows, opt, place):
    for x, y in rows:
        x, y = x.to(place), y.to(place)
        loss = torch.nn.functional.cross_entropy(net(x), y)  # kind: LOSS
        opt.zero_grad()
        loss.backward()
        opt.step()
