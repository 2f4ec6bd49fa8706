"""More training loops that wait for the device, and some that have to."""

from __future__ import annotations

from typing import Final

__all__ = ["MORE_INVALID", "MORE_VALID"]

MORE_INVALID: Final = {
    "a step that returns its loss, whose caller adds it up": """
          import torch.nn.functional as F
          def train_step(model, optimizer, x, y):
              loss = F.cross_entropy(model(x.cuda()), y.cuda())
              optimizer.zero_grad()
              loss.backward()
              optimizer.step()
        !     return loss.item()
          def train(model, optimizer, loader):
              return sum_of(model, optimizer, loader)
          def sum_of(model, optimizer, loader):
              total = 0.0
              for x, y in loader:
                  total += train_step(model, optimizer, x, y)
              return total
        """,
    "a function that counts, and one that gathers what it counts": """
          import torch.nn.functional as F
          def right(out, y):
        !     hits = (out.argmax(1) == y).sum().item()
              return hits, len(y)
          def shares(out, y, ks):
              found = []
              for k in ks:
        !         found.append(out.topk(k, 1)[1].eq(y.view(-1, 1)).float().sum().item())
              return found
          def train(model, loader, meter):
              correct = seen = 0
              for x, y in loader:
                  x, y = x.cuda(), y.cuda()
                  out = model(x)
                  F.cross_entropy(out, y).backward()
                  hits, n = right(out, y)
                  correct += hits
                  seen += n
                  first, fifth = shares(out, y, (1, 5))
                  meter.update(first)
              return correct / seen
        """,
    "a dictionary of numbers, of which every entry goes to a meter": """
          import torch.nn.functional as F
          def train(model, loader, meters):
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
        !         logs = {"loss": loss.item()}
                  for name, value in logs.items():
                      meters[name].update(value)
        """,
    "a running mean, an array that grows, a place in an array": """
          import numpy as np
          import torch.nn.functional as F
          def train(model, loader):
              smooth, history, table = 0.0, np.array([]), np.zeros(100)
              for i, (x, y) in enumerate(loader):
                  out = model(x.cuda())
                  loss = F.cross_entropy(out, y.cuda())
                  loss.backward()
        !         smooth = 0.9 * smooth + 0.1 * loss.item()
        !         history = np.append(history, out.max().item())
        !         table[i] = out.min().item()
              return smooth, history, table
        """,
    "a text that is printed now and then": """
          import torch.nn.functional as F
          def train(model, loader):
              for i, (x, y) in enumerate(loader):
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
        !         text = f"{i}: {loss.item():.3f}"
                  if i % 100 == 0:
                      print(text)
        """,
    "a sum that a dictionary for a rare report is made of": """
          import torch.nn.functional as F
          def train(model, loader, bar):
              total = 0.0
              for i, (x, y) in enumerate(loader):
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
        !         total += loss.item()
                  shown = {"mean": total / (i + 1)}
                  if i % 100 == 0:
                      bar.write(str(shown))
              return total
        """,
    "a number that nothing but the end of the loop looks at": """
          import torch.nn.functional as F
          def train(model, loader):
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
        !         last = loss.item()
              return last
        """,
    "a metric of NumPy that a function of the file computes": """
          import numpy as np
          import torch.nn.functional as F
          def score(preds, labels):
              return np.sum(np.argmax(preds, axis=1) == labels) / len(labels)
          def train(model, loader):
              total = 0
              for x, y in loader:
                  out = model(x.cuda())
                  F.cross_entropy(out, y.cuda()).backward()
        !         found = score(out.detach().cpu().numpy(), y.numpy())
                  total += found
              return total
        """,
}

MORE_VALID: Final = {
    "the loss of a step decides how its caller goes on": """
        import torch.nn.functional as F
        def train_step(model, optimizer, x, y):
            loss = F.cross_entropy(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            return loss.item()
        def train(model, optimizer, loader):
            total = 0.0
            for x, y in loader:
                value = train_step(model, optimizer, x, y)
                if value > 100:
                    break
                total += value
            return total
        """,
    "a decorator may give back something else": """
        import torch.nn.functional as F
        from timing import timed
        @timed
        def train_step(model, optimizer, x, y):
            loss = F.cross_entropy(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            return loss.item()
        def train(model, optimizer, loader):
            times = []
            for x, y in loader:
                value, took = train_step(model, optimizer, x, y)
                times.append(took)
            return times
        """,
    "a function that counts what lies on the host": """
        import torch.nn.functional as F
        def count(labels):
            return labels.sum().item()
        def train(model, loader):
            total = 0
            for images, labels in loader:
                F.cross_entropy(model(images.cuda()), labels.cuda()).backward()
                total += count(labels)
            return total
        """,
    "the first process shows the mean of every batch": """
        import torch.nn.functional as F
        def train(model, loader, bar, rank):
            total = 0.0
            for i, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                value = loss.item()
                if rank == 0:
                    bar.set_postfix(loss=value)
        """,
    "a while loop that ends by what it read": """
        import torch.nn.functional as F
        def train(model, x, y, optimizer):
            error = 1.0
            while error > 0.1:
                loss = F.mse_loss(model(x.cuda()), y.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                error = loss.item()
        """,
    "a value that goes to a function out of sight": """
        import torch.nn.functional as F
        from reports import tell
        def train(model, loader):
            for x, y in loader:
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                shown = {"loss": loss.item()}
                tell(shown)
        """,
    "whole outputs have their place in an array on the host": """
        import numpy as np
        import torch.nn.functional as F
        def train(model, loader):
            table = np.zeros((100, 10))
            for i, (x, y) in enumerate(loader):
                out = model(x.cuda())
                F.cross_entropy(out, y.cuda()).backward()
                table[i] = out.detach().cpu().numpy()
            return table
        """,
}
