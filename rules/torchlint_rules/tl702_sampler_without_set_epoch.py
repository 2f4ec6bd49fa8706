"""TL702: a DistributedSampler that is never told which epoch it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, How, Loop, Role, Rule, Safety, Script, State

_SAMPLER: Final = "torch.utils.data.DistributedSampler"
_LOADER: Final = "torch.utils.data.DataLoader"
_BATCHES: Final = "torch.utils.data.BatchSampler"
_BECAUSE: Final = "from the second epoch on, samples come in another order"


class SamplerWithoutSetEpoch(Rule):
    """
    ## What it does
    Flags a shuffling `DistributedSampler` under a loader that is trained on for several epochs,
    where nothing in the file calls its `set_epoch()`.

    ## Why it is slow
    The sampler shuffles by seed plus epoch, and its epoch stays 0 until someone sets it. So every
    epoch has the same permutation and the same batches, and what was meant to be shuffled training
    needs more epochs to get as far. The time of a step stays as it is.

    ## When not to
    Samplers with `shuffle=False`, those of evaluations and those of loaders that are drawn from
    once need no epoch. Lightning and Accelerate set it themselves.

    ## Fix safety
    Unsafe: from the second epoch on, samples come in another order, which is what `shuffle` asked
    for. Where the sampler may be None or of another type, the call is made for a
    `DistributedSampler` only.
    """

    code = "TL702"
    name = "sampler-without-set-epoch"
    summary = "the sampler deals out one permutation again and again"
    impact = "medium"
    safety = Safety.UNSAFE
    articles = ("S1",)
    needs = ("DistributedSampler",)

    invalid = {
        "epochs and batches in one function": """
              import torch
              from torch.utils.data import DataLoader, DistributedSampler
              def main(data, model, optimizer, epochs):
            !     sampler = DistributedSampler(data)
                  loader = DataLoader(data, batch_size=8, sampler=sampler)
                  for epoch in range(epochs):
            +         sampler.set_epoch(epoch)
                      model.train()
                      for x in loader:
                          model(x).backward()
                          optimizer.step()
            """,
        "by its older name, made in the call of the loader": """
              import torch
              import torch.utils.data as td
              loader = td.DataLoader(
                  data,
            !     sampler=td.distributed.DistributedSampler(data, shuffle=True),
              )
              for epoch in range(3):
            +     loader.sampler.set_epoch(epoch)
                  for x in loader:
                      model(x).backward()
                      optimizer.step()
            """,
        "only a run in several processes has it, the batches are in another function": """
              import torch
              from torch.utils.data import DataLoader, DistributedSampler
              def train(model, loader, optimizer):
                  for x in loader:
                      model(x).backward()
                      optimizer.step()
              def main(args):
            !     sampler = DistributedSampler(data) if args.distributed else None
                  loader = DataLoader(data, 8, shuffle=sampler is None, sampler=sampler)
                  for epoch in range(args.start_epoch, args.epochs):
            +         if sampler is not None:
            +             sampler.set_epoch(epoch)
                      train(model, loader, optimizer)
            """,
        "one of several samplers, by branches": """
              import torch
              from torch.utils.data import DataLoader, DistributedSampler, RandomSampler
              if distributed:
            !     sampler = DistributedSampler(data)
              else:
                  sampler = RandomSampler(data)
              loader = DataLoader(data, 8, sampler=sampler)
              for epoch in range(3):
            +     if isinstance(sampler, DistributedSampler):
            +         sampler.set_epoch(epoch)
                  for x in loader:
                      model(x).backward()
                      optimizer.step()
            """,
        "made in a helper": """
              import torch
              from torch.utils.data import DataLoader
              from torch.utils.data.distributed import DistributedSampler
              def make_loader(data):
            !     sampler = DistributedSampler(data)
                  return DataLoader(data, 8, sampler=sampler)
              def main():
                  train_loader = make_loader(data)
                  for epoch in range(3):
            +         train_loader.sampler.set_epoch(epoch)
                      for x in train_loader:
                          model(x).backward()
                          optimizer.step()
            """,
        "epochs without a name": """
              import torch
              from torch.utils.data import DataLoader, DistributedSampler
            ! sampler = DistributedSampler(data)
              loader = DataLoader(data, 8, sampler=sampler)
            - for _ in range(3):
            + for epoch in range(3):
            +     sampler.set_epoch(epoch)
                  for x in loader:
                      model(x).backward()
                      optimizer.step()
            """,
        "in a sampler of batches": """
              import torch
              from torch.utils.data import BatchSampler, DataLoader, DistributedSampler
            ! sampler = DistributedSampler(data)
              loader = DataLoader(data, batch_sampler=BatchSampler(sampler, 8, drop_last=True))
              for epoch in range(3):
            +     sampler.set_epoch(epoch)
                  for x in loader:
                      model(x).backward()
                      optimizer.step()
            """,
        "the epoch of another sampler is set": """
              import torch
              from torch.utils.data import DataLoader, DistributedSampler
              labelled = DistributedSampler(data)
            ! unlabelled = DistributedSampler(more)
              loader = DataLoader(data, 8, sampler=labelled)
              second = DataLoader(more, 8, sampler=unlabelled)
              for epoch in range(3):
            +     unlabelled.set_epoch(epoch)
                  labelled.set_epoch(epoch)
                  for x in loader:
                      model(x).backward()
                      optimizer.step()
                  for x in second:
                      model(x).backward()
                      optimizer.step()
            """,
        "an attribute of the trainer": """
              import torch
              from torch.utils.data import DataLoader, DistributedSampler
              class Trainer:
                  def __init__(self, data):
            !         self.loader = DataLoader(data, 8, sampler=DistributedSampler(data))
                  def run(self, epoch):
                      for x in self.loader:
                          self.model(x).backward()
                          self.optimizer.step()
                  def fit(self, epochs):
                      for epoch in range(epochs):
            +             self.loader.sampler.set_epoch(epoch)
                          self.run(epoch)
            """,
        "epochs that nothing counts: reported, left alone": """
              import torch
              from torch.utils.data import DataLoader, DistributedSampler
            ! sampler = DistributedSampler(data)
              loader = DataLoader(data, 8, sampler=sampler)
              while step < 1000:
                  for x in loader:
                      model(x).backward()
                      optimizer.step()
                      step += 1
            """,
        "an endless stream of batches: reported, left alone": """
              import torch
              from torch.utils.data import DataLoader, DistributedSampler
              def endless(loader):
                  while True:
                      for batch in loader:
                          yield batch
            ! loader = DataLoader(data, 8, sampler=DistributedSampler(data))
              batches = endless(loader)
              for step in range(1000):
                  model(next(batches)).backward()
                  optimizer.step()
            """,
    }
    valid = {
        "it is told": """
            import torch
            from torch.utils.data import DataLoader, DistributedSampler
            sampler = DistributedSampler(data)
            loader = DataLoader(data, 8, sampler=sampler)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for x in loader:
                    model(x).backward()
                    optimizer.step()
            """,
        "it is told through the loader": """
            import torch
            from torch.utils.data import DataLoader, DistributedSampler
            loader = DataLoader(data, 8, sampler=DistributedSampler(data))
            for epoch in range(3):
                loader.sampler.set_epoch(epoch)
                for x in loader:
                    model(x).backward()
                    optimizer.step()
            """,
        "it is told where nobody can say which sampler is meant": """
            import torch
            from torch.utils.data import DataLoader, DistributedSampler
            loader = DataLoader(data, 8, sampler=DistributedSampler(data))
            for epoch in range(3):
                for each in find_samplers(loader):
                    each.set_epoch(epoch)
                for x in loader:
                    model(x).backward()
                    optimizer.step()
            """,
        "it does not shuffle, or somebody else decides whether it does": """
            import torch
            from torch.utils.data import DataLoader, DistributedSampler
            def run(args, **options):
                loaders = [
                    DataLoader(data, 8, sampler=DistributedSampler(data, shuffle=False)),
                    DataLoader(data, 8, sampler=DistributedSampler(data, None, None, False)),
                    DataLoader(data, 8, sampler=DistributedSampler(data, shuffle=args.shuffle)),
                    DataLoader(data, 8, sampler=DistributedSampler(data, **options)),
                ]
                for epoch in range(3):
                    for loader in loaders:
                        for x in loader:
                            model(x).backward()
                            optimizer.step()
            """,
        "an evaluation needs no new order": """
            import torch
            from torch.utils.data import DataLoader, DistributedSampler
            val_loader = DataLoader(data, 8, sampler=DistributedSampler(data))
            for epoch in range(3):
                for x in train_loader:
                    model(x).backward()
                    optimizer.step()
                with torch.no_grad():
                    for x in val_loader:
                        model(x)
            """,
        "drawn from once": """
            import torch
            from torch.utils.data import DataLoader, DistributedSampler
            loader = DataLoader(data, 8, sampler=DistributedSampler(data))
            for x in loader:
                model(x).backward()
                optimizer.step()
            """,
        "made anew in each epoch, by a seed of its own": """
            import torch
            from torch.utils.data import DataLoader, DistributedSampler
            for epoch in range(3):
                loader = DataLoader(data, 8, sampler=DistributedSampler(data, seed=epoch))
                for x in loader:
                    model(x).backward()
                    optimizer.step()
            """,
        "handed to code out of sight, which may tell it": """
            import torch
            from torch.utils.data import DataLoader, DistributedSampler
            from engine import train_one_epoch
            loader = DataLoader(data, 8, sampler=DistributedSampler(data))
            for epoch in range(3):
                train_one_epoch(model, loader, epoch)
            """,
        "a framework tells it": """
            import torch
            from accelerate import Accelerator
            from torch.utils.data import DataLoader, DistributedSampler
            loader = DataLoader(data, 8, sampler=DistributedSampler(data))
            for epoch in range(3):
                for x in loader:
                    model(x).backward()
                    optimizer.step()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every shuffling sampler whose loader is trained on again and again."""
        if script.framework != "none":
            return
        for site in script.calls(_SAMPLER):
            shuffles = site.argument("shuffle", 3)
            if shuffles.state is not State.ABSENT and not shuffles.equals(True):
                continue
            if site.has_splat or _is_told(script, site.node):
                continue
            batches = _repeated(script, site.node)
            if batches is None:
                continue
            edits = _edits(script, site.node, batches)
            fix = Fix.unsafe("Set its epoch", edits, because=_BECAUSE) if edits else None
            yield Finding(self.code, script.span(site.node), _message(script, site.node), fix)


def _message(script: Script, sampler: cst.Call) -> str:
    name = _assigned(script, sampler)
    called = f"`{name}`" if name else "this sampler"
    owner = name or "loader.sampler"
    return (
        f"{called} deals out the same permutation in every epoch: call "
        f"`{owner}.set_epoch(epoch)` at the beginning of each"
    )


def _assigned(script: Script, sampler: cst.Call) -> str:
    """Give the name that a sampler gets where it is made."""
    for outer in script.tree.ancestors(sampler):
        if isinstance(outer, cst.Assign):
            target = outer.targets[0].target
            held = outer.value
            direct = held is sampler or isinstance(held, cst.IfExp)
            return script.code(target) if direct and isinstance(target, cst.Name) else ""
        if not isinstance(outer, cst.IfExp):
            return ""
    return ""


def _is_told(script: Script, sampler: cst.Call) -> bool:
    """Whether a call of `set_epoch` in the file is, or may be, for a sampler."""
    for call in script.method_calls("set_epoch"):
        assert isinstance(call.func, cst.Attribute)
        told = _samplers(script, call.func.value)
        if told is None or sampler in told:
            return True
    return False


def _samplers(script: Script, node: cst.BaseExpression) -> list[cst.Call] | None:
    """Give the distributed samplers that an expression can be, None where it may be another."""
    if isinstance(node, cst.Attribute) and node.attr.value in ("sampler", "batch_sampler"):
        loaders = script.loaders.made_by(node.value)
        return [made for loader in loaders for made in _under(script, loader)] or None
    origin = script.origins.of(node)
    found = [
        value
        for value in origin.values
        if isinstance(value, cst.Call) and script.name(value.func) == _SAMPLER
    ]
    return found if found and origin.complete else None


def _under(script: Script, loader: cst.Call) -> list[cst.Call]:
    """Give the distributed samplers that a loader can draw its indices from."""
    site = script.call(loader)
    given = [site.given("sampler", 3), site.given("batch_sampler", 4)]
    found: list[cst.Call] = []
    for arg in given:
        for value in script.origins.of(arg.value).values if arg is not None else ():
            if not isinstance(value, cst.Call):
                continue
            if script.name(value.func) == _BATCHES:
                inner = script.call(value).given("sampler", 0)
                found += (_samplers(script, inner.value) or []) if inner is not None else []
            elif script.name(value.func) == _SAMPLER:
                found.append(value)
    return found


def _repeated(script: Script, sampler: cst.Call) -> tuple[cst.Call, cst.For | None] | None:
    """Give a loader over a sampler that is trained on again and again, and the loop over it.

    The loop is None where a generator of the file passes the batches on.
    """
    loops = {id(loop.node): loop for loop in script.loops(Role.TRAIN_BATCH)}
    for site in script.calls(_LOADER):
        if sampler not in _under(script, site.node):
            continue
        for place in script.loaders.repeated(site.node):
            if isinstance(place, cst.For) and id(place) in loops:
                return site.node, place
        if any(_streams(script, place) for place in script.loaders.passes(site.node)) and loops:
            return site.node, None
    return None


def _streams(script: Script, place: cst.CSTNode) -> bool:
    """Whether a pass stands in a generator that begins a new one when it is over."""
    around = next(script.loops_around(place), None)
    function = script.function(place)
    return (
        isinstance(place, cst.For)
        and around is not None
        and isinstance(around.node, cst.While)
        and script.code(around.node.test) in ("True", "1")
        and function is not None
        and script.functions.is_generator(function)
    )


def _edits(
    script: Script, sampler: cst.Call, batches: tuple[cst.Call, cst.For | None]
) -> Edits | None:
    """Tell the sampler at the head of the epoch loop; None where that cannot be written."""
    loader, node = batches
    loop = next((each for each in script.loops(Role.TRAIN_BATCH) if each.node is node), None)
    epochs = script.program.epoch_loop(loop) if loop is not None else None
    if loop is None or epochs is None or not isinstance(epochs.node, cst.For):
        return None
    counter = _counter(script, epochs.node)
    written = _spelled(script, sampler, loader, epochs)
    if counter is None or written is None:
        return None
    name, renamed = counter
    owner, test = written
    lines = [f"{owner}.set_epoch({name})"]
    if test:
        lines = [f"if {test}:", f"{script.rewrite.unit()}{lines[0]}"]
    first = script.rewrite.first_in(epochs.node.body, *lines)
    return (*renamed, *first) if first is not None else None


def _counter(script: Script, epochs: cst.For) -> tuple[str, Edits] | None:
    """Give the name that counts the epochs and what gives it one."""
    target = epochs.target
    if not isinstance(target, cst.Name) or not script.iteration.counts(epochs.iter):
        return None
    if target.value != "_":
        return target.value, ()
    used = {name.value for name in script.all(cst.Name)}
    if "epoch" in used or any(
        name.value == "_" and name is not target for name in script.within(epochs, cst.Name)
    ):
        return None
    return "epoch", script.rewrite.replace(target, "epoch")


def _spelled(
    script: Script, sampler: cst.Call, loader: cst.Call, epochs: Loop
) -> tuple[str, str] | None:
    """Give how the epoch loop names a sampler, and the test under which it is one."""
    own = _assigned(script, sampler)
    if own and _reaches(script, own, epochs, sampler):
        scope = script.scopes.scope(epochs.node)
        bindings = script.scopes.reaching_name(own, epochs.node, scope)
        values = [value for binding in bindings for value in _choices(binding.value)]
        return own, _test(script, own, values, sampler)
    drawn = _loader_name(script, loader, epochs)
    if drawn is None:
        return None
    arg = script.call(loader).given("sampler", 3)
    if arg is None:
        return None
    origin = script.origins.of(arg.value)
    owner = f"{drawn}.sampler"
    if origin.complete and list(origin.values) == [sampler]:
        return owner, ""
    if any(isinstance(v, cst.Name) and v.value == "None" for v in origin.values) or (
        len(origin.values) > 1
    ):
        named = script.code(sampler.func)
        return (owner, f"isinstance({owner}, {named})") if _is_global(script, sampler) else None
    return None


def _choices(value: cst.BaseExpression | None) -> list[cst.BaseExpression | None]:
    if isinstance(value, cst.IfExp):
        return [*_choices(value.body), *_choices(value.orelse)]
    return [value]


def _test(
    script: Script, name: str, values: list[cst.BaseExpression | None], sampler: cst.Call
) -> str:
    """Say when one of several values of a name is the sampler, "" where it always is."""
    others = [value for value in values if value is not sampler]
    if not others:
        return ""
    if all(isinstance(value, cst.Name) and value.value == "None" for value in others):
        return f"{name} is not None"
    return f"isinstance({name}, {script.code(sampler.func)})"


def _is_global(script: Script, sampler: cst.Call) -> bool:
    """Whether the class of a sampler has the same name everywhere in the file."""
    root = sampler.func
    while isinstance(root, cst.Attribute):
        root = root.value
    return isinstance(root, cst.Name) and all(
        binding.how is How.IMPORT and binding in script.scopes.module.bindings.get(root.value, ())
        for binding in script.scopes.reaching(root)
    )


def _reaches(script: Script, name: str, epochs: Loop, sampler: cst.Call) -> bool:
    """Whether a name means the sampler where the epochs begin."""
    scope = script.scopes.scope(epochs.node)
    if script.function(sampler) not in (None, script.function(epochs.node)):
        return False
    bindings = script.scopes.reaching_name(name, epochs.node, scope)
    return any(script.tree.inside(sampler, binding.node) for binding in bindings)


def _loader_name(script: Script, loader: cst.Call, epochs: Loop) -> str | None:
    """Give what the epoch loop, or a call in it, names the loader."""
    body = epochs.node.body
    kinds: tuple[type[cst.Name] | type[cst.Attribute], ...] = (cst.Name, cst.Attribute)
    seen = [node for kind in kinds for node in script.within(body, kind)]
    for node in seen:
        if script.function(node) is script.function(epochs.node):
            if script.loaders.made_by(node) == [loader]:
                return script.code(node)
    for assign in script.all(cst.Assign):
        target = assign.targets[0].target
        code = script.code(target)
        if assign.value is loader and code.startswith("self."):
            owner = script.scopes.class_of(assign)
            return code if script.scopes.class_of(epochs.node) is owner else None
    return None
