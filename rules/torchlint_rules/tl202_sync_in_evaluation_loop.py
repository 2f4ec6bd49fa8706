"""TL202: the host waits for the device in every evaluation batch to add up a number."""

from __future__ import annotations

from collections.abc import Iterator

from torchlint.api import Finding, Role, Rule, Safety, Script
from torchlint_rules._syncs import syncs


class SyncInEvaluationLoop(Rule):
    """
    ## What it does
    Flags a tensor that is read on the host in every evaluation batch (`.item()`, `float()`,
    `.cpu()`, `.numpy()`, `.tolist()`) only to be added to a sum, a counter, a list or a meter.

    ## Why it is slow
    An evaluation loop is a forward pass and little else, so the host could queue many batches
    ahead. Each reading stops it until the device is done with the batch, and while the next one is
    prepared the device has nothing to do. One reading after the loop is enough.

    ## When not to
    On a CPU there is nothing to wait for, and adding up numbers is cheaper than adding up tensors.
    Whole outputs that would not fit in the device's memory together have to leave it batch by
    batch: suppress the finding there.

    ## Fix safety
    Exact for sums, counters and lists of losses: the device adds in float64, as Python does, or
    in integers. Close where the value is divided by a number or was added up by NumPy. Unsafe for
    lists of outputs, which then stay in the device's memory until the loop ends.
    """

    code = "TL202"
    name = "sync-in-evaluation-loop"
    summary = "every batch waits for the device to read a value that is wanted once per epoch"
    impact = "high"
    safety = Safety.EXACT
    after = ("TL601",)
    articles = ("S3.7",)
    needs = ("oader", "iter", "_dl", "batch", "queue")

    invalid = {
        "a meter gets what a function out of sight made of tensors, behind an attribute too": """
              import torch
              from mine import accuracy, reduce
              @torch.no_grad()
              def evaluate(model, loader, criterion, logger):
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      out = model(x)
                      top1, top5 = accuracy(out, y, (1, 5))
                      top5 = reduce(top5)
            !         logger.update(loss=criterion(out, y).item())
            !         logger.meters["top1"].update(top1.item(), n=len(x))
            !         logger.meters["top5"].update(top5.item(), n=len(x))
            """,
        "read in each pass, shown now and then": """
              import torch
              @torch.no_grad()
              def evaluate(model, loader, criterion):
                  for i, (x, y) in enumerate(loader):
                      record = {}
            !         loss = criterion(model(x.cuda()), y.cuda()).item()
            !         record["top"] = model(x.cuda()).max().item()
                      if i % 100 == 0:
                          print(loss, record)
            """,
        "a sum of losses and a counter, under no_grad": """
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader):
                  total, correct = 0, 0
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      out = model(x)
            -         total += F.cross_entropy(out, y, reduction="sum").item()
            -         correct += (out.argmax(1) == y).sum().item()
            +         total = total + F.cross_entropy(out, y, reduction="sum").double()
            +         correct = correct + (out.argmax(1) == y).sum()
            +     total = float(total)
            +     correct = int(correct)
                  return total / len(loader.dataset), correct / len(loader.dataset)
            """,
        "where gradients are on, the graph is cut off": """
              import torch.nn.functional as F
              def evaluate(model, loader):
                  total = 0.0
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      out = model(x)
            -         total += F.cross_entropy(out, y).item()
            +         total = total + F.cross_entropy(out, y).detach().double()
            +     total = float(total)
                  return total / len(loader.dataset)
            """,
        "the classic spelling of accuracy": """
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader):
                  correct = 0
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      pred = model(x).argmax(dim=1, keepdim=True)
            -         correct += pred.eq(y.view_as(pred)).sum().item()
            +         correct = correct + pred.eq(y.view_as(pred)).sum()
            +     correct = int(correct)
                  return correct / len(loader.dataset)
            """,
        "accuracy of the batch behind a name": """
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader):
                  total = 0.0
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      hits = (model(x).argmax(1) == y).float().mean()
            -         total += hits.item()
            +         total = total + hits.double()
            +     total = float(total)
                  return total / len(loader.dataset)
            """,
        "a rate of each batch: divided as float64": """
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader):
                  total = 0.0
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      out = model(x)
            -         total += (out.argmax(1) == y).sum().item() / y.size(0)
            +         total = total + (out.argmax(1) == y).sum().double() / y.size(0)
            +     total = float(total)
                  return total / len(loader.dataset)
            """,
        "a list of losses": """
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader):
                  losses = []
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      out = model(x)
            -         losses.append(F.mse_loss(out, y).item())
            +         losses.append(F.mse_loss(out, y))
            +     losses = torch.stack(losses).tolist() if losses else []
                  return losses
            """,
        "predictions and labels: unsafe, they stay on the device meanwhile": """
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader):
                  preds, truth = [], []
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      out = model(x)
            -         preds.append(out.argmax(1).cpu().numpy())
            -         truth.extend(y.cpu().numpy())
            +         preds.append(out.argmax(1))
            +         truth.append(y)
            +     preds = [each.cpu().numpy() for each in preds]
            +     truth = [item for each in truth for item in each.cpu().numpy()]
                  return preds, truth
            """,
        "outputs that are concatenated later: unsafe, they stay on the device meanwhile": """
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader):
                  outputs = []
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      out = model(x)
            -         outputs.append(out.cpu())
            +         outputs.append(out)
            +     outputs = [each.cpu() for each in outputs]
                  return torch.cat(outputs)
            """,
        "evaluation inside a training script, with the model in a with": """
              import torch
              import torch.nn as nn
              device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
              def test(model, test_loader):
                  model.eval()
                  test_loss, correct = 0.0, 0
                  criterion = nn.CrossEntropyLoss()
                  with torch.no_grad():
                      for data, target in test_loader:
                          data, target = data.to(device), target.to(device)
                          output = model(data)
            -             test_loss += criterion(output, target).item() * data.size(0)
            +             test_loss = test_loss + criterion(output, target).double() * data.size(0)
                          pred = output.max(1)[1]
            -             correct += pred.eq(target).sum().item()
            +             correct = correct + pred.eq(target).sum()
            +         test_loss = float(test_loss)
            +         correct = int(correct)
                  print(test_loss / len(test_loader.dataset), correct)
            """,
        "a meter is reported: what it does with the value is its own business": """
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader):
                  losses = AverageMeter()
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      out = model(x)
            !         losses.update(F.cross_entropy(out, y).item(), x.size(0))
                  return losses.avg
            """,
        "labels that are compared by scikit-learn in each batch are reported": """
              from sklearn.metrics import accuracy_score
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader):
                  total = 0.0
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      out = model(x)
            !         total += accuracy_score(y.cpu(), out.argmax(1).cpu())
                  return total / len(loader.dataset)
            """,
        "a tensor on the host is added up: reported": """
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader):
                  correct = 0
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      out = model(x)
            !         correct += out.argmax(1).eq(y).cpu().sum()
                  return correct / len(loader.dataset)
            """,
        "predictions brought to the host for scores that the device could count": """
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader):
                  correct = 0
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      labels = y.cpu()
            !         pred = model(x).argmax(1).cpu()
                      correct += (pred == labels).sum().item()
                  return correct
            """,
        "a loss that gets a name for the sum alone": """
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader):
                  total = 0.0
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
            -         value = F.cross_entropy(model(x), y).item()
            -         total += value
            +         value = F.cross_entropy(model(x), y).double()
            +         total = total + value
            +     total = float(total)
                  return total / len(loader.dataset)
            """,
        "a loss that gets a name, which a rare line looks at, too": """
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader):
                  total = 0.0
                  for i, (x, y) in enumerate(loader):
                      x, y = x.cuda(), y.cuda()
            !         value = F.cross_entropy(model(x), y).item()
                      total += value
                      if i % 50 == 0:
                          print(value)
                  return total / len(loader.dataset)
            """,
        "outputs that get a name on the host, and another, and are collected": """
              import numpy as np
              import torch
              @torch.no_grad()
              def evaluate(model, loader):
                  preds = []
                  for x, y in loader:
                      outputs = model(x.cuda())
            !         outputs = outputs.detach().cpu().numpy()
                      pred = np.argmax(outputs, axis=1)
                      preds.append(pred)
                  return np.concatenate(preds)
            """,
        "predictions and labels for a metric that counts with NumPy": """
              import torch
              @torch.no_grad()
              def evaluate(model, loader, running_metrics):
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      outputs = model(x)
                      pred = outputs.data.max(1)[1].cpu().numpy()
            !         gt = y.data.cpu().numpy()
                      running_metrics.update(gt, pred)
            """,
        "a count that is brought to the host and then read": """
              import torch
              @torch.no_grad()
              def evaluate(model, loader):
                  total = 0
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      pred = model(x).max(1)[1]
            !         correct = pred.eq(y).cpu().sum()
                      total += correct.item()
                  return total
            """,
        "a logarithm of the batch's error is reported: the device has another": """
              import math
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader):
                  avg = 0
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      mse = F.mse_loss(model(x), y)
            !         psnr = 10 * math.log10(1 / mse.item())
                      avg += psnr
                  return avg / len(loader)
            """,
        "lists of numbers: unsafe, the tensors stay on the device meanwhile": """
              import torch
              @torch.no_grad()
              def evaluate(model, loader):
                  fin = []
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      model(x)
            -         fin.extend(y.cpu().detach().numpy().tolist())
            +         fin.append(y)
            +     fin = [item for each in fin for item in each.cpu().numpy().tolist()]
                  return fin
            """,
        "a progress bar made of enumerate, made anew, in epochs now and then": """
              import torch
              from tqdm import tqdm
              def fit(model, train_loader, test_loader):
                  for epoch in range(10):
                      pbar = tqdm(enumerate(train_loader), total=len(train_loader))
                      for i, data in pbar:
                          model.fit(data)
                      if epoch % 2 == 0:
                          correct = 0
                          pbar = tqdm(enumerate(test_loader), total=len(test_loader))
                          with torch.no_grad():
                              for i, data in pbar:
                                  x, y = data
                                  x, y = x.cuda(), y.cuda()
            -                     correct += model(x).max(1)[1].eq(y).sum().item()
            +                     correct = correct + model(x).max(1)[1].eq(y).sum()
            +                 correct = int(correct)
                          print(correct)
            """,
        "an integer zero and a value of unknown type: an int may come out, so it is only reported": """
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader):
                  total = 0
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      out = model(x)
            !         total += out.max().item()
                  return total / len(loader.dataset)
            """,
        "an attribute is reported: others may read it at any time": """
              import torch
              import torch.nn.functional as F
              @torch.no_grad()
              def evaluate(model, loader, self):
                  self.correct = 0
                  for x, y in loader:
                      x, y = x.cuda(), y.cuda()
                      out = model(x)
            !         self.correct += (out.argmax(1) == y).sum().item()
            """,
        "Apple's device counts in integers as well, but has no float64": """
              import torch
              import torch.nn.functional as F
              device = torch.device("mps")
              @torch.no_grad()
              def evaluate(model, loader):
                  total, correct = 0.0, 0
                  for x, y in loader:
                      x, y = x.to(device), y.to(device)
                      out = model(x)
            !         total += F.cross_entropy(out, y).item()
            -         correct += (out.argmax(1) == y).sum().item()
            +         correct = correct + (out.argmax(1) == y).sum()
            +     correct = int(correct)
                  return total, correct
            """,
        "whichever accelerator there is may be Apple's": """
              import torch
              import torch.nn.functional as F
              device = torch.accelerator.current_accelerator()
              @torch.no_grad()
              def evaluate(model, loader):
                  total, correct = 0.0, 0
                  for x, y in loader:
                      x, y = x.to(device), y.to(device)
                      out = model(x)
            !         total += F.cross_entropy(out, y).item()
            -         correct += (out.argmax(1) == y).sum().item()
            +         correct = correct + (out.argmax(1) == y).sum()
            +     correct = int(correct)
                  return total, correct
            """,
    }
    valid = {
        "a function of one's own counts on the host": """
            import torch
            from mine import labels
            def spread(out):
                return out.argmax(1).cpu().numpy().ptp()
            @torch.no_grad()
            def evaluate(model, loader, meter):
                names = []
                for x, y in loader:
                    out = model(x.cuda())
                    meter.update(spread(out).item(), len(x))
                    found = out.argmax(1).cpu().numpy()
                    for i in range(len(x)):
                        names.append(labels[found[i]])
            """,
        "a script for the CPU has nothing to wait for": """
            import torch
            import torch.nn.functional as F
            @torch.no_grad()
            def evaluate(model, loader):
                total = 0.0
                for x, y in loader:
                    total += F.cross_entropy(model(x), y).item()
                return total
            """,
        "the progress bar shows the running mean of every batch": """
            from tqdm import tqdm
            import torch
            import torch.nn.functional as F
            @torch.no_grad()
            def evaluate(model, loader):
                total, bar = 0.0, tqdm(loader)
                for i, (x, y) in enumerate(bar):
                    x, y = x.cuda(), y.cuda()
                    out = model(x)
                    total += F.cross_entropy(out, y).item()
                    bar.set_description(f"{total / (i + 1):.3f}")
                return total / len(loader.dataset)
            """,
        "every batch prints the loss": """
            import torch
            import torch.nn.functional as F
            @torch.no_grad()
            def evaluate(model, loader):
                total = 0.0
                for x, y in loader:
                    x, y = x.cuda(), y.cuda()
                    out = model(x)
                    loss = F.cross_entropy(out, y)
                    print(loss)
                    total += loss.item()
                return total / len(loader.dataset)
            """,
        "labels that were never moved lie on the host": """
            import torch
            @torch.no_grad()
            def evaluate(model, loader):
                outputs, truth, ones = [], [], 0
                for images, labels in loader:
                    outputs.append(model(images.cuda()))
                    truth.extend(labels.numpy())
                    ones += labels.sum().item()
                return outputs, truth, ones
            """,
        "a loss of tensors that were brought to the host is there already": """
            import torch
            @torch.no_grad()
            def evaluate(model, loader, criterion):
                total = []
                for x, y in loader:
                    pred = model(x.cuda()).cpu()
                    print(pred.shape, float(pred[0, 0]))
                    total.append(criterion(pred, y).item())
                return total
            """,
        "a whole mask for each batch would fill the device's memory": """
            import torch
            import torch.nn.functional as F
            @torch.no_grad()
            def evaluate(model, loader):
                masks = []
                for x, y in loader:
                    x, y = x.cuda(), y.cuda()
                    mask = model(x)
                    masks.append(mask.cpu().numpy())
                return masks
            """,
        "embeddings of all nodes would fill the device's memory": """
            import torch
            import torch.nn.functional as F
            @torch.no_grad()
            def evaluate(model, loader):
                xs = []
                for x, y in loader:
                    x, y = x.cuda(), y.cuda()
                    h = model(x)
                    xs.append(h[: x.size(0)].cpu())
                return torch.cat(xs)
            """,
        "after the loop one wait is all there is": """
            import torch
            import torch.nn.functional as F
            @torch.no_grad()
            def evaluate(model, loader):
                outputs = []
                for x, y in loader:
                    x, y = x.cuda(), y.cuda()
                    out = model(x)
                    outputs.append(out)
                return torch.cat(outputs).cpu().numpy()
            """,
        "already on the device": """
            import torch
            import torch.nn.functional as F
            @torch.no_grad()
            def evaluate(model, loader):
                correct = 0
                for x, y in loader:
                    x, y = x.cuda(), y.cuda()
                    out = model(x)
                    correct = correct + (out.argmax(1) == y).sum()
                correct = int(correct)
                return correct
            """,
        "an agent that is played needs its action on the host": """
            import torch
            @torch.no_grad()
            def play(policy, loader, env):
                total, actions = 0.0, []
                for batch in loader:
                    action = policy(batch.cuda()).argmax()
                    actions.append(action.item())
                    _, reward, _, _ = env.step(action.item())
                    total += reward.item()
                return total, actions
            """,
        "results that are written in each batch leave the device one by one": """
            import numpy as np
            import torch
            @torch.no_grad()
            def evaluate(model, loader):
                preds = []
                for i, (x, y) in enumerate(loader):
                    outputs = model(x.cuda())
                    pred = outputs.argmax(1).cpu().numpy()
                    preds.append(pred)
                    np.save(f"{i}.npy", preds[-1])
                return preds
            """,
        "a metric of predictions that are drawn as well": """
            import matplotlib.pyplot as plt
            import torch
            @torch.no_grad()
            def evaluate(model, loader, metric):
                for x, y in loader:
                    pred = model(x.cuda()).argmax(1).cpu().numpy()
                    metric.update(y.numpy(), pred)
                    plt.imshow(pred[0])
            """,
        "a loop that trains is TL201's": """
            import torch.nn.functional as F
            def train(model, loader, optimizer):
                total = 0.0
                for x, y in loader:
                    loss = F.cross_entropy(model(x.cuda()), y.cuda())
                    loss.backward()
                    optimizer.step()
                    total += loss.item()
                return total
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag each evaluation batch's reads that only add to a sum, a list or a meter."""
        yield from syncs(script, self.code, Role.EVAL_BATCH)
