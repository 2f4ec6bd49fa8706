"""TL201: the host waits for the device in every training batch to add up a number."""

from __future__ import annotations

from collections.abc import Iterator

from torchlint.api import Finding, Role, Rule, Safety, Script
from torchlint_rules._syncexamples import MORE_INVALID, MORE_VALID
from torchlint_rules._syncs import syncs


class SyncInTrainingLoop(Rule):
    """
    ## What it does
    Flags a tensor that is read on the host in every training batch (`.item()`, `float()`,
    `.cpu()`, `.numpy()`, `.tolist()`) only to be added to a sum, a list or a meter.

    ## Why it is slow
    The host queues kernels far ahead of the device. Reading a value stops it until the device has
    done all that was queued, and while the next batch is prepared the device has nothing to do.
    A sum that stays on the device needs one such stop for an epoch in place of one for a batch.

    ## When not to
    On a CPU there is nothing to wait for, and adding up numbers is cheaper than adding up tensors.
    A value that the same pass prints, logs or compares is read anyway; it is not flagged.

    ## Fix safety
    Exact for sums and for lists of losses: the device adds in float64, as Python does, or in
    integers. Close where the value is divided by a number or was added up by NumPy. Unsafe for
    lists of outputs, which then stay in the device's memory until the loop ends.
    """

    code = "TL201"
    name = "sync-in-training-loop"
    summary = "every batch waits for the device to read a value that is wanted once per epoch"
    impact = "high"
    safety = Safety.EXACT
    articles = ("S3.7",)
    needs = ("backward", ".step")

    invalid = MORE_INVALID | {
        "a sum of losses, and one weighted by the size of the batch, from an integer zero": """
              import torch.nn.functional as F
              running, weighted = 0.0, 0
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     running += loss.item()
            -     weighted += loss.item() * x.size(0)
            +     running = running + loss.detach().double()
            +     weighted = weighted + loss.detach().double() * x.size(0)
            + running = float(running)
            + weighted = float(weighted)
            """,
        "other spellings: no augmented assignment, through data and the host, a cast": """
              import torch.nn.functional as F
              running = total = doubled = 0.0
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     running = running + float(loss)
            -     total += loss.data.cpu().item()
            -     doubled += float(loss * 2)
            +     running = running + loss.detach().double()
            +     total = total + loss.detach().double()
            +     doubled = doubled + (loss * 2).detach().double()
            + running = float(running)
            + total = float(total)
            + doubled = float(doubled)
            """,
        "a counter of right answers stays an integer, one that began as a float is a float": """
              import torch.nn.functional as F
              correct, share = 0, 0.0
              for x, y in loader:
                  out = model(x.cuda())
                  loss = F.cross_entropy(out, y)
                  loss.backward()
            -     correct += (out.argmax(1) == y).sum().item()  # right answers
            -     share += (out.argmax(1) == y).sum().item()
            +     correct = correct + (out.argmax(1) == y).sum()  # right answers
            +     share = share + (out.argmax(1) == y).sum().double()
            + correct = int(correct)
            + share = float(share)
            """,
        "a counter behind two names, read by int()": """
              import torch.nn.functional as F
              correct = 0
              for x, y in loader:
                  out = model(x.cuda())
                  loss = F.cross_entropy(out, y)
                  _, pred = out.max(1)
                  hits = pred.eq(y)
                  loss.backward()
            -     correct += int(hits.sum())
            +     correct = correct + hits.sum()
            + correct = int(correct)
            """,
        "several sums of one loop, the conversions one below the other": """
              import torch.nn.functional as F
              running, correct, total = 0.0, 0, 0
              for x, y in loader:
                  out = model(x.cuda())
                  loss = F.cross_entropy(out, y)
                  loss.backward()
            -     running += loss.item()
            -     correct += (out.argmax(1) == y).sum().item()
            +     running = running + loss.detach().double()
            +     correct = correct + (out.argmax(1) == y).sum()
                  total += y.size(0)
            + running = float(running)
            + correct = int(correct)
            """,
        "two losses added to one sum": """
              import torch.nn.functional as F
              running = 0.0
              for x, y in loader:
                  out = model(x.cuda())
                  aux = out.pow(2).mean()
                  loss = F.cross_entropy(out, y) + aux
                  loss.backward()
            -     running += loss.item() + aux.item()
            +     running = running + (loss.detach().double() + aux.detach().double())
            + running = float(running)
            """,
        "a division is close: CUDA multiplies by the reciprocal": """
              import torch.nn.functional as F
              running = 0.0
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     running += loss.item() / len(loader)
            +     running = running + loss.detach().double() / len(loader)
            + running = float(running)
            """,
        "an array of one loss, which NumPy may add in float32": """
              import torch.nn.functional as F
              running = 0.0
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     running += loss.detach().cpu().numpy()
            +     running = running + loss.detach().double()
            + running = float(running)
            """,
        "reads every hundred batches get a number, a reset stays": """
              import torch.nn.functional as F
              running = 0.0
              for i, (x, y) in enumerate(loader):
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     running += loss.item()
            +     running = running + loss.detach().double()
                  if i % 100 == 99:
            -         print(f"{i}: {running / 100:.3f}")
            +         print(f"{i}: {float(running) / 100:.3f}")
                      running = 0.0
            + running = float(running)
            """,
        "the else of the loop reads it": """
              import torch.nn.functional as F
              running = 0.0
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     running += loss.item()
            +     running = running + loss.detach().double()
              else:
            -     print(running)
            +     print(float(running))
            + running = float(running)
            """,
        "a list of losses": """
              import torch
              import torch.nn.functional as F
              losses = []
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     losses.append(loss.item())
            +     losses.append(loss.detach())
            + losses = torch.stack(losses).tolist() if losses else []
            """,
        "a list of losses where torch has no name yet": """
            + import torch
              import torch.nn.functional as F
              losses = []
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     losses += [loss.item()]
            +     losses += [loss.detach()]
            + losses = torch.stack(losses).tolist() if losses else []
            """,
        "a list of values whose shape the file does not show": """
              import torch
              import torch.nn.functional as F
              scores = []
              for x, y in loader:
                  out = model(x.cuda())
                  score = out[0]
                  loss = F.cross_entropy(out, y)
                  loss.backward()
            -     scores.append(score.item())
            +     scores.append(score.detach())
            + scores = torch.stack(scores).flatten().tolist() if scores else []
            """,
        "a list that outlives the batches is converted after the epochs": """
              import torch
              import torch.nn.functional as F
              def train(model, loader):
                  losses = []
                  for epoch in range(10):
                      for x, y in loader:
                          loss = F.cross_entropy(model(x.cuda()), y.cuda())
                          loss.backward()
            -             losses.append(loss.item())
            +             losses.append(loss.detach())
            +     losses = torch.stack(losses).tolist() if losses else []
                  return losses
            """,
        "a loss that is changed in place after it was kept": """
              import torch
              import torch.nn.functional as F
              losses = []
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     losses.append(loss.item())
            +     losses.append(loss.detach().clone())
                  loss /= 2
            + losses = torch.stack(losses).tolist() if losses else []
            """,
        "predictions as lists: unsafe, they stay on the device meanwhile": """
              import torch.nn.functional as F
              preds, truth = [], []
              for x, y in loader:
                  y = y.cuda()
                  out = model(x.cuda())
                  loss = F.cross_entropy(out, y)
                  loss.backward()
            -     preds.extend(out.argmax(1).cpu().tolist())
            -     truth += y.tolist()
            +     preds.append(out.argmax(1))
            +     truth.append(y.detach())
            + preds = [item for each in preds for item in each.cpu().tolist()]
            + truth = [item for each in truth for item in each.tolist()]
            """,
        "outputs as arrays: unsafe, they stay on the device meanwhile": """
              import torch.nn.functional as F
              preds = []
              for x, y in loader:
                  out = model(x.cuda())
                  loss = F.cross_entropy(out, y)
                  loss.backward()
            -     preds.append(out.detach().cpu().numpy())
            +     preds.append(out.detach())
            + preds = [each.cpu().numpy() for each in preds]
            """,
        "a comment at the end of the loop stays inside it": """
              import torch.nn.functional as F
              running = 0.0
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     running += loss.item()
            +     running = running + loss.detach().double()
                  # scheduler.step()
            + running = float(running)
            """,
        "at module level, batches drawn with next()": """
              import torch
              device = "cuda" if torch.cuda.is_available() else "cpu"
              net = torch.nn.Linear(4, 1).to(device)
              optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
              batches = iter(torch.utils.data.DataLoader(data))
              total = 0.0
              for step in range(100):
                  loss = net(next(batches).to(device)).pow(2).mean()
                  optimizer.zero_grad()
                  loss.backward()
            -     total += loss.item()
            +     total = total + loss.detach().double()
            + total = float(total)
              print(total / 100)
            """,
        "losses of the steps of one sequence": """
              import torch.nn.functional as F
              def train(model, loader, optimizer):
                  running = 0.0
                  for x, y in loader:
                      for t in range(x.size(1)):
                          loss = F.mse_loss(model(x[:, t].cuda()), y[:, t].cuda())
                          loss.backward()
            -             running += loss.item()
            +             running = running + loss.detach().double()
                      optimizer.step()
            +     running = float(running)
                  return running
            """,
        "meters and attributes are reported: others may read them at any time": """
              import torch.nn.functional as F
              def train(model, loader, self):
                  meter = AverageMeter()
                  for x, y in loader:
                      loss = F.cross_entropy(model(x.cuda()), y.cuda())
                      loss.backward()
            !         meter.update(loss.item(), x.size(0))
            !         self.total += loss.item()
            !         self.history["loss"].append(loss.item())
            """,
        "sums that come from elsewhere are reported, and lists that are not surely empty": """
              import torch.nn.functional as F
              def train(model, loader, running, losses):
                  global total
                  history = [0.0]
                  for x, y in loader:
                      loss = F.cross_entropy(model(x.cuda()), y.cuda())
                      loss.backward()
            !         running += loss.item()
            !         total += loss.item()
            !         losses.append(loss.item())
            !         history.append(loss.item())
            """,
        "a sum that an inner function reads is reported": """
              import torch.nn.functional as F
              def train(model, loader):
                  running = 0.0
                  for x, y in loader:
                      loss = F.cross_entropy(model(x.cuda()), y.cuda())
                      loss.backward()
            !         running += loss.item()
                  def mean():
                      return running / len(loader)
                  return mean()
            """,
        "a list that is looked at now and then is reported": """
              import torch.nn.functional as F
              losses = []
              for i, (x, y) in enumerate(loader):
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            !     losses.append(loss.item())
                  if i % 100 == 0:
                      print(sum(losses[-100:]) / 100)
            """,
        "a sum that an exception may leave unfinished is reported": """
              import torch.nn.functional as F
              def train(model, loader):
                  running = 0.0
                  try:
                      for x, y in loader:
                          loss = F.cross_entropy(model(x.cuda()), y.cuda())
                          loss.backward()
            !             running += loss.item()
                  except KeyboardInterrupt:
                      pass
                  return running / len(loader)
            """,
        "a value that got a name is reported where it is read": """
              import torch.nn.functional as F
              running = 0.0
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            !     value = loss.item()
                  running += value * x.size(0)
            """,
        "a metric of scikit-learn is reported: it has to be computed on the device": """
              from sklearn.metrics import f1_score
              import torch.nn.functional as F
              score = 0.0
              for x, y in loader:
                  y = y.cuda()
                  out = model(x.cuda())
                  loss = F.cross_entropy(out, y)
                  loss.backward()
            !     score += f1_score(y.cpu(), out.argmax(1).cpu())
            """,
        "semicolons are left alone": """
              import torch.nn.functional as F
              running, steps = 0.0, 0
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            !     running += loss.item(); steps += 1
            """,
        "a running value that only a report now and then looks at": """
              import torch.nn.functional as F
              running = 0.0
              for i, (x, y) in enumerate(loader):
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            !     running += loss.item()
                  mean = running / (i + 1)
                  if i % 50 == 0:
                      print(mean)
            """,
    }
    valid = MORE_VALID | {
        "a script for the CPU has nothing to wait for": """
            import torch.nn.functional as F
            def train(model, loader):
                running = 0.0
                for x, y in loader:
                    loss = F.cross_entropy(model(x), y)
                    loss.backward()
                    running += loss.item()
                return running
            """,
        "every fiftieth batch only": """
            import torch.nn.functional as F
            running = 0.0
            for i, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                if i % 50 == 0:
                    running += loss.item()
            """,
        "the item of an array is on the host already": """
            import numpy as np
            import torch.nn.functional as F
            running = 0.0
            for x, y in loader:
                weights = np.ones(1)
                loss = F.cross_entropy(model(x.cuda()), y)
                loss.backward()
                running += weights.item()
            """,
        "items() of a dictionary": """
            import torch.nn.functional as F
            names, stats = [], {}
            for x, y in loader:
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                names += list(stats.items())
            """,
        "what is not known to be a tensor": """
            import torch.nn.functional as F
            running = 0.0
            for x, y in loader:
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                running += measure(x).item()
            """,
        "the loss decides whether to go on, so it is read in every batch anyway": """
            import torch.nn.functional as F
            running, losses = 0.0, []
            for x, y in loader:
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                if loss.item() > 100:
                    break
                running += loss.item()
                losses.append(loss.item())
            """,
        "a test for nan reads the loss in every batch anyway": """
            import torch
            import torch.nn.functional as F
            running = 0.0
            for x, y in loader:
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                assert not torch.isnan(loss), "diverged"
                running += loss.item()
            """,
        "the progress bar shows the loss of every batch": """
            from tqdm import tqdm
            import torch.nn.functional as F
            running, bar = 0.0, tqdm(loader)
            for x, y in bar:
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                running += loss.item()
                bar.set_postfix(loss=loss.item())
            """,
        "every batch prints the running mean": """
            import torch.nn.functional as F
            running = 0.0
            for i, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                running += loss.item()
                print(f"{running / (i + 1):.3f}")
            """,
        "every batch logs the value by its name": """
            import torch.nn.functional as F
            def train(model, loader, writer):
                running = 0.0
                for i, (x, y) in enumerate(loader):
                    loss = F.cross_entropy(model(x.cuda()), y.cuda())
                    loss.backward()
                    value = loss.item()
                    running += value
                    writer.add_scalar("loss", value, i)
                return running / len(loader)
            """,
        "the steps of one batch: the progress bar shows their sum after each": """
            import torch.nn.functional as F
            from tqdm import tqdm
            def train(model, loader, optimizer, steps):
                bar = tqdm(loader)
                for x, y in bar:
                    total = 0.0
                    for _ in range(steps):
                        loss = F.mse_loss(model(x.cuda()), y.cuda()) / steps
                        loss.backward()
                        total += loss.item()
                    optimizer.step()
                    bar.set_description(f"{total:.4f}")
            """,
        "the running value is kept for every batch": """
            import torch.nn.functional as F
            running, history = 0.0, []
            for x, y in loader:
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                running += loss.item()
                history.append(running)
            """,
        "the loop stops when enough was added up": """
            import torch.nn.functional as F
            running = 0.0
            for x, y in loader:
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                running += loss.item()
                if running > 100:
                    break
            """,
        "a closure of LBFGS runs when the optimizer likes": """
            import torch.nn.functional as F
            def train(model, loader):
                losses = []
                for x, y in loader:
                    def closure():
                        optimizer.zero_grad()
                        loss = F.mse_loss(model(x.cuda()), y.cuda())
                        loss.backward()
                        losses.append(loss.item())
                        return loss
                    optimizer.step(closure)
                return losses
            """,
        "after the loop one wait is all there is": """
            import torch.nn.functional as F
            def train(model, loader):
                total = 0.0
                for epoch in range(3):
                    for x, y in loader:
                        loss = F.cross_entropy(model(x.cuda()), y.cuda())
                        loss.backward()
                    total += loss.item()
                return total
            """,
        "an environment needs the action on the host": """
            import torch
            def train(policy, env):
                actions, state = [], env.reset()
                for step in range(1000):
                    action = policy(torch.as_tensor(state).cuda()).argmax()
                    actions.append(action.item())
                    state, reward, done, _ = env.step(action.item())
                    loss = policy(torch.as_tensor(state).cuda()).mean() * reward
                    loss.backward()
                return actions
            """,
        "labels that were never moved lie on the host": """
            import torch.nn.functional as F
            def train(model, loader):
                truth, seen = [], 0
                for images, labels in loader:
                    loss = F.cross_entropy(model(images.cuda()), labels.cuda())
                    loss.backward()
                    truth += labels.tolist()
                    seen += labels.sum().item()
                return truth, seen
            """,
        "a whole image for each batch would fill the device's memory": """
            import torch.nn.functional as F
            images = []
            for x, y in loader:
                image = model(x.cuda())
                loss = F.mse_loss(image, y)
                loss.backward()
                images.append(image.detach().cpu())
            """,
        "numpy() of a tensor on a GPU fails, so this one is not there": """
            import torch.nn.functional as F
            values = []
            for x, y in loader:
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                values.append(loss.detach().numpy())
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag each training batch's reads that only add to a sum, a list or a meter."""
        yield from syncs(script, self.code, Role.TRAIN_BATCH)
