"""TL204: the host waits while a batch is copied to the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Heat, Move, Part, Record, Rule, Safety, Script
from torchlint_rules._hostwrites import is_written_after
from torchlint_rules._onealine import one_a_line
from torchlint_rules._pinning import Held, available, held, may_pin, unpinned

_POSITION: Final = {"cuda": 1, "to": 2}
_MOVERS: Final = ("accelerate", "lightning", "fastai")
"""Frameworks whose loaders give batches that are on the device already."""
_OWN_CLASS: Final = "if the collate function makes objects, their method has to know the argument"


class BlockingTransfer(Rule):
    """
    ## What it does
    Flags `x.to(device)` and `x.cuda()` of a loader's batch without `non_blocking=True`, where the
    loader pins its batches or TL102 asks for it.

    ## Why it is slow
    A copy out of page-locked memory needs no help of the host, yet the host waits for it. With
    `non_blocking=True` it goes on at once and queues the forward pass while the copy runs.

    ## When not to
    Never for copies from the device to the host: the host would read the memory before it is
    filled. On Apple's devices such copies have been seen to corrupt data, so where the device may
    be one the fix asks for CUDA. The rule is silent where the batch may be of a class of your own,
    whose `to()` need not know the argument, and where the batch on the host is written to after
    the copy.

    ## Fix safety
    Exact: what the device does next waits for the copy, and on a CPU nothing changes.
    """

    code = "TL204"
    name = "blocking-transfer"
    summary = "the host waits while a batch is copied to the device"
    impact = "medium"
    safety = Safety.EXACT
    articles = ("S3.7",)
    needs = ("DataLoader",)

    invalid = {
        "a batch of `next`, and pieces that a collate function out of sight surely made tensors": """
              from torch.autograd import Variable
              from torch.utils.data import DataLoader
              from mine import Images, collate, model
              loader = DataLoader(Images(), pin_memory=True)
              batches = iter(loader)
              while True:
                  x, y = batches.next()
            -     model(x.cuda(), y)
            +     model(x.cuda(non_blocking=True), y)
              others = DataLoader(Images(), pin_memory=True, collate_fn=collate)
              for samples, targets in others:
            -     targets = Variable(targets.cuda())
            +     targets = Variable(targets.cuda(non_blocking=True))
                  model(samples, targets)
            """,
        "what a collate function out of sight puts into a batch: unsafe": """
              from torch.utils.data import DataLoader
              from mine import Images, collate, model
              loader = DataLoader(Images(), collate_fn=collate, pin_memory=True)
              for images, targets in loader:
            -     images = [image.to("cuda") for image in images]
            +     images = [image.to("cuda", non_blocking=True) for image in images]
            -     model(images, targets["boxes"].cuda())
            +     model(images, targets["boxes"].cuda(non_blocking=True))
            """,
        "batches of a pinned loader, by `to` and by `cuda`": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
              loader = DataLoader(Images(), batch_size=32, pin_memory=True)
              for x, y in loader:
            -     x = x.to(device)
            -     y = y.cuda()
            +     x = x.to(device, non_blocking=True)
            +     y = y.cuda(non_blocking=True)
                  model(x, y)
            """,
        "two on a line, of a loader that TL102 speaks of": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              for i, (x, y) in enumerate(DataLoader(Images(), batch_size=32)):
            -     x, y = x.cuda(), y.cuda(0)
            +     x, y = x.cuda(non_blocking=True), y.cuda(0, non_blocking=True)
                  model(x, y)
            """,
        "three on a line that becomes too long": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              device = torch.accelerator.current_accelerator()
              for left, right, y in DataLoader(Images(), pin_memory=True):
            -     left, right, y = left.to(device), right.to(device), y.to(device)  # all
            +     left = left.to(device, non_blocking=device.type == "cuda")
            +     right = right.to(device, non_blocking=device.type == "cuda")
            +     y = y.to(device, non_blocking=device.type == "cuda")  # all
                  model(left, right, y)
            """,
        "a dictionary of tensors": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Texts, model
              device = "cuda"
              loader = DataLoader(Texts(), batch_size=32, pin_memory=True)
              for batch in loader:
            -     batch = {name: value.to(device) for name, value in batch.items()}
            +     batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
                  model(**batch)
            """,
        "a list of tensors, and tensors by index": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              loader = DataLoader(Images(), batch_size=32, pin_memory=True)
              for batch in loader:
            -     x, y = [part.cuda() for part in batch]
            -     mask = batch[2].cuda()
            +     x, y = [part.cuda(non_blocking=True) for part in batch]
            +     mask = batch[2].cuda(non_blocking=True)
                  model(x, y, mask)
            """,
        "behind a name, a view and a Variable": """
              from torch.autograd import Variable
              from torch.utils.data import DataLoader
              from mine import Images, model
              loader = DataLoader(Images(), batch_size=32, pin_memory=True)
              for data in loader:
                  images, labels = data
            -     images = Variable(images.view(-1, 784)).cuda()
            -     labels = Variable(labels[:, 0].cuda())
            +     images = Variable(images.view(-1, 784)).cuda(non_blocking=True)
            +     labels = Variable(labels[:, 0].cuda(non_blocking=True))
                  model(images, labels)
            """,
        "in a function that is handed the batch": """
              from torch.utils.data import DataLoader
              from mine import Images, model
              def step(x, y):
            -     return model(x.to("cuda:0"), y.to("cuda:0"))
            +     return model(x.to("cuda:0", non_blocking=True), y.to("cuda:0", non_blocking=True))
              def main():
                  loader = DataLoader(Images(), batch_size=32, pin_memory=True)
                  for x, y in loader:
                      step(x, y)
            """,
        "in a function that is handed the loader, in a closure of an `if`": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, args, model
              def evaluate(loader):
                  for x, y in loader:
                      if args.cuda:
            -             x, y = x.cuda(), y.cuda()
            +             x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
                      model(x, y)
              evaluate(DataLoader(Images(), pin_memory=args.cuda))
            """,
        "each entry of a batch, and what an inner function or a generator hands on": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              device = torch.device("cuda")
              loader = DataLoader(Images(), batch_size=32, pin_memory=True)
              for batch in loader:
                  for name in batch.keys():
            -         batch[name] = batch[name].to(device)
            +         batch[name] = batch[name].to(device, non_blocking=True)
                  model(**batch)
              for batch in loader:
            -     x, y = map(lambda part: part.cuda(), batch)
            +     x, y = map(lambda part: part.cuda(non_blocking=True), batch)
                  model(x, y)
              def forever(loader):
                  while True:
                      for batch in loader:
                          yield batch
              batches = forever(loader)
              for step in range(1000):
                  batch = next(batches)
            -     batch["x"] = batch["x"].to(device)
            -     batch["y"] = batch["y"].to(device)
            +     batch["x"] = batch["x"].to(device, non_blocking=True)
            +     batch["y"] = batch["y"].to(device, non_blocking=True)
                  model(**batch)
            """,
        "an evaluation now and then, whose network is out of sight": """
              from torch.utils.data import DataLoader
              from mine import Images, model, report
              loader, others = DataLoader(Images(), pin_memory=True), DataLoader(Images(), pin_memory=True)
              for step, x in enumerate(loader):
                  model(x.cuda(non_blocking=True)).backward()
                  if step % 500 == 0:
                      for sample in others:
            -             report(sample.cuda())
            +             report(sample.cuda(non_blocking=True))
            """,
        "batches by next()": """
              from torch.utils.data import DataLoader
              from mine import Images, model
              loader = DataLoader(Images(), batch_size=32, pin_memory=True)
              batches = iter(loader)
              for step in range(1000):
                  x, y = next(batches)
            -     model(x.cuda(), y.cuda())
            +     model(x.cuda(non_blocking=True), y.cuda(non_blocking=True))
            """,
        "the dictionary pins where there is a GPU": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              use_cuda = torch.cuda.is_available()
              device = torch.device("cuda" if use_cuda else "cpu")
              kwargs = {"num_workers": 1, "pin_memory": True} if use_cuda else {}
              for x, y in DataLoader(Images(), **kwargs):
            -     x, y = x.to(device), y.to(device)
            +     x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
                  model(x, y)
            """,
        "with a dtype": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              for x, y in DataLoader(Images(), pin_memory=True):
            -     x = x.to("cuda", torch.float32)
            -     y = y.to(device="cuda", dtype=torch.long)
            +     x = x.to("cuda", torch.float32, non_blocking=True)
            +     y = y.to(device="cuda", dtype=torch.long, non_blocking=True)
                  model(x, y)
            """,
        "one of the devices is Apple's": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              if torch.cuda.is_available():
                  device = torch.device("cuda")
              elif torch.backends.mps.is_available():
                  device = torch.device("mps")
              else:
                  device = torch.device("cpu")
              for x in DataLoader(Images(), pin_memory=True):
            -     model(x.to(device))
            +     model(x.to(device, non_blocking=device.type == "cuda"))
            """,
        "whichever accelerator there is may be Apple's": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              device = torch.accelerator.current_accelerator()
              for x in DataLoader(Images(), pin_memory=True):
            -     model(x.to(device))
            +     model(x.to(device, non_blocking=device.type == "cuda"))
            """,
        "a device out of sight, as a word or not": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model, parser
              args = parser.parse_args()
              for x in DataLoader(Images(), pin_memory=True):
            -     model(x.to(args.device))
            +     model(x.to(args.device, non_blocking=torch.cuda.is_available()))
            """,
        "a collate function that gives tensors": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              def collate(items):
                  images = torch.stack([x for x, y in items])
                  return images, torch.tensor([y for x, y in items])
              for x, y in DataLoader(Images(), collate_fn=collate, pin_memory=True):
            -     model(x.cuda(), y.cuda())
            +     model(x.cuda(non_blocking=True), y.cuda(non_blocking=True))
            """,
        "the file's own training loop beside a framework": """
              import ignite
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              for x in DataLoader(Images(), pin_memory=True):
            !     model(x.cuda())
            """,
    }
    valid = {
        "it is there, by word and by place": """
            import torch
            from torch.utils.data import DataLoader
            from mine import Images, args, model
            for x, y, z in DataLoader(Images(), pin_memory=True):
                model(x.cuda(0, True), y.to("cuda", torch.float32, True))
                model(z.cuda(non_blocking=args.fast))
            """,
        "the loader does not pin, and somebody decided that": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            for x in DataLoader(Images(), pin_memory=False):
                model(x.cuda())
            """,
        "the loader is out of sight": """
            from mine import train_loader, model
            from torch.utils.data import DataLoader
            def train(loader: DataLoader):
                for x, y in loader:
                    model(x.cuda(), y.cuda())
            train(train_loader)
            """,
        "the network, not a batch": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            for x in DataLoader(Images(), pin_memory=True):
                model.to("cuda")
                model(x.cuda(non_blocking=True))
            """,
        "to the host, and to another type": """
            import torch
            from torch.utils.data import DataLoader
            from mine import Images, model, other
            model.cuda()
            for x, y in DataLoader(Images(), pin_memory=True):
                print(y.to("cpu"), y.cpu(), y.to(torch.device("cpu")))
                model(x.to(torch.float32).cuda(non_blocking=True), x.to(dtype=torch.half))
            """,
        "the device of another tensor is out of sight": """
            import torch
            from torch.utils.data import DataLoader
            from mine import Images, model
            model.cuda()
            weight = torch.ones(3)
            for x in DataLoader(Images(), pin_memory=True):
                model(x.to(weight))
            """,
        "the script runs on Apple's devices alone": """
            import torch
            from torch.utils.data import DataLoader
            from mine import Images, model
            device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
            for x in DataLoader(Images(), pin_memory=True):
                model(x.to(device))
            """,
        "the script runs on the CPU": """
            import torch
            from torch.utils.data import DataLoader
            from mine import Images, model
            device = torch.device("cpu")
            for x in DataLoader(Images(), pin_memory=True):
                model(x.to(device))
            """,
        "the batch is on the device already": """
            import torch
            from torch.utils.data import DataLoader, TensorDataset
            from mine import model
            x = torch.ones(100, 3).cuda()
            for (part,) in DataLoader(TensorDataset(x)):
                model(part.cuda())
            """,
        "a batch of a class of its own, whose `to` knows the device alone": """
            import torch
            from torch.utils.data import DataLoader
            from mine import Images, model
            class Batch:
                def __init__(self, items):
                    self.x = torch.stack(items)
                def pin_memory(self):
                    return self
                def to(self, device):
                    self.x = self.x.to(device)
                    return self
            for batch in DataLoader(Images(), collate_fn=Batch, pin_memory=True):
                model(batch.to("cuda").x)
            """,
        "the whole of what a collate function out of sight gives may be of any class": """
            from torch.utils.data import DataLoader
            from mine import Images, collate, model
            for samples in DataLoader(Images(), collate_fn=collate, pin_memory=True):
                model(samples.to("cuda"))
            """,
        "a collate function gives an object of the file's own class": """
            import torch
            from torch.utils.data import DataLoader
            from mine import Images, model
            class Padded:
                def __init__(self, items):
                    self.x = torch.stack(items)
                def to(self, device):
                    return self.x.to(device)
            def collate(items):
                return Padded(items), len(items)
            for padded, n in DataLoader(Images(), collate_fn=collate, pin_memory=True):
                model(padded.to("cuda"))
            """,
        "the encoding of a tokenizer as a whole: older versions know no `non_blocking`": """
            import torch
            from torch.utils.data import DataLoader
            from transformers import AutoTokenizer, DataCollatorWithPadding
            from mine import Texts, model
            collate = DataCollatorWithPadding(AutoTokenizer.from_pretrained("tiny"))
            for batch in DataLoader(Texts(), collate_fn=collate, pin_memory=True):
                model(**batch.to("cuda"))
            """,
        "a mask or a conversion makes a new tensor, which is not pinned": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            for x, y in DataLoader(Images(), pin_memory=True):
                model(x.float().cuda(), y[x > 0].cuda())
            """,
        "the host writes into the batch while it would be copied": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            for x in DataLoader(Images(), pin_memory=True):
                clean = x.cuda()
                x[:, 0] = 0
                model(clean, x.cuda(non_blocking=True))
            """,
        "now and then": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            for i, x in enumerate(DataLoader(Images(), pin_memory=True)):
                loss = model(x.cuda(non_blocking=True))
                loss.backward()
                if i % 100 == 0:
                    print(model(x.cuda()))
            """,
        "one batch, to look at": """
            from torch.utils.data import DataLoader
            from mine import Images, model
            x, y = next(iter(DataLoader(Images(), pin_memory=True)))
            model(x.cuda())
            """,
        "loaders prepared by Accelerate give batches on the device": """
            from accelerate import Accelerator
            from torch.utils.data import DataLoader
            from mine import Images, model
            accelerator = Accelerator()
            loader = accelerator.prepare(DataLoader(Images(), pin_memory=True))
            for x in loader:
                model(x.to(accelerator.device))
            """,
        "keywords that are out of sight may hold it": """
            from torch.utils.data import DataLoader
            from mine import Images, how, model
            for x in DataLoader(Images(), pin_memory=True):
                model(x.to("cuda", **how))
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every line with moves of a batch that the host waits for."""
        if available(script) is None or script.framework in _MOVERS:
            return
        lines: dict[int, list[_Wait]] = {}
        due: set[int] | None = None
        for call in script.method_calls("to", "cuda"):
            move = script.moves.move(call)
            if move is None or _is_decided(script, call):
                continue
            parts = script.parts.of(move.moved)
            if not parts or any(_is_rare(script, part, call) for part in parts):
                continue
            holds = {held(script, part, move.moved) for part in parts}
            if Held.OTHER in holds:
                continue
            if due is None:
                due = {id(site.node) for site in unpinned(script)}
            pinned = any(may_pin(script.call(part.loader)) for part in parts)
            if not pinned and not any(id(part.loader) in due for part in parts):
                continue
            if not is_written_after(script, move):
                wait = _Wait(move, _value(script, move), pinned, Held.UNSHOWN not in holds)
                lines.setdefault(id(script.smallest_statement(call)), []).append(wait)
        for waits in lines.values():
            yield self._finding(script, waits)

    def _finding(self, script: Script, waits: list[_Wait]) -> Finding:
        names = [f"`{script.code(wait.move.moved)}`" for wait in waits]
        value = next((wait.value for wait in waits if wait.value), "True")
        message = (
            f"the host waits here until {_listed(names)} {'are' if names[1:] else 'is'} on the "
            f"device; with non_blocking={value} it goes on meanwhile"
        )
        if not all(wait.pinned for wait in waits):
            message += ", once the loader pins its batches"
        span = script.span(waits[0].move.call)
        return Finding(self.code, span, message, _fix(script, waits))


class _Wait(Record):
    """A move that the host waits for, and the value of `non_blocking` that ends it."""

    move: Move
    value: str | None
    pinned: bool
    is_tensor: bool
    """Whether the file shows that what moves is a tensor."""


def _listed(names: list[str]) -> str:
    """Write names as a sentence does: `a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _is_decided(script: Script, call: cst.Call) -> bool:
    """Whether a call says, or may say, whether it blocks."""
    site = script.call(call)
    assert isinstance(call.func, cst.Attribute)
    given = site.given("non_blocking", _POSITION[call.func.attr.value])
    return site.has_splat or given is not None


def _is_rare(script: Script, part: Part, call: cst.Call) -> bool:
    """Whether a part is taken from its loader, or moved, but now and then."""
    place = part.place
    if isinstance(place, cst.Call) and not any(True for _ in script.loops_around(place)):
        return True
    if isinstance(place, cst.For) and any(loop.node is place for loop in script.loops_around(call)):
        return script.heat(call, within=place) is Heat.COLD
    return script.heat(call) is Heat.COLD


def _value(script: Script, move: Move) -> str | None:
    """Give the value to pass: true, but for a device that may be Apple's."""
    if script.moves.is_never_mps(move):
        return "True"
    device = move.device
    if isinstance(device, (cst.Name, cst.Attribute)) and script.moves.has_type(device):
        return f'{script.code(device)}.type == "cuda"'
    imported = script.rewrite.importing("torch")
    return f"{imported[0]}.cuda.is_available()" if imported is not None else None


def _fix(script: Script, waits: list[_Wait]) -> Fix | None:
    values = {wait.value for wait in waits}
    imported = script.rewrite.importing("torch")
    if None in values or imported is None or script.framework != "none":
        return None
    given = {wait.move.call: f"non_blocking={wait.value}" for wait in waits}
    edits = one_a_line(script, given) or tuple(
        edit
        for wait in waits
        for edit in script.rewrite.with_keyword(wait.move.call, "non_blocking", str(wait.value))
    )
    needed = imported[1] if any("is_available" in str(value) for value in values) else ()
    title = f"Pass non_blocking={waits[0].value}"
    if not all(wait.is_tensor for wait in waits):
        return Fix.unsafe(title, edits, needed, because=_OWN_CLASS)
    return Fix.exact(title, edits, needed)
