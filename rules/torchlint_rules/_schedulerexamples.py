"""More code in which schedulers are used as they should not be."""

from __future__ import annotations

from typing import Final

__all__ = ["MORE"]

MORE: Final = {
    "get_lr tells of the next rate": """
          import torch
          scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
        - print("rate:", scheduler.get_lr()[0])
        + print("rate:", scheduler.get_last_lr()[0])
        - rate = scheduler.get_lr()
        + rate = scheduler.get_last_lr()
          logger.info(f"rate {rate}")
        """,
    "get_lr sets what is computed with: unsafe": """
          import torch
          scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
        - decay = 0.1 * scheduler.get_lr()[0]
        + decay = 0.1 * scheduler.get_last_lr()[0]
        """,
    "before the optimizer, both at the end of an accumulation in a method": """
          import torch
          class Trainer:
              def __init__(self, model, optimizer, lr_scheduler, criterion):
                  self.model, self.criterion = model, criterion
                  self.optimizer = optimizer
                  self.scheduler = lr_scheduler
              def train_epoch(self, loader, k):
                  for step, (x, y) in enumerate(loader):
                      (self.criterion(self.model(x), y) / k).backward()
                      if (step + 1) % k == 0:
        !                 self.scheduler.step()
                          self.optimizer.step()
                          self.optimizer.zero_grad()
        """,
    "before the optimizer, both at the end of an accumulation": """
          import torch
          optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
          scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.99**step)
          for step, (x, y) in enumerate(train_loader):
              (criterion(model(x), y) / 4).backward()
              if (step + 1) % 4 == 0:
        -         scheduler.step()
                  optimizer.step()
        +         scheduler.step()
                  optimizer.zero_grad()
        """,
}
