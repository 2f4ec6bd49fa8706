# accelerator: no
# framework: none
import torch

params = {"device": "cpu"}


def work(net, rows, opt):
    device = params["device"]
    for x, y in rows:
        x = x.to(device)
        loss = torch.nn.functional.cross_entropy(net(x), y)  # kind: LOSS
        opt.zero_grad()
        loss.backward()
        opt.step()
