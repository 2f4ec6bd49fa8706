"""TL701: a network that `nn.DataParallel` spreads over the GPUs of one process."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import Finding, Fix, Grad, Kind, Rule, Safety, Script, regex
from torchlint_rules._torchrun.obstacles import OBSTACLES
from torchlint_rules._torchrun.shape import ObstacleError, chain_of, wraps

__all__ = ["DataParallel"]

_TORCHRUN = frozenset({
    "torch.nn.parallel.DistributedDataParallel",
    "torch.distributed.init_process_group",
    "torch.distributed.fsdp.FullyShardedDataParallel",
})  # fmt: skip
_OPTIMIZER = regex(r"\w*(?:Adam[Ww]?|SGD|Lamb|RMS[Pp]rop|Optimizer|Optim)")
_BECAUSE = (
    "launch it by `torchrun --nproc-per-node N`; under torchrun each process has its own batch "
    "norm statistics and random stream, samples come in another order, and numbers printed "
    "within an epoch are those of rank 0's samples"
)


class DataParallel(Rule):
    """## What it does
    Finds networks that are wrapped in `nn.DataParallel` to be trained, and turns a script of the
    common shape into one that runs one process per GPU:

        torchrun --nproc-per-node 4 train.py

    The same file still runs under plain `python` exactly as before, `DataParallel` included: what
    is new stands behind `DISTRIBUTED`, which is true only where torchrun started the process.

    ## Why it is slow
    `nn.DataParallel` runs all GPUs from threads of one Python process. In every step it copies the
    network to each GPU, scatters the batch, gathers the outputs on the first GPU and adds up the
    gradients there, one step after the other. `DistributedDataParallel` keeps one copy per
    process and shares gradients while the backward pass still runs. PyTorch's own documentation
    recommends it even on a single machine.

    ## When not to
    Networks that only infer, and loops that a framework owns, are left alone; so is a script that
    has a distributed path already and keeps `DataParallel` as its fallback.

    The rewrite wants one wrapped network, one optimizer of its parameters, one training loop over
    a `DataLoader` made in the same file, and a start that it can see. Where something else stands
    in the script (a sampler, several networks, GPUs chosen by number, processes of its own, a loss
    that sums, a decision by the loss of one batch), there is no rewrite, and the message names the
    line.

    ## Fix safety
    Unsafe, because the script has to be launched otherwise. Under torchrun:

    - The batch size is divided by the number of processes, rounded down: the global batch stays
      what it was if it divides. The learning rate stays.
    - Samples come in another order: a `DistributedSampler` deals them out, shuffled anew in every
      epoch. When the data does not divide evenly, a few samples come twice.
    - Batch norm uses the statistics of each process's share, as it did per GPU before. A loss that
      is averaged with weights (class weights, an ignored index) is averaged within each process.
    - Every process seeds its generators alike, as the GPUs of one process were.
    - Evaluation runs over the whole of its loader in every process: the numbers printed, and the
      decisions taken by them, are those of one process.
    - Sums that the training loop adds up (losses, hits, counts, average meters) are summed over
      the processes behind the loop. What is printed within the loop, and what is collected in
      another way, is of the samples of rank 0 only; the finding notes each such `print`.
    - Only rank 0 prints, logs, draws progress bars and writes files.
    - A parameter that gets no gradient makes `DistributedDataParallel` raise an error.
    """

    code = "TL701"
    name = "data-parallel"
    summary = "`nn.DataParallel` drives all GPUs from one process"
    impact = "high"
    safety = Safety.UNSAFE
    articles = ("S0", "S1", "S2", "S3.10")
    needs = ("DataParallel",)
    since = (2, 0)
    invalid = {
        "an entry function, a training function, the wrap and `.cuda()` chained": '''
              """Train on all GPUs."""

            + import os
            + import sys
              import torch
              from torch import nn
              from torch.utils.data import DataLoader
            + import torch.distributed as dist
            + from torch.nn.parallel import DistributedDataParallel
            + from torch.utils.data import DistributedSampler
              from data import Pictures
            +
            + DISTRIBUTED = "LOCAL_RANK" in os.environ  # started by torchrun
            + RANK = int(os.environ.get("RANK", 0))
            + LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))
            + WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))
            +
            +
            + def sum_over_ranks(value):
            +     """Add up a number that each process has for its share of the samples."""
            +     if not DISTRIBUTED:
            +         return value
            +     total = torch.as_tensor(value, dtype=torch.float64).detach().clone()
            +     dist.all_reduce(total)
            +     return total if torch.is_tensor(value) else type(value)(total)
            +

              def train(model, train_loader, optimizer):
                  total = 0.0
                  for images, labels in train_loader:
                      loss = nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
                      optimizer.zero_grad()
                      loss.backward()
                      optimizer.step()
                      total += loss.item()
            +     total = sum_over_ranks(total) / WORLD_SIZE
                  return total / len(train_loader)

              def main():
            -     train_loader = DataLoader(Pictures("train"), batch_size=256, shuffle=True)
            -     model = nn.DataParallel(nn.Linear(64, 10)).cuda()
            +     train_dataset = Pictures("train")
            +     train_sampler = DistributedSampler(train_dataset) if DISTRIBUTED else None
            +     train_loader = DataLoader(train_dataset, batch_size=256 // WORLD_SIZE, shuffle=train_sampler is None,
            +                               sampler=train_sampler)
            +     if DISTRIBUTED:
            +         model = nn.Linear(64, 10).cuda()
            +         model = DistributedDataParallel(model, device_ids=[LOCAL_RANK])
            +     else:
            +         model = nn.DataParallel(nn.Linear(64, 10)).cuda()
                  optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                  for epoch in range(10):
            +         if DISTRIBUTED:
            +             train_sampler.set_epoch(epoch)
                      print(epoch, train(model, train_loader, optimizer))
            -         torch.save(model.module.state_dict(), "model.pt")
            +         if RANK == 0:
            +             torch.save(model.module.state_dict(), "model.pt")

              if __name__ == "__main__":
            +     if DISTRIBUTED:
            +         if torch.cuda.is_available():
            +             torch.cuda.set_device(LOCAL_RANK)
            +         dist.init_process_group()
            +         if RANK != 0:
            +             sys.stdout = open(os.devnull, "w")  # rank 0 speaks for all
                  main()
            +     if DISTRIBUTED:
            +         dist.destroy_process_group()
            ''',
        "all at module level, wrapped where there are several GPUs, epochs without a name": '''
            + import sys
              import os
              import torch
              import torch.nn as tnn
              import torch.utils.data as td
            + import torch.distributed as dist
            + from torch.nn.parallel import DistributedDataParallel
            + from torch.utils.data import DistributedSampler
              from tqdm import tqdm
              from data import pictures, Net

            - device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
            - loader = td.DataLoader(pictures, 64, drop_last=True)
            + DISTRIBUTED = "LOCAL_RANK" in os.environ  # started by torchrun
            + RANK = int(os.environ.get("RANK", 0))
            + LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))
            + WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))
            + if DISTRIBUTED:
            +     if torch.cuda.is_available():
            +         torch.cuda.set_device(LOCAL_RANK)
            +     dist.init_process_group()
            +     if RANK != 0:
            +         sys.stdout = open(os.devnull, "w")  # rank 0 speaks for all
            +
            +
            + def sum_over_ranks(value):
            +     """Add up a number that each process has for its share of the samples."""
            +     if not DISTRIBUTED:
            +         return value
            +     total = torch.as_tensor(value, dtype=torch.float64).detach().clone()
            +     dist.all_reduce(total)
            +     return total if torch.is_tensor(value) else type(value)(total)
            +
            +
            + device = torch.device(f"cuda:{LOCAL_RANK}" if torch.cuda.is_available() else "cpu")
            + sampler = DistributedSampler(pictures, shuffle=False, drop_last=True) if DISTRIBUTED else None
            + loader = td.DataLoader(pictures, 64 // WORLD_SIZE, drop_last=True, sampler=sampler)
              model = Net()
            - if torch.cuda.device_count() > 1:
            + if not DISTRIBUTED and torch.cuda.device_count() > 1:
                  print("several GPUs")
            !     model = tnn.parallel.DataParallel(model)
              model.to(device)
            + if DISTRIBUTED:
            +     on_gpu = next(model.parameters()).is_cuda
            +     model = DistributedDataParallel(model, device_ids=[LOCAL_RANK] if on_gpu else None)
              optimizer = torch.optim.Adam(model.parameters())
              for _ in range(3):
                  seen = 0
            -     for i, (x, y) in enumerate(tqdm(loader)):
            +     for i, (x, y) in enumerate(tqdm(loader, disable=RANK != 0)):
                      loss = tnn.functional.mse_loss(model(x.to(device)), y.to(device))
                      optimizer.zero_grad()
                      loss.backward()
                      optimizer.step()
                      seen += len(x)
                      if i % 10 == 0:
            -             print(i * len(x), loss.item())
            -     if not os.path.isdir("out"):
            +             print(i * len(x) * WORLD_SIZE, loss.item())
            +     seen = sum_over_ranks(seen)
            +     if RANK == 0 and not os.path.isdir("out"):
                      os.mkdir("out")
                  print("samples", seen)
            - state = model.module if isinstance(model, tnn.DataParallel) else model
            - torch.save(state.state_dict(), "out/model.pt")
            + state = model.module if isinstance(model, (tnn.DataParallel, DistributedDataParallel)) else model
            + if RANK == 0:
            +     torch.save(state.state_dict(), "out/model.pt")
            +
            + if DISTRIBUTED:
            +     dist.destroy_process_group()
            ''',
        "a flag, a download, a meter, a writer, a checkpoint read at the end, a guard of one line": '''
              import logging
              import os
              import sys
              import torch
              import torchvision
              from torch.nn import DataParallel as DP
              from torch.utils.data import DataLoader
              from torch.utils.tensorboard import SummaryWriter
            + import torch.distributed as dist
            + from torch.nn.parallel import DistributedDataParallel
            + from torch.utils.data import DistributedSampler
            +
            + DISTRIBUTED = "LOCAL_RANK" in os.environ  # started by torchrun
            + RANK = int(os.environ.get("RANK", 0))
            + LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))
            + WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))
            +
            +
            + def sum_over_ranks(value):
            +     """Add up a number that each process has for its share of the samples."""
            +     if not DISTRIBUTED:
            +         return value
            +     total = torch.as_tensor(value, dtype=torch.float64).detach().clone()
            +     dist.all_reduce(total)
            +     return total if torch.is_tensor(value) else type(value)(total)
            +

              class Meter:
                  def __init__(self):
                      self.sum = self.count = self.avg = 0

                  def update(self, value, n=1):
                      self.sum += value * n
                      self.count += n
                      self.avg = self.sum / self.count

              def run(args):
            +     if LOCAL_RANK != 0:
            +         dist.barrier()  # local rank 0 downloads first
                  train_set = torchvision.datasets.CIFAR10("data", download=True)
            -     train_loader = DataLoader(train_set, args.batch_size * 2, shuffle=True)
            +     if DISTRIBUTED and LOCAL_RANK == 0:
            +         dist.barrier()
            +     train_sampler = DistributedSampler(train_set) if DISTRIBUTED else None
            +     train_loader = DataLoader(train_set, (args.batch_size * 2) // WORLD_SIZE, shuffle=train_sampler is None,
            +                               sampler=train_sampler)
                  model = torchvision.models.resnet18()
                  if args.cuda:
            -         model = DP(model, device_ids=range(torch.cuda.device_count()))
            +         if not DISTRIBUTED:
            +             model = DP(model, device_ids=range(torch.cuda.device_count()))
                      torch.backends.cudnn.benchmark = True
                      model.cuda()
            +     if DISTRIBUTED:
            +         on_gpu = next(model.parameters()).is_cuda
            +         model = DistributedDataParallel(model, device_ids=[LOCAL_RANK] if on_gpu else None)
                  criterion = torch.nn.CrossEntropyLoss()
                  optimizer = torch.optim.SGD(model.parameters(), 0.1)
            -     writer = SummaryWriter()
            +     writer = SummaryWriter() if RANK == 0 else None
                  for epoch in range(args.epochs):
            +         if DISTRIBUTED:
            +             train_sampler.set_epoch(epoch)
                      losses = Meter()
                      for x, y in train_loader:
                          loss = criterion(model(x), y)
                          losses.update(loss.item(), x.size(0))
                          optimizer.zero_grad()
                          loss.backward()
                          optimizer.step()
            -         writer.add_scalar("loss", losses.avg, epoch)
            -         if epoch % 5 == 0 or epoch == args.epochs:
            +         losses.sum = sum_over_ranks(losses.sum)
            +         losses.count = sum_over_ranks(losses.count)
            +         losses.avg = losses.sum / losses.count
            +         if RANK == 0:
            +             writer.add_scalar("loss", losses.avg, epoch)
            +         if RANK == 0 and (epoch % 5 == 0 or epoch == args.epochs):
                          torch.save(model.state_dict(), "model.pt")
            +     if DISTRIBUTED:
            +         dist.barrier()  # rank 0 has written it
                  model.load_state_dict(torch.load("model.pt"))

            - if __name__ == "__main__": run(parse())
            + if __name__ == "__main__":
            +     if DISTRIBUTED:
            +         if torch.cuda.is_available():
            +             torch.cuda.set_device(LOCAL_RANK)
            +         dist.init_process_group()
            +         if RANK != 0:
            +             sys.stdout = open(os.devnull, "w")  # rank 0 speaks for all
            +             logging.disable(logging.WARNING)
            +     run(parse())
            +     if DISTRIBUTED:
            +         dist.destroy_process_group()
            ''',
        "a product that is printed counts for all processes, and `.module` is asked for under torchrun, too": """
            + import os
            + import sys
              import torch
              from torch import nn
              from torch.utils.data import DataLoader
            - loader = DataLoader(data, batch_size=64, shuffle=True)
            + sampler = DistributedSampler(data) if DISTRIBUTED else None
            + import torch.distributed as dist
            + from torch.nn.parallel import DistributedDataParallel
            + from torch.utils.data import DistributedSampler
            +
            + DISTRIBUTED = "LOCAL_RANK" in os.environ  # started by torchrun
            + RANK = int(os.environ.get("RANK", 0))
            + LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))
            + WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))
            + if DISTRIBUTED:
            +     if torch.cuda.is_available():
            +         torch.cuda.set_device(LOCAL_RANK)
            +     dist.init_process_group()
            +     if RANK != 0:
            +         sys.stdout = open(os.devnull, "w")  # rank 0 speaks for all
            +
            + loader = DataLoader(data, batch_size=64 // WORLD_SIZE, shuffle=sampler is None, sampler=sampler)
              model = net
            - if torch.cuda.device_count() > 1:
            + if not DISTRIBUTED and torch.cuda.device_count() > 1:
            !     model = nn.DataParallel(model)
              model.cuda()
            + if DISTRIBUTED:
            +     on_gpu = next(model.parameters()).is_cuda
            +     model = DistributedDataParallel(model, device_ids=[LOCAL_RANK] if on_gpu else None)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for epoch in range(3):
            +     if DISTRIBUTED:
            +         sampler.set_epoch(epoch)
                  for i, (x, y) in enumerate(loader):
                      loss = criterion(model(x), y)
                      loss.backward()
                      optimizer.step()
            -         print(epoch, i * x.size(0), len(data))
            - if torch.cuda.device_count() > 1:
            -     torch.save(model.module.state_dict(), "model.pt")
            +         print(epoch, i * x.size(0) * WORLD_SIZE, len(data))
            + if DISTRIBUTED or torch.cuda.device_count() > 1:
            +     if RANK == 0:
            +         torch.save(model.module.state_dict(), "model.pt")
              else:
            -     torch.save(model.state_dict(), "model.pt")
            +     if RANK == 0:
            +         torch.save(model.state_dict(), "model.pt")
            +
            + if DISTRIBUTED:
            +     dist.destroy_process_group()
            """,
        "an optimizer of another package steps out of sight": """
              import torch
              from optimizers import OpenAIAdam
              from mine import Losses, net
              compute = Losses(OpenAIAdam(net.parameters(), lr=0.1))
            ! model = torch.nn.DataParallel(net)
              for x, y in batches:
                  compute(model(x), y)
            """,
        **OBSTACLES,
    }
    valid = {
        "a network that only infers has no gradients to share": """
            import torch
            model = torch.nn.DataParallel(build()).cuda()
            model.eval()
            with torch.no_grad():
                for images in loader:
                    save(model(images))
            """,
        "a feature extractor beside the training only infers": """
            import torch
            extractor = torch.nn.DataParallel(inception()).eval()
            for x, y in loader:
                loss = criterion(net(x), extractor(y))
                loss.backward()
                optimizer.step()
            """,
        "a wrapped teacher that runs without gradients only infers": """
            import torch
            teacher = torch.nn.DataParallel(resnet().cuda())
            for x, y in loader:
                with torch.no_grad():
                    wanted = teacher(x)
                loss = criterion(net(x), wanted)
                loss.backward()
                optimizer.step()
            """,
        "the script has a distributed path, this is its fallback": """
            import torch
            if args.distributed:
                model = torch.nn.parallel.DistributedDataParallel(model)
            else:
                model = torch.nn.DataParallel(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
        "the loop belongs to a framework, which has its own launcher": """
            import torch
            from accelerate import Accelerator
            model = torch.nn.DataParallel(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
        "nothing steps: the network is served": """
            import torch
            from mine import build, requests
            model = torch.nn.DataParallel(build())
            for images in requests:
                print(model(images))
            """,
        "a class of the user's own has the name": """
            import torch
            class DataParallel(torch.nn.Module):
                pass
            model = DataParallel()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
        "asking for the type wraps nothing": """
            import torch
            def unwrap(model):
                return model.module if isinstance(model, torch.nn.DataParallel) else model
            optimizer = torch.optim.SGD(unwrap(net).parameters(), lr=0.1)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every network that is wrapped to be trained."""
        if script.framework != "none" or any(True for _ in script.calls(*_TORCHRUN)):
            return
        for call in wraps(script) if _trains(script) else ():
            if not _infers_only(script, call):
                yield self._finding(script, call)

    def _finding(self, script: Script, call: cst.Call) -> Finding:
        network = _called(script, call)
        said = (
            f"one process drives all GPUs and copies {network} to them in every step; "
            "train it by one process per GPU (DistributedDataParallel, torchrun)"
        )
        span = script.span(call)
        if script.is_notebook:
            return Finding(self.code, span, f"{said}. Not rewritten: torchrun runs no notebooks")
        from torchlint_rules._torchrun.rewrite import under_torchrun

        try:
            rewritten = under_torchrun(script, call)
        except ObstacleError as obstacle:
            return Finding(self.code, span, f"{said}. Not rewritten: {obstacle.told(script)}")
        fix = Fix.unsafe("Run it under torchrun", rewritten.edits, because=_BECAUSE)
        return Finding(self.code, span, said, fix, rewritten.notes)


def _called(script: Script, call: cst.Call) -> str:
    """Give what the user calls the wrapped network."""
    source = call.args[0].value if call.args else call
    if isinstance(source, (cst.Name, cst.Attribute)):
        return f"`{script.code(source)}`"
    assign = script.parent(chain_of(script, call))
    target = assign.targets[0].target if isinstance(assign, cst.Assign) else None
    return f"`{script.code(target)}`" if isinstance(target, cst.Name) else "the network"


def _trains(script: Script) -> bool:
    """Whether anything in the file shows that networks are trained."""
    return any(
        name.value.startswith("optimizer") or _OPTIMIZER.fullmatch(name.value)
        for name in script.all(cst.Name)
    ) or any(
        script.is_step(call) or script.kind(call) is Kind.OPTIMIZER for call in script.all(cst.Call)
    )


def _infers_only(script: Script, call: cst.Call) -> bool:
    """Whether a wrapped network only ever runs without gradients."""
    whole = chain_of(script, call)
    attribute = script.parent(whole)
    if isinstance(attribute, cst.Attribute) and attribute.attr.value == "eval":
        return True
    assign = script.parent(whole)
    if not isinstance(assign, cst.Assign) or not isinstance(assign.targets[0].target, cst.Name):
        return False
    name = assign.targets[0].target.value
    home = script.function(call)
    runs = [
        run
        for run in script.all(cst.Call)
        if isinstance(run.func, cst.Name)
        and run.func.value == name
        and script.function(run) is home
    ]
    handed_on = any(
        isinstance(use.value, cst.Name) and use.value.value == name for use in script.all(cst.Arg)
    )
    steps = any(
        isinstance(use.value, cst.Name)
        and use.value.value == name
        and use.attr.value in ("parameters", "train")
        for use in script.all(cst.Attribute)
    )
    without = all(script.grad(run) is Grad.OFF for run in runs)
    return bool(runs) and without and not handed_on and not steps
