"""TL708: DistributedDataParallel around a frozen network, or without options that save work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Finding, Fix, Rule, Script, State

_DDP: Final = "torch.nn.parallel.DistributedDataParallel"
_VIEW: Final = "gradient_as_bucket_view"
_STATIC: Final = "static_graph"
_CHANGING: Final = ("detach_", "set_", "resize_")
_BECAUSE: Final = "buckets may be filled and summed in another order"


class DdpOptions(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag wraps of frozen networks and, where they are asked for, options left out."""
        for site in script.calls.of(_DDP):
            network = site.given("module")
            if network is None or network.star or site.has_splat:
                continue
            if _is_frozen_after(script, site.node):
                message = (
                    f"`{script.tree.brief(network.value)}` is wrapped in DistributedDataParallel "
                    "and then frozen, so there are no gradients to average, and the buckets for "
                    "them stay allocated: do not wrap it"
                )
                yield Finding(self.code, script.span(site.node), message)
                continue
            if self.settings[_VIEW] and _may_be_views(script, site):
                yield self._bucket_view(script, site)
            if self.settings[_STATIC] and site.argument(_STATIC).state is State.ABSENT:
                message = (
                    f"`{_STATIC}=True` lets DistributedDataParallel plan its work once, if every "
                    "step uses the same parameters"
                )
                yield Finding(self.code, script.span(site.node), message)

    def _bucket_view(self, script: Script, site: CallSite) -> Finding:
        message = (
            f"gradients are copied into buckets and back: `{_VIEW}=True` makes them views of the "
            "buckets, which saves the copies and their memory"
        )
        edits = script.edits.with_keyword(site.node, _VIEW, "True")
        fix = Fix.close("Make gradients views of the buckets", edits, because=_BECAUSE)
        return Finding(self.code, script.span(site.node), message, fix)


def _is_frozen_after(script: Script, call: cst.Call) -> bool:
    """Return whether a network that no optimizer holds is wrapped first and frozen then."""
    unheld = script.modules.unheld(call)
    if unheld is None or unheld.frozen is not True or not unheld.learns:
        return False
    at, home = script.tree.order(call), script.scopes.home(call)
    frozen = [
        script.tree.order(each.node)
        for each in script.modules.freezing.all
        if each.learns is False and script.scopes.home(each.node) is home
    ]
    return bool(frozen) and min(frozen) > at


def _may_be_views(script: Script, site: CallSite) -> bool:
    """Return whether nothing in sight replaces gradients or takes them out of their buckets."""
    if site.argument(_VIEW).state is not State.ABSENT:
        return False
    for grad in script.functions.attributes("grad"):
        holder = script.tree.parent(grad)
        if isinstance(holder, (cst.AssignTarget, cst.Del)):
            return False
        if isinstance(holder, cst.Attribute) and holder.attr.value in _CHANGING:
            return False
    return True
