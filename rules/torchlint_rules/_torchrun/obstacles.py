"""Scripts that the rewrite for torchrun leaves alone: each has something in the way."""

from typing import Final

__all__ = ["OBSTACLES"]

OBSTACLES: Final = {
    "no fix: two networks are wrapped": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
        ! critic = nn.DataParallel(judge).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: GPUs are chosen by number": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net, device_ids=[0, 1]).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: the network goes to a GPU with a number": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net.cuda(1))
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: the network goes to the second GPU by number alone": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net.to(1))
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: the loader has a sampler": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, 64, sampler=torch.utils.data.WeightedRandomSampler(w, 9))
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: the loader has a batch sampler": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_sampler=buckets)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: nobody sees what the keywords hold": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, 64, **options)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: batches of one cannot be divided": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: whether it shuffles is an argument": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, 64, shuffle=args.shuffle)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: a stream has no order to deal out": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          class Stream(torch.utils.data.IterableDataset):
              pass
          loader = DataLoader(Stream(), batch_size=64)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: the loader comes from another file": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = make_loader(64)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: the training loop is in another file": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          fit(model, optimizer, loader)
        """,
    "no fix: batches are drawn by hand": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              batches = iter(loader)
              for step in range(100):
                  x, y = next(batches)
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: epochs are not counted by a `for`": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          while True:
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: the loader is read for another purpose, too": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for x, y in loader:
              print(model(x).mean())
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: the script starts processes itself": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          torch.multiprocessing.set_start_method("spawn")
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: the optimizer steps a second network that is not wrapped": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          head = nn.Linear(2, 2)
          optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: the optimizer is made elsewhere": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = make_optimizer(model)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: a loss that sums is scaled by the number of processes": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          criterion = nn.CrossEntropyLoss(reduction="sum")
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: the network returns the loss, one for each GPU": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = model(x, y).mean()
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: the forward pass goes past the wrapper": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model.module(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: gradients of gradients are not shared": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss = loss + torch.autograd.grad(loss, x, create_graph=True)[0].norm()
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: a step that one process skips stops the others": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  try:
                      loss.backward()
                      optimizer.step()
                  except RuntimeError:
                      continue
        """,
    "no fix: one process would stop by the loss of its own samples": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  if loss.item() > 100:
                      break
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: one process would change its learning rate by its own samples": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
              scheduler.step(loss)
        """,
    "no fix: each process would split the data otherwise": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          data, test = torch.utils.data.random_split(pictures, [90, 10])
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: an attribute of the network is behind `.module` now": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          model.bias.data.zero_()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: the batch size is part of the network": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          BATCH = 64
          net = nn.Linear(BATCH, 2)
          loader = DataLoader(data, BATCH)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: the line search of LBFGS would differ": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.LBFGS(model.parameters())
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: GPUs are chosen when the processes have theirs already": """
          import os
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: the training function is run from several places": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          def train():
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
          def main():
              train()
              for epoch in range(3):
                  train()
          main()
        """,
    "no fix: every process would write the log": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          log = open("log.txt", "w")
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: rank 0 alone would run the network": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
              torch.save(model(x), "output.pt")
        """,
    "no fix: a class holds the network": """
          import torch
          class Trainer:
              def __init__(self, net):
        !         self.net = torch.nn.DataParallel(net)
                  self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        """,
    "no fix: only a part of the network is wrapped": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
          model = build()
        ! model.features = nn.DataParallel(model.features)
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: a name that the rewrite needs is taken": """
          import torch
          from torch import nn
          from torch.utils.data import DataLoader
          loader = DataLoader(data, batch_size=64, shuffle=True)
        ! model = nn.DataParallel(net).cuda()
          RANK = 3
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
    "no fix: an alias of the class, a loader from a function of another file": """
          import torch
          from torch import nn
          from torch.nn.parallel import DataParallel as Spread
          from torch.utils.data import DataLoader
          loader = make_loader(64)
        ! model = Spread(net).cuda()
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          for epoch in range(3):
              for x, y in loader:
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
        """,
}
