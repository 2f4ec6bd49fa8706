"""TL303: a gradient scaler that is not used as it has to be."""

from __future__ import annotations

from collections.abc import Iterator

from torchlint.api import Finding, Rule, Safety, Script
from torchlint_rules._scaler import misuses


class MisusedGradScaler(Rule):
    """
    ## What it does
    Flags a `GradScaler` of which a part is missing, doubled, misplaced or not needed.

    ## Why it is slow
    Most of these are bugs. Losses that are not scaled, a missing `update()`, a second `unscale_`
    and a float16 network stop the run with an error; an optimizer that steps by itself takes
    gradients 65536 times too large. A scaler beside bfloat16 does nothing but make every step wait
    for the GPU, and one that is made anew, or left out of a checkpoint, skips the first steps again
    until it has found its scale.

    ## When not to
    A scaler with `enabled=False` does nothing, and nothing is said of it.

    ## Fix safety
    Unsafe: a scaler that is made once keeps its scale, so other steps are skipped. Calls that are
    missing are shown as a patch and never made: what to repair is for you to decide.
    """

    code = "TL303"
    name = "misused-grad-scaler"
    summary = "a gradient scaler is not used as it has to be"
    impact = "medium"
    safety = Safety.UNSAFE
    articles = ("S0", "S1")
    needs = ("GradScaler", "scaler.")
    since = (1, 6)

    invalid = {
        "the loss is not scaled: shown, not made": """
              import torch
              scaler = torch.amp.GradScaler("cuda")
              def train(model, loader, optimizer):
                  for x, y in loader:
                      loss = model(x, y)
            !         loss.backward()
                      scaler.step(optimizer)
                      scaler.update()
            """,
        "the optimizer steps with scaled gradients": """
              import torch
              def train(model, loader, optimizer):
                  scaler = torch.cuda.amp.GradScaler()
                  for i, (x, y) in enumerate(loader):
                      scaler.scale(model(x, y)).backward()
                      if i % 4 == 0:
            !             optimizer.step()
                          scaler.update()
            """,
        "one of two optimizers steps with scaled gradients": """
              import torch
              def train(encoder, decoder, loader, enc_optimizer, dec_optimizer):
                  scaler = torch.amp.GradScaler("cuda")
                  for x, y in loader:
                      scaler.scale(decoder(encoder(x), y)).backward()
                      scaler.step(enc_optimizer)
            !         dec_optimizer.step()
                      scaler.update()
            """,
        "the scale is never updated": """
              import torch
              class Trainer:
                  def __init__(self):
                      self.scaler = torch.amp.GradScaler("cuda")
                  def fit(self, model, loader, optimizer):
                      for x, y in loader:
                          self.scaler.scale(model(x, y)).backward()
            !             self.scaler.step(optimizer)
                          optimizer.zero_grad()
            """,
        "an update without a step": """
              import torch
              def train(model, loader, optimizer):
                  scaler = torch.amp.GradScaler("cuda")
                  for x, y in loader:
                      loss = scaler.scale(model(x, y))
                      loss.backward()
            !         scaler.update()
            """,
        "unscaled twice": """
              import torch
              def train(model, loader, optimizer):
                  scaler = torch.amp.GradScaler("cuda")
                  for x, y in loader:
                      scaler.scale(model(x, y)).backward()
                      scaler.unscale_(optimizer)
                      torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            !         scaler.unscale_(optimizer)
                      torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)
                      scaler.step(optimizer)
                      scaler.update()
            """,
        "unscaled in every pass, stepped in every fourth": """
              import torch
              def train(model, loader, optimizer):
                  scaler = torch.amp.GradScaler("cuda")
                  for i, (x, y) in enumerate(loader):
                      scaler.scale(model(x, y) / 4).backward()
            !         scaler.unscale_(optimizer)
                      if (i + 1) % 4 == 0:
                          scaler.step(optimizer)
                          scaler.update()
                          optimizer.zero_grad()
            """,
        "a float16 network": """
              import torch
              def train(model, loader):
            !     model.half()
                  optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                  scaler = torch.amp.GradScaler("cuda")
                  for x, y in loader:
                      scaler.scale(model(x.half(), y)).backward()
                      scaler.step(optimizer)
                      scaler.update()
            """,
        "a float16 network, in one line": """
              import torch
              def train(Net, loader):
            !     model = torch.nn.Linear(4, 4).cuda().half()
                  optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                  scaler = torch.amp.GradScaler("cuda")
                  for x, y in loader:
                      scaler.scale(model(x.half()).sum()).backward()
                      scaler.step(optimizer)
                      scaler.update()
            """,
        "made anew for each epoch": """
              import torch
              def train(model, loader, optimizer):
            +     scaler = torch.amp.GradScaler("cuda")
                  for epoch in range(10):
            -         scaler = torch.amp.GradScaler("cuda")
                      for x, y in loader:
                          scaler.scale(model(x, y)).backward()
                          scaler.step(optimizer)
                          scaler.update()
            """,
        "made anew for each batch, two loops deep: reported, left alone": """
              import torch
              def train(model, loader, optimizer):
                  for epoch in range(10):
                      for x, y in loader:
                          use = x.is_cuda
            !             scaler = torch.amp.GradScaler("cuda", enabled=use)
                          scaler.scale(model(x, y)).backward()
                          scaler.step(optimizer)
                          scaler.update()
            """,
        "made anew by a function that runs once an epoch": """
              import torch
              def train_epoch(model, loader, optimizer):
            !     scaler = torch.amp.GradScaler("cuda")
                  for x, y in loader:
                      scaler.scale(model(x, y)).backward()
                      scaler.step(optimizer)
                      scaler.update()
              def main(model, loader, optimizer):
                  for epoch in range(10):
                      train_epoch(model, loader, optimizer)
            """,
        "bfloat16 needs none": """
              import torch
              def train(model, loader, optimizer):
            !     scaler = torch.amp.GradScaler("cuda")
                  for x, y in loader:
                      with torch.autocast("cuda", dtype=torch.bfloat16):
                          loss = model(x, y)
                      scaler.scale(loss).backward()
                      scaler.step(optimizer)
                      scaler.update()
            """,
        "the update is not at the boundary": """
              import torch
              def train(model, loader, optimizer):
                  scaler = torch.amp.GradScaler("cuda")
                  for i, (x, y) in enumerate(loader):
                      scaler.scale(model(x, y) / 4).backward()
                      if (i + 1) % 4 == 0:
                          scaler.step(optimizer)
                          optimizer.zero_grad()
            !         scaler.update()
            """,
        "a step in every pass, though gradients are cleared in some": """
              import torch
              def train(model, loader, optimizer):
                  scaler = torch.amp.GradScaler("cuda")
                  for i, (x, y) in enumerate(loader):
                      scaler.scale(model(x, y) / 4).backward()
            !         scaler.step(optimizer)
                      scaler.update()
                      if (i + 1) % 4 == 0:
                          optimizer.zero_grad()
            """,
        "a closure": """
              import torch
              def train(model, loader, optimizer):
                  scaler = torch.amp.GradScaler("cuda")
                  for x, y in loader:
                      def closure():
                          loss = scaler.scale(model(x, y))
                          loss.backward()
                          return loss
            !         scaler.step(optimizer, closure)
                      scaler.update()
            """,
        "LBFGS asks for a closure": """
              import torch
              def train(model, loader):
                  optimizer = torch.optim.LBFGS(model.parameters())
                  scaler = torch.amp.GradScaler("cuda")
                  for x, y in loader:
                      scaler.scale(model(x, y)).backward()
            !         scaler.step(optimizer)
                      scaler.update()
            """,
        "a checkpoint without the scaler": """
              import torch
              def train(model, loader, optimizer):
                  scaler = torch.amp.GradScaler("cuda")
                  for epoch in range(10):
                      for x, y in loader:
                          scaler.scale(model(x, y)).backward()
                          scaler.step(optimizer)
                          scaler.update()
            !         state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                      torch.save(state, "last.pt")
            """,
        "a checkpoint handed to a function, of a network by its name": """
              import torch
              from models import build
              from utils import save_checkpoint
              def train(g_model, loader, optimizer, scaler):
                  for x, y in loader:
                      optimizer.zero_grad()
                      scaler.scale(g_model(x, y)).backward()
                      scaler.step(optimizer)
                      scaler.update()
              def main(loader):
                  scaler = torch.amp.GradScaler("cuda")
                  g_model, optimizer = build()
                  for epoch in range(9):
                      train(g_model, loader, optimizer, scaler)
                      save_checkpoint(
            !             {"state_dict": g_model.state_dict(), "optimizer": optimizer.state_dict()},
                          "last.pth",
                      )
            """,
        "a checkpoint that is an object": """
              import torch
              def train(model, loader, optimizer, Snapshot):
                  scaler = torch.amp.GradScaler("cuda")
                  for x, y in loader:
                      scaler.scale(model(x, y)).backward()
                      scaler.step(optimizer)
                      scaler.update()
            !     torch.save(Snapshot(net=model.state_dict(), opt=optimizer.state_dict()), "last.pt")
            """,
    }
    valid = {
        "as it has to be, a scheduler behind it: its warning after a skipped step is no bug": """
            import torch
            def train(model, loader, optimizer, scheduler):
                scaler = torch.amp.GradScaler("cuda")
                for x, y in loader:
                    with torch.autocast("cuda"):
                        loss = model(x, y)
                    scaler.scale(loss).backward()
                    scaler.unscale_(optimizer)
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    scaler.step(optimizer)
                    scaler.update()
                    scheduler.step()
                    optimizer.zero_grad()
                keep = dict(model=model.state_dict(), optimizer=optimizer.state_dict())
                keep["scaler"] = scaler.state_dict()
                torch.save(keep, "last.pt")
            """,
        "switched off for good": """
            import torch
            def train(model, loader, optimizer):
                scaler = torch.amp.GradScaler("cuda", enabled=False)
                for x, y in loader:
                    with torch.autocast("cuda", dtype=torch.bfloat16):
                        loss = model(x, y)
                    loss.backward()
                    optimizer.step()
                    scaler.update()
            """,
        "with and without a scaler, branch by branch": """
            import torch
            def train(model, loader, optimizer, args):
                scaler = torch.amp.GradScaler("cuda") if args.fp16 else None
                for x, y in loader:
                    loss = model(x, y)
                    if scaler is None:
                        loss.backward()
                        optimizer.step()
                    else:
                        scaler.scale(loss).backward()
                        scaler.step(optimizer)
                        scaler.update()
            """,
        "two optimizers, one update for both": """
            import torch
            def train(netG, netD, loader, optimizerG, optimizerD):
                scaler = torch.amp.GradScaler("cuda")
                for x in loader:
                    scaler.scale(netD(x).mean()).backward()
                    scaler.unscale_(optimizerD)
                    scaler.step(optimizerD)
                    scaler.scale(netG(x).mean()).backward()
                    scaler.unscale_(optimizerG)
                    scaler.step(optimizerG)
                    scaler.update()
            """,
        "gradients of several batches, all at the boundary": """
            import torch
            def train(model, loader, optimizer):
                scaler = torch.amp.GradScaler("cuda")
                for i, (x, y) in enumerate(loader):
                    scaler.scale(model(x, y) / 4).backward()
                    if (i + 1) % 4 == 0:
                        scaler.unscale_(optimizer)
                        scaler.step(optimizer)
                        scaler.update()
                        optimizer.zero_grad()
            """,
        "another file steps": """
            import torch
            from engine import step
            def train(model, loader, optimizer):
                scaler = torch.amp.GradScaler("cuda")
                for x, y in loader:
                    scaler.scale(model(x, y)).backward()
                    step(scaler, optimizer)
            """,
        "a wrapper hands a closure on, None in general": """
            import torch
            class Wrapped:
                def __init__(self, optimizer, scaler):
                    self.optimizer, self.scaler = optimizer, scaler
                def step(self, closure=None):
                    self.scaler.step(self.optimizer, closure)
                    self.scaler.update()
            """,
        "each fold has a network, an optimizer and a scaler of its own": """
            import torch
            def cross_validate(make, folds):
                for loader in folds:
                    model = make()
                    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                    scaler = torch.amp.GradScaler("cuda")
                    for x, y in loader:
                        scaler.scale(model(x, y)).backward()
                        scaler.step(optimizer)
                        scaler.update()
            """,
        "the dtype decides whether it scales": """
            import torch
            def train(model, loader, optimizer, dtype):
                scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
                for x, y in loader:
                    with torch.autocast("cuda", dtype=torch.bfloat16):
                        loss = model(x, y)
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
            """,
        "a float16 copy to save, and float16 rounding": """
            import copy
            import torch
            def train(model, loader):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                scaler = torch.amp.GradScaler("cuda")
                for x, y in loader:
                    scaler.scale(model(x, y)).backward()
                    scaler.step(optimizer)
                    scaler.update()
                small = copy.deepcopy(model).half()
                model.half().float()
                torch.save({"model": small}, "small.pt")
            """,
        "a scaler of features": """
            import torch
            from sklearn.preprocessing import StandardScaler
            def train(model, loader, optimizer, data):
                scaler = StandardScaler()
                data = scaler.fit_transform(data)
                for x, y in loader:
                    model(x, y).backward()
                    optimizer.step()
            """,
        "Fabric steps by itself": """
            import torch
            from lightning.fabric import Fabric
            def train(model, loader, optimizer, scaler):
                for x, y in loader:
                    scaler.scale(model(x, y)).backward()
                    optimizer.step()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every misuse of a scaler, each place once."""
        if script.framework != "none" or script.scaling.is_off or not script.scaling.all:
            return
        seen: set[int] = set()
        for misuse in misuses(script):
            if id(misuse.node) not in seen:
                seen.add(id(misuse.node))
                yield Finding(self.code, script.span(misuse.node), misuse.message, misuse.fix)
