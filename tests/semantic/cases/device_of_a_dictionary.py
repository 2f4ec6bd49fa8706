# accelerator: yes
# framework: none
import torch


def work(net, rows, opt, params):
    device = params["device"]
    for x, y in rows:
        x, y = x.to(device), y.to(device)
        loss = torch.nn.functional.cross_entropy(net(x), y)  # kind: LOSS
        opt.zero_grad()
        loss.backward()
        opt.step()
