"""TL901: a checkpoint that pickles the network, its class and all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Final

import libcst as cst

from torchlint.api import Binding, CallSite, Edits, Finding, Fix, How, Kind, Rule, Safety, Script

_FILE: Final = ("f", 1)


class PickledModule(Rule):
    """
    ## What it does
    Flags `torch.save(model, …)`, which pickles the whole network, also as a part of a dictionary or
    a list.

    ## Why it is slow
    It is fragile more than slow: the file names the network's class by module and file, so moving
    or renaming anything makes it unreadable, and since torch 2.6 `torch.load` refuses it unless
    told to trust the file. Wrappers (`DataParallel`, hooks, compiled code) are pickled with it. A
    state dict holds the tensors alone.

    ## When not to
    Where the file goes to somebody who has no code to build the network, export it instead
    (`torch.export`). A file that lives as long as the process does no harm as it is.

    ## Fix safety
    Unsafe: the file has another content, and files that were written before can no longer be read.
    There is a fix only where the same file is loaded again in the script into a network that
    exists, for saving and loading have to change together.
    """

    code = "TL901"
    name = "pickled-module"
    summary = "the whole network is pickled"
    impact = "low"
    safety = Safety.UNSAFE
    articles = ("S2",)
    needs = ("save",)

    invalid = {
        "saved and loaded in one script": """
              import torch
              from mine import Net, evaluate, train
              model = Net().cuda()
              for epoch in range(10):
                  train(model)
            -     torch.save(model, "model.pt")
            +     torch.save(model.state_dict(), "model.pt")
            - model = torch.load("model.pt", weights_only=False)
            + model.load_state_dict(torch.load("model.pt", weights_only=True))
              print(evaluate(model))
            """,
        "through an open file": """
              import torch
              from mine import evaluate, train
              def main(args, model):
                  for epoch in range(10):
                      train(model)
                      with open(args.save, "wb") as f:
            -             torch.save(model, f)
            +             torch.save(model.state_dict(), f)
                  with open(args.save, "rb") as f:
            -         model = torch.load(f, map_location="cpu")
            +         model.load_state_dict(torch.load(f, map_location="cpu"))
                  print(evaluate(model))
            """,
        "at two places, loaded once": """
              import torch as th
              from mine import Net, train
              def main(path):
                  net = Net()
                  for epoch in range(10):
            -         th.save(net, path)
            +         th.save(net.state_dict(), path)
                      train(net)
            -     th.save(net, path)
            +     th.save(net.state_dict(), path)
            -     net = th.load(path)
            +     net.load_state_dict(th.load(path))
                  return net
            """,
        "loaded elsewhere, so no fix": """
              import torch
              def checkpoint(epoch, model):
                  path = f"model_{epoch}.pth"
            !     torch.save(model, path)
            """,
        "a network saves itself": """
              from torch import nn, save
              class Net(nn.Module):
                  def keep(self, path):
            !         save(self, path)
            """,
        "without its wrapper": """
              import torch
              from torch import nn
              from mine import Net
              model = nn.DataParallel(Net())
            ! torch.save(model.module, "model.pt")
            """,
        "in a dictionary": """
              import torch
              from mine import Net, epoch
              model = Net()
              state = {"net": model, "epoch": epoch}
            ! torch.save(state, "model.pt")
            """,
        "in a dictionary, a copy or what is in its wrapper": """
              import copy
              import torch
              def save(model, epoch, parallel):
                  whole = {"epoch": epoch, "model": copy.deepcopy(model).half()}
            !     torch.save(whole, "model.pt")
            !     torch.save({"net": model.module if parallel else model}, "net.pt")
            """,
        "in a list": """
              import torch
              from mine import criterion
              def model_save(model, optimizer, path):
                  with open(path, "wb") as f:
            !         torch.save([model, criterion, optimizer], f)
            """,
        "loaded into a name that had no network before, so no fix": """
              import torch
              from mine import Net
              def save(model):
            !     torch.save(model, "model.pt")
              def load():
                  model = torch.load("model.pt")
                  return model
            """,
        "other files are loaded too, so no fix": """
              import torch
              from mine import args
              def main(model):
                  if args.resume:
                      model = torch.load(args.resume)
            !     torch.save(model, "model.pt")
                  model = torch.load("model.pt")
            """,
    }
    valid = {
        "a state dict": """
            import torch
            from mine import Net
            model = Net()
            torch.save(model.state_dict(), "model.pt")
            """,
        "a dictionary of states": """
            import torch
            def save(model, optimizer):
                state = {"net": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, "model.pt")
            """,
        "tensors": """
            import torch
            embedding = torch.zeros(3, 4)
            torch.save(embedding, "embedding.pt")
            torch.save({"x": embedding}, "x.pt")
            """,
        "a checkpoint under the name of a network": """
            import sys
            import torch
            model = torch.load(sys.argv[1], map_location="cpu")
            model["model"] = converted(model["model"])
            torch.save(model, sys.argv[2])
            """,
        "a dictionary of the name": """
            import torch
            def save(net):
                model = {"state": net.state_dict()}
                torch.save(model, "model.pt")
            """,
        "a scripted network saves itself, without its class": """
            import torch
            from mine import Net
            model = torch.jit.script(Net())
            model.save("model.pt")
            torch.jit.save(model, "model.pt")
            """,
        "what an imported name is, nobody knows": """
            import torch
            from mine import model
            torch.save(model, "model.pt")
            """,
        "another function of the name": """
            import torch
            from mine import save
            def keep(model):
                save(model, "model.pt")
            """,
        "a test that a network can be pickled": """
            import torch
            def test_pickle(model, tmp_path):
                torch.save(model, tmp_path / "model.pt")
            """,
        "into memory, to copy it": """
            import io
            import torch
            def copied(model):
                buffer = io.BytesIO()
                torch.save(model, buffer)
                buffer.seek(0)
                return torch.load(buffer, weights_only=False)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every network that is handed to `torch.save`."""
        saves = [
            (site, network)
            for site in script.calls("torch.save")
            if (network := _network(script, site)) is not None
            and not _in_memory(script, site)
            and not _tests(script, site)
        ]
        loads = list(script.calls("torch.load")) if saves else []
        for site, network in saves:
            name = script.code(network)
            message = (
                f"this file pickles `{name}` with its class: only this very code can load it, and "
                f"torch.load refuses it by default since 2.6; save its `state_dict()`"
            )
            together = [one for one, other in saves if script.code(other) == name]
            fix = _fix(script, name, together, loads) if len(together) == len(saves) else None
            yield Finding(self.code, script.span(site.node), message, fix)


def _network(script: Script, site: CallSite) -> cst.BaseExpression | None:
    """Give the network that a call pickles, None where it pickles none."""
    given = site.given("obj", 0)
    if given is None:
        return None
    if script.kind(given.value) is Kind.MODULE:
        return given.value
    value = script.value_of(given.value).node
    parts = value.elements if isinstance(value, (cst.Dict, cst.List, cst.Tuple)) else ()
    for part in parts:
        if script.kind(part.value) is Kind.MODULE:
            return part.value
    return None


def _in_memory(script: Script, site: CallSite) -> bool:
    """Whether a call writes to a buffer in memory."""
    given = site.given(*_FILE)
    value = script.value_of(given.value).node if given is not None else None
    return isinstance(value, cst.Call) and script.name(value.func) in ("io.BytesIO",)


def _tests(script: Script, site: CallSite) -> bool:
    """Whether a test asks if a network can be pickled."""
    function = script.function(site.node)
    return function is not None and function.name.value.startswith("test_")


def _place(script: Script, site: CallSite) -> str:
    """Give the path that a call writes to or reads from, as the file spells it."""
    given = site.given(*_FILE) if site.name == "torch.save" else site.given("f", 0)
    if given is None:
        return ""
    if isinstance(given.value, cst.Name):
        for binding in script.scopes.reaching(given.value):
            opened = binding.value
            if binding.how is How.WITH and isinstance(opened, cst.Call) and opened.args:
                return script.code_of(opened.args[0].value)
    return script.code_of(given.value)


# -- the fix ------------------------------------------------------------------


def _fix(
    script: Script, name: str, saves: Sequence[CallSite], loads: Sequence[CallSite]
) -> Fix | None:
    """Give the fix of all places that write and read a file; None where they do not fit."""
    places = {_place(script, site) for site in (*saves, *loads)}
    if not loads or len(places) != 1 or "" in places:
        return None
    edits: Edits = ()
    saved: set[Binding] = set()
    for site in saves:
        given = site.given("obj", 0)
        if given is None or not isinstance(given.value, cst.Name):
            return None
        saved.update(script.scopes.reaching(given.value))
        edits = (*edits, *script.rewrite.insert(script.span(given.value).end, ".state_dict()"))
    for site in loads:
        read = _loaded(script, site, name, saved)
        if read is None:
            return None
        edits = (*edits, *read)
    title = "Save and load the state dict"
    return Fix.unsafe(
        title, edits, because="files that were written before cannot be read any more"
    )


def _loaded(script: Script, site: CallSite, name: str, saved: Set[Binding]) -> Edits | None:
    """Give the edits that load a state dict into a network of some name that is there already."""
    line = script.parent(site.node)
    if not isinstance(line, cst.Assign) or len(line.targets) != 1:
        return None
    target = line.targets[0].target
    if not isinstance(target, cst.Name) or target.value != name:
        return None
    before = script.scopes.reaching_name(name, line, script.scopes.scope(target))
    there = {binding for binding in before if binding.node is not line}
    if not there or not there <= saved:
        return None
    edits: Edits = script.rewrite.delete(script.span(target).start, script.span(site.node).start)
    edits = (
        *edits,
        *script.rewrite.insert(script.span(site.node).start, f"{name}.load_state_dict("),
    )
    trusted = site.given("weights_only")
    if trusted is not None and site.argument("weights_only").equals(False):
        edits = (*edits, *script.rewrite.replace(trusted.value, "True"))
    return (*edits, *script.rewrite.insert(script.span(site.node).end, ")"))
