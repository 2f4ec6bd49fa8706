"""TL705: a search for unused parameters in every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Finding, Fix, Rule, Safety, Script

_DDP: Final = "torch.nn.parallel.DistributedDataParallel"
_KEYWORD: Final = "find_unused_parameters"
_STRATEGIES: Final = frozenset("DistributedDataParallelKwargs DDPStrategy".split())
_FRAMEWORKS: Final = ("accelerate", "lightning", "pytorch_lightning")
_NAMED: Final = "ddp_find_unused_parameters_true"
_BECAUSE: Final = "a parameter that gets no gradient in some pass makes training stop with an error"
_DEPTH: Final = 2


class FindUnusedParameters(Rule):
    """
    ## What it does
    Flags `DistributedDataParallel(..., find_unused_parameters=True)`, the same option of
    Accelerate and Lightning included.

    ## Why it is slow
    After every forward pass the whole graph is walked to see which parameters take no part in it.
    That cost 1.04 times the step as measured, more for networks of many small layers. PyTorch
    warns at run time when the search finds nothing.

    ## When not to
    Keep it if some parameters get no gradient in some passes: branches, layers that are dropped,
    heads that are trained in turn. A network in sight whose forward pass branches is left alone.
    So is `static_graph=True`, under which the search runs once.

    ## Fix safety
    Unsafe: without the search, a parameter that gets no gradient makes the next step raise an
    error. Options of Accelerate and Lightning are reported only.
    """

    code = "TL705"
    name = "find-unused-parameters"
    summary = "every step looks for parameters without a gradient"
    impact = "low"
    safety = Safety.UNSAFE
    articles = ("S1",)
    needs = ("find_unused_parameters",)
    default = False

    invalid = {
        "the usual call": """
              import torch
              from torch.nn.parallel import DistributedDataParallel as DDP
            - model = DDP(net, device_ids=[0], find_unused_parameters=True)
            + model = DDP(net, device_ids=[0])
            """,
        "one argument a line": """
              import torch
              model = torch.nn.parallel.DistributedDataParallel(
                  net,
            -     find_unused_parameters=True,
                  device_ids=[0],
              )
            """,
        "a network in sight that uses every layer in every pass": """
              import torch
              class Net(torch.nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.first = torch.nn.Linear(4, 4)
                  def forward(self, x):
                      return self.first(x)
              model = Net()
            - model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
            + model = torch.nn.parallel.DistributedDataParallel(model)
            """,
        "in a dictionary: reported, left alone": """
              import torch
              options = {"device_ids": [0], "find_unused_parameters": True}
            ! model = torch.nn.parallel.DistributedDataParallel(net, **options)
            """,
        "Accelerate's and Lightning's: reported, left alone": """
              import torch
              from accelerate import Accelerator, DistributedDataParallelKwargs
            ! options = DistributedDataParallelKwargs(find_unused_parameters=True)
              accelerator = Accelerator(kwargs_handlers=[options])
              import lightning as L
            ! first = L.pytorch.strategies.DDPStrategy(find_unused_parameters=True)
            ! second = L.Trainer(strategy="ddp_find_unused_parameters_true")
            """,
    }
    valid = {
        "off, or decided by somebody": """
            import torch
            from torch.nn.parallel import DistributedDataParallel as DDP
            def wrap(net, args, **options):
                first = DDP(net, find_unused_parameters=False)
                second = DDP(net, find_unused_parameters=args.find_unused)
                return first, second, DDP(net, **options)
            """,
        "a network in sight that leaves a layer out in some passes": """
            import torch
            class Net(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.first = torch.nn.Linear(4, 4)
                    self.second = torch.nn.Linear(4, 4)
                def forward(self, x):
                    return self.first(x) if x.sum() > 0 else self.second(x)
            model = torch.nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
            """,
        "under a static graph it is looked for once": """
            import torch
            from torch.nn.parallel import DistributedDataParallel as DDP
            model = DDP(net, find_unused_parameters=True, static_graph=True)
            """,
        "a test of what the option does": """
            import torch
            def test_unused_parameters():
                torch.nn.parallel.DistributedDataParallel(net, find_unused_parameters=True)
            """,
        "a function of one's own": """
            import torch
            from parallel import wrap
            model = wrap(net, find_unused_parameters=True)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every network whose unused parameters are looked for."""
        for call in script.all(cst.Call):
            name = script.name(call.func) or ""
            if not name.startswith((_DDP, *_FRAMEWORKS)) or _is_tested(script, call):
                continue
            site = script.call(call)
            if name == _DDP:
                if site.argument(_KEYWORD).equals(True) and not _is_needed(script, site):
                    yield self._finding(script, site)
            else:
                if name.rpartition(".")[2] in _STRATEGIES:
                    if site.argument(_KEYWORD).equals(True):
                        yield Finding(self.code, script.span(call), _message("this option"))
                elif site.argument("strategy").equals(_NAMED):
                    yield Finding(self.code, script.span(call), _message(f"`{_NAMED}`"))

    def _finding(self, script: Script, site: CallSite) -> Finding:
        given = site.given(_KEYWORD)
        message = _message(f"`{_KEYWORD}=True`")
        if given is None or script.framework != "none":
            return Finding(self.code, script.span(site.node), message)
        edits = script.rewrite.without_argument(site.node, given)
        fix = Fix.unsafe(f"Leave `{_KEYWORD}` out", edits, because=_BECAUSE)
        return Finding(self.code, script.span(given), message, fix)


def _message(named: str) -> str:
    return (
        f"{named} makes every step walk the whole graph for parameters without a gradient: "
        "leave it out if all of them get one in every pass"
    )


def _is_tested(script: Script, call: cst.Call) -> bool:
    function = script.function(call)
    return function is not None and function.name.value.startswith("test_")


def _is_needed(script: Script, site: CallSite) -> bool:
    """Whether the network in sight branches, or the search runs once anyway."""
    if site.argument("static_graph").equals(True):
        return True
    network = site.given("module", 0)
    owner = script.functions.instance_of(network.value) if network is not None else None
    forward = script.functions.method(owner, "forward") if owner is not None else None
    if forward is None:
        return False
    return any(
        any(True for _ in script.within(body, kind))
        for body in script.functions.reached(forward, _DEPTH)
        for kind in (cst.If, cst.IfExp)
    )
