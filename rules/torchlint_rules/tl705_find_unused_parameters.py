"""TL705: a search for unused parameters in every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Finding, Fix, Rule, Script
from torchlint_rules.shared.leftoptions import LeftOption, left_options

_DDP: Final = "torch.nn.parallel.DistributedDataParallel"
_KEYWORD: Final = "find_unused_parameters"
_STRATEGIES: Final = frozenset("DistributedDataParallelKwargs DDPStrategy".split())
_FRAMEWORKS: Final = ("accelerate", "lightning", "pytorch_lightning")
_NAMED: Final = "ddp_find_unused_parameters_true"
_BECAUSE: Final = "a parameter that gets no gradient in some pass makes training stop with an error"
_OPTION: Final = LeftOption(
    "ddp_find_unused_parameters",
    (True,),
    ("transformers", "trl"),
    "makes every step walk the whole graph for parameters without a gradient",
    _BECAUSE,
    "low",
)


class FindUnusedParameters(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every network with `find_unused_parameters=True`."""
        yield from left_options(script, self.code, _OPTION)
        for call in script.tree.all(cst.Call):
            name = script.name(call.func) or ""
            if not name.startswith((_DDP, *_FRAMEWORKS)) or script.program.purpose.is_test(call):
                continue
            site = script.calls.at(call)
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
        if given is None or script.program.devices.framework != "none":
            return Finding(self.code, script.span(site.node), message)
        edits = script.edits.without_argument(site.node, given)
        fix = Fix.unsafe(f"Leave `{_KEYWORD}` out", edits, because=_BECAUSE)
        return Finding(self.code, script.span(given), message, fix)


def _message(named: str) -> str:
    return (
        f"{named} makes every step walk the whole graph for parameters without a gradient: "
        "leave it out if all of them get one in every pass"
    )


def _is_needed(script: Script, site: CallSite) -> bool:
    """Return whether a network of this file branches, or the search runs only once."""
    if site.argument("static_graph").equals(True):
        return True
    network = site.given("module")
    owner = script.functions.instance_of(network.value) if network is not None else None
    forward = script.functions.method(owner, "forward") if owner is not None else None
    if forward is None:
        return False
    return any(
        any(True for _ in script.tree.within(body, kind))
        for body in script.functions.reached(forward)
        for kind in (cst.If, cst.IfExp)
    )
