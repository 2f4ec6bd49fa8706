"""TL704: gradients that are averaged over processes in passes that do not step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Grad, Record, Rule, Safety, Script, Window, Wrapped

_MANAGED: Final = frozenset(
    "no_sync require_backward_grad_sync set_requires_gradient_sync has_no_sync".split()
)
_READING: Final = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "unscale_")
_TITLE: Final = "Average the gradients in the last pass of each window only"
_BECAUSE: Final = "gradients are averaged once, after they were summed up, and round otherwise"
_WORDS: Final = ("sync", "sync_now", "sync_gradients")


class GradientSyncInAccumulation(Rule):
    """
    ## What it does
    Flags a `DistributedDataParallel` network that averages its gradients over the processes in
    every `backward()`, in a loop that accumulates them over several passes before it steps.

    ## Why it is slow
    Each `backward()` sends every gradient through the network between the GPUs, though only their
    sum is used, once per step. Under `model.no_sync()` the passes between add up on their own, and
    the last one sends the sum. With four passes a step, two processes on a CPU trained 1.47 times
    as fast.

    ## When not to
    Where something reads or clips the gradients in each pass, they have to be averaged in each
    pass: such a loop is reported without a fix. A network sharded by FSDP is left alone, since it
    has to keep whole gradients in memory while it does not synchronise.

    ## Fix safety
    Close. The average of sums differs from the sum of averages by rounding, 1.5e-8 as measured.
    The forward pass has to stand inside `no_sync()`, too. Where the loop does not step in its last
    pass, that pass synchronises all the same, for a step behind the loop.
    """

    code = "TL704"
    name = "gradient-sync-in-accumulation"
    summary = "gradients are averaged over processes in passes that do not step"
    impact = "high"
    safety = Safety.CLOSE
    articles = ("S3.9",)
    needs = ("DistributedDataParallel", "DDP")

    invalid = {
        "every fourth pass steps": """
            + import contextlib
              import torch
              from torch.nn.parallel import DistributedDataParallel
              def train(loader, criterion, k):
                  model = DistributedDataParallel(torch.nn.Linear(4, 4))
                  optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                  for i, (x, y) in enumerate(loader):
            -         loss = criterion(model(x), y) / k
            -         loss.backward()
            +         sync = (i + 1) % k == 0
            +         with contextlib.nullcontext() if sync else model.no_sync():
            +             loss = criterion(model(x), y) / k
            +             loss.backward()
                      if (i + 1) % k == 0:
                          optimizer.step()
                          optimizer.zero_grad()
            """,
        "the last window may be smaller": """
            + import contextlib
              import torch
              from torch.nn.parallel import DistributedDataParallel as DDP
              model = DDP(torch.nn.Linear(4, 4))
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for i, (x, y) in enumerate(loader):
                  x = x.cuda()
            -     (criterion(model(x), y) / k).backward()
            +     sync = (i + 1) % k == 0 or i + 1 == len(loader)
            +     with contextlib.nullcontext() if sync else model.no_sync():
            +         (criterion(model(x), y) / k).backward()
                  if (i + 1) % k == 0 or i + 1 == len(loader):
                      optimizer.step()
                      optimizer.zero_grad()
            """,
        "a step behind the loop takes what is left": """
            + import contextlib
              import torch
              from torch.nn.parallel import DistributedDataParallel as DDP
              from torch.utils.data import DataLoader
              loader = DataLoader(data, batch_size=8)
              print(len(loader), "batches")
              model = DDP(net)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for i, (x, y) in enumerate(loader, 1):
            -     loss = criterion(model(x), y) / 8
            -     loss.backward()
            +     sync = i % 8 == 0 or i == len(loader)
            +     with contextlib.nullcontext() if sync else model.no_sync():
            +         loss = criterion(model(x), y) / 8
            +         loss.backward()
                  if i % 8 == 0:
                      optimizer.step()
                      optimizer.zero_grad()
              if i % 8:
                  optimizer.step()
            """,
        "autocast, a scaler, clipping in the last pass, an import of one's own": """
              from contextlib import nullcontext
              import torch
              from torch.nn.parallel import DistributedDataParallel as DDP
              class Trainer:
                  def __init__(self, net):
                      self.model = DDP(net)
                      self.optimizer = torch.optim.AdamW(self.model.parameters())
                      self.scaler = torch.amp.GradScaler("cuda")
                  def train(self, loader, accumulate):
                      for step, batch in enumerate(loader):
            -             with torch.autocast("cuda"):
            -                 loss = self.model(batch)
            -             self.scaler.scale(loss / accumulate).backward()
            +             sync = step % accumulate == accumulate - 1
            +             with nullcontext() if sync else self.model.no_sync():
            +                 with torch.autocast("cuda"):
            +                     loss = self.model(batch)
            +                 self.scaler.scale(loss / accumulate).backward()
                          if step % accumulate == accumulate - 1:
                              self.scaler.unscale_(self.optimizer)
                              torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                              self.scaler.step(self.optimizer)
                              self.scaler.update()
                              self.optimizer.zero_grad()
            """,
        "only a run in several processes wraps the network": """
            + import contextlib
              import torch
              def train(args, model, loader, optimizer):
                  for i, batch in enumerate(loader):
            -         loss = model(batch)
            -         loss.backward()
            +         sync = i % args.accum == 0 or not hasattr(model, "no_sync")
            +         with contextlib.nullcontext() if sync else model.no_sync():
            +             loss = model(batch)
            +             loss.backward()
                      if i % args.accum == 0:
                          optimizer.step()
                          optimizer.zero_grad()
              def main(args):
                  model = Net()
                  if args.distributed:
                      model = torch.nn.parallel.DistributedDataParallel(model)
                  train(args, model, make_loader(), torch.optim.SGD(model.parameters(), lr=1))
            """,
        "the name of the test is at hand": """
            + import contextlib
              import torch
              from torch.nn.parallel import DistributedDataParallel as DDP
              model = DDP(net)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for i, batch in enumerate(loader):
                  last = (i + 1) % 4 == 0
            -     model(batch).backward()
            +     with contextlib.nullcontext() if last else model.no_sync():
            +         model(batch).backward()
                  if last:
                      optimizer.step()
                      optimizer.zero_grad()
            """,
        "parts of one batch": """
            + import contextlib
              import torch
              from torch.nn.parallel import DistributedDataParallel as DDP
              model = DDP(net)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for step in range(1000):
                  for part in range(parts):
            -         loss = model(get_batch("train")) / parts
            -         loss.backward()
            +         sync = part + 1 == parts
            +         with contextlib.nullcontext() if sync else model.no_sync():
            +             loss = model(get_batch("train")) / parts
            +             loss.backward()
                  optimizer.step()
                  optimizer.zero_grad()
            """,
        "parts that nobody counted: reported, left alone": """
              import torch
              from torch.nn.parallel import DistributedDataParallel as DDP
              model = DDP(net)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for batch in loader:
                  for part in batch.split(8):
            !         model(part).backward()
                  optimizer.step()
                  optimizer.zero_grad()
            """,
        "clipped in every pass: reported, left alone": """
              import torch
              from torch.nn.parallel import DistributedDataParallel as DDP
              model = DDP(net)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for i, batch in enumerate(loader):
            !     model(batch).backward()
                  torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                  if i % 4 == 0:
                      optimizer.step()
                      optimizer.zero_grad()
            """,
        "the counter goes on in between: reported, left alone": """
              import torch
              from torch.nn.parallel import DistributedDataParallel as DDP
              model = DDP(net)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              step = 0
              for batch in loader:
            !     model(batch).backward()
                  step += 1
                  if step % 4 == 0:
                      optimizer.step()
                      optimizer.zero_grad()
            """,
        "a step behind a stream that has no length: reported, left alone": """
              import torch
              from torch.nn.parallel import DistributedDataParallel as DDP
              model = DDP(net)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for i, batch in enumerate(loader):
            !     model(batch).backward()
                  if (i + 1) % 4 == 0:
                      optimizer.step()
                      optimizer.zero_grad()
              optimizer.step()
            """,
        "two networks: reported, left alone": """
              import torch
              from torch.nn.parallel import DistributedDataParallel as DDP
              encoder, decoder = DDP(make_encoder()), DDP(make_decoder())
              optimizer = torch.optim.SGD(parameters(), lr=0.1)
              for i, batch in enumerate(loader):
            !     decoder(encoder(batch)).backward()
                  if i % 4 == 0:
                      optimizer.step()
                      optimizer.zero_grad()
            """,
        "a graph that is declared static: reported, left alone": """
              import torch
              from torch.nn.parallel import DistributedDataParallel as DDP
              model = DDP(net, static_graph=True)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for i, batch in enumerate(loader):
            !     model(batch).backward()
                  if i % 4 == 0:
                      optimizer.step()
                      optimizer.zero_grad()
            """,
        "a helper that goes backward and steps: reported, left alone": """
              import torch
              from utils import NativeScaler
              model = torch.nn.parallel.DistributedDataParallel(net)
              optimizer = torch.optim.AdamW(model.parameters())
              loss_scaler = NativeScaler()
              for i, (x, y) in enumerate(loader):
                  loss = criterion(model(x), y) / accum_steps
            !     loss_scaler(loss, optimizer, update_grad=(i + 1) % accum_steps == 0)
            """,
        "wrapped by a helper of the project, a window that is counted otherwise": """
            + import contextlib
              import torch
              from utils.torch_utils import smart_DDP
              optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
              model = net
              if distributed:
                  model = smart_DDP(net)
              for i, batch in enumerate(loader):
                  count = i + len(loader) * epoch
            -     model(batch).backward()
            +     sync = count - last >= accumulate or i + 1 == len(loader) or not hasattr(model, "no_sync")
            +     with contextlib.nullcontext() if sync else model.no_sync():
            +         model(batch).backward()
                  if count - last >= accumulate:
                      optimizer.step()
                      optimizer.zero_grad()
                      last = count
            """,
    }
    valid = {
        "it does not synchronise already": """
            import contextlib
            import torch
            model = torch.nn.parallel.DistributedDataParallel(net)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for i, batch in enumerate(loader):
                last = (i + 1) % 4 == 0
                with contextlib.nullcontext() if last else model.no_sync():
                    model(batch).backward()
                if last:
                    optimizer.step()
                    optimizer.zero_grad()
            """,
        "it is switched off by the attribute": """
            import torch
            model = torch.nn.parallel.DistributedDataParallel(net)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(1000):
                for part in range(parts):
                    model.require_backward_grad_sync = part == parts - 1
                    model(get_batch("train")).backward()
                optimizer.step()
                optimizer.zero_grad()
            """,
        "an attack on the inputs, whose gradients are thrown away": """
            import torch
            model = torch.nn.parallel.DistributedDataParallel(net)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                for _ in range(10):
                    criterion(model(x + delta), y).backward()
                    delta = attack(delta)
                optimizer.zero_grad()
                criterion(model(x + delta), y).backward()
                optimizer.step()
            """,
        "every pass steps": """
            import torch
            model = torch.nn.parallel.DistributedDataParallel(net)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for i, batch in enumerate(loader):
                optimizer.zero_grad()
                model(batch).backward()
                optimizer.step()
                if i % 10 == 0:
                    print(i)
            """,
        "the gradients of the pass before are thrown away": """
            import torch
            model = torch.nn.parallel.DistributedDataParallel(net)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for i, batch in enumerate(loader):
                optimizer.zero_grad()
                model(batch).backward()
                if i % 2 == 0:
                    optimizer.step()
            """,
        "the second network of a GAN goes backward under its guard": """
            import torch
            from torch.nn.parallel import DistributedDataParallel as DDP
            critic, generator = DDP(make_critic()), DDP(make_generator())
            optimizer_d = torch.optim.Adam(critic.parameters())
            optimizer_g = torch.optim.Adam(generator.parameters())
            for i, real in enumerate(loader):
                optimizer_d.zero_grad()
                critic(real).mean().backward()
                optimizer_d.step()
                if i % n_critic == 0:
                    optimizer_g.zero_grad()
                    generator(noise).mean().backward()
                    optimizer_g.step()
            """,
        "nothing is shared between processes here": """
            import torch
            model = torch.nn.Linear(4, 4)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for i, batch in enumerate(loader):
                model(batch).backward()
                if i % 4 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
            shared = torch.nn.parallel.DistributedDataParallel(model)
            """,
        "sharded, where whole gradients would have to be kept": """
            import torch
            from torch.distributed.fsdp import FullyShardedDataParallel
            from torch.nn.parallel import DistributedDataParallel
            model = FullyShardedDataParallel(net)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for i, batch in enumerate(loader):
                model(batch).backward()
                if i % 4 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
            """,
        "the network beside it is frozen in its wrap and only the plain one learns": """
            import torch
            head = torch.nn.Linear(4, 4)
            teacher = torch.nn.parallel.DistributedDataParallel(net)
            optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
            for i, batch in enumerate(loader):
                with torch.no_grad():
                    wanted = teacher(batch)
                criterion(head(batch), wanted).backward()
                if i % 4 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
            """,
        "a framework accumulates": """
            from accelerate import Accelerator
            from torch.nn.parallel import DistributedDataParallel
            model = DistributedDataParallel(net)
            for i, batch in enumerate(loader):
                model(batch).backward()
                if i % 4 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loop that accumulates gradients of a wrapped network."""
        if script.framework != "none" or not script.processes.has_wraps or _is_managed(script):
            return
        for window in script.windows():
            networks = _networks(script, window)
            if networks:
                call = window.backwards[-1]
                edits = _edits(script, window, networks)
                fix = Fix.close(_TITLE, edits, because=_BECAUSE) if edits else None
                yield Finding(self.code, script.span(call), _message(script, window, networks), fix)


def _message(script: Script, window: Window, networks: list[cst.BaseExpression]) -> str:
    network = script.code(networks[0])
    last = "the last part" if window.test is None else f"`{script.code(window.test)}`"
    when = "in" if window.test is None else "where"
    return (
        f"`{network}` averages its gradients over all processes in every pass, but only the sum of "
        f"several is stepped with: use `{network}.no_sync()` except {when} {last}"
    )


def _is_managed(script: Script) -> bool:
    """Whether the file says anywhere when gradients are averaged."""
    return any(node.attr.value in _MANAGED for node in script.all(cst.Attribute)) or any(
        text.value.strip("'\"") == "no_sync" for text in script.all(cst.SimpleString)
    )


def _networks(script: Script, window: Window) -> list[cst.BaseExpression]:
    """Give the wrapped networks that a window runs for their gradients, each once."""
    found: dict[str, cst.BaseExpression] = {}
    for node in script.processes.networks(window.loop.node.body):
        if script.grad(node) is not Grad.OFF and not _in_closing(script, window, node):
            found.setdefault(script.code(node), node)
    return list(found.values())


def _in_closing(script: Script, window: Window, node: cst.CSTNode) -> bool:
    return window.closing is not None and script.tree.inside(node, window.closing)


class _Region(Record):
    """The lines of a pass that go under `no_sync()`, and those up to the step."""

    lines: list[cst.BaseStatement]
    until_step: list[cst.BaseStatement]


def _edits(script: Script, window: Window, networks: list[cst.BaseExpression]) -> Edits | None:
    """Put forward and backward pass under a context; None where that is not sure to be right."""
    region = _region(script, window, networks[0])
    if region is None or len(networks) != 1 or _reads_gradients(script, window):
        return None
    network = networks[0]
    wraps = script.processes.made_by(network)
    if any(script.call(wrap).given("static_graph") for wrap in wraps):
        return None
    test = _test(script, window, region, network)
    context = _null_context(script)
    if test is None or context is None:
        return None
    (written, imports), (name, value) = context, test
    header = f"with {written}() if {name} else {script.code(network)}.no_sync():"
    indent = script.rewrite.indent_of(region.lines[0])
    if value:
        header = f"{name} = {value}{script.source.newline}{indent}{header}"
    return (*imports, *script.rewrite.wrap(region.lines, header))


def _null_context(script: Script) -> tuple[str, Edits] | None:
    direct = script.rewrite.importing("contextlib", "nullcontext")
    if direct is not None and not direct[1]:
        return direct
    module = script.rewrite.importing("contextlib")
    return (f"{module[0]}.nullcontext", module[1]) if module is not None else None


def _region(script: Script, window: Window, network: cst.BaseExpression) -> _Region | None:
    """Find the lines of a pass from the first run of the network to the last backward."""
    block = window.loop.node.body
    if not isinstance(block, cst.IndentedBlock):
        return None
    lines = list(block.body)
    first = next(at for at, line in enumerate(lines) if script.tree.inside(network, line))
    last = max(
        at
        for at, line in enumerate(lines)
        if any(script.tree.inside(call, line) for call in window.backwards)
    )
    step = len(lines)
    if window.closing is not None:
        if window.closing not in lines:
            return None
        step = lines.index(window.closing)
    chosen = lines[first : last + 1]
    if not first <= last < step or not all(script.rewrite.stands_alone(line) for line in chosen):
        return None
    return _Region(chosen, lines[first:step])


def _reads_gradients(script: Script, window: Window) -> bool:
    """Whether a pass looks at the gradients before the window is over."""
    body = window.loop.node.body
    for call in script.within(body, cst.Call):
        func = call.func
        last = func.attr if isinstance(func, cst.Attribute) else func
        if isinstance(last, cst.Name) and last.value in _READING:
            if not _in_closing(script, window, call):
                return True
    return any(
        node.attr.value == "grad" and not _in_closing(script, window, node)
        for node in script.within(body, cst.Attribute)
    )


def _test(
    script: Script, window: Window, region: _Region, network: cst.BaseExpression
) -> tuple[str, str] | None:
    """Say when a pass is the last of its window, with what is known before the forward pass.

    Gives the name that says it, and what the name is set to, "" where it has its value already.
    """
    if window.closing is None:
        test = _last_part(script, window) if window.test is None else None
    elif _changes(script, window.closing.test, region.until_step):
        test = None
    else:
        test = script.code(window.closing.test)
    tail = _tail(script, window)
    if test is None or tail is None:
        return None
    sure = script.processes.wrapped(network) is Wrapped.SURELY
    or_else = "" if sure else f' or not hasattr({script.code(network)}, "no_sync")'
    if test.isidentifier() and not tail and not or_else:
        return test, ""
    used = {name.value for name in script.all(cst.Name)}
    free = [word for word in _WORDS if word not in used]
    if not free or "\n" in test or (tail + or_else and _binds_loosely(window.test)):
        return None
    return free[0], f"{test}{tail}{or_else}"


def _binds_loosely(test: cst.BaseExpression | None) -> bool:
    """Whether `test or ...` would mean something else."""
    return isinstance(test, (cst.IfExp, cst.Lambda, cst.NamedExpr))


def _changes(script: Script, test: cst.BaseExpression, lines: list[cst.BaseStatement]) -> bool:
    """Whether some lines bind a name that a test reads, or call what may."""
    calls = script.within(test, cst.Call)
    if any(script.name(call.func) != "builtins.len" for call in calls):
        return True
    return any(
        script.tree.inside(binding.node, line)
        for name in script.within(test, cst.Name)
        for binding in script.scopes.reaching(name)
        for line in lines
    )


def _last_part(script: Script, window: Window) -> str | None:
    """Say in which pass over the parts of a batch the last one comes."""
    node = window.loop.node
    if not isinstance(node, cst.For) or not isinstance(node.target, cst.Name):
        return None
    drawn = node.iter
    if not isinstance(drawn, cst.Call) or script.name(drawn.func) != "builtins.range":
        return None
    if len(drawn.args) != 1 or drawn.args[0].star or drawn.args[0].keyword is not None:
        return None
    return f"{node.target.value} + 1 == {script.code(drawn.args[0].value)}"


def _tail(script: Script, window: Window) -> str | None:
    """Say how the last pass of the loop is told, "" where nobody needs it, None if it cannot be."""
    if window.closing is None or "len(" in script.code(window.closing.test):
        return ""
    said = script.last_pass(window.loop)
    if said is not None:
        return f" or {said}"
    steps_elsewhere = any(
        script.is_step(call) and not script.tree.inside(call, window.closing)
        for call in script.method_calls("step")
    )
    return None if steps_elsewhere else ""
