"""What a network uses with weights, but does not hold, so that no optimizer gets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import CallSite, Edits, Fix, Script, method_of, receiver_of

_PARAMETERS: Final = ("torch.nn.Parameter", "torch.nn.parameter.Parameter")
LAYERS: Final = tuple(
    f"torch.nn.{name}"
    for name in (
        "Linear", "Bilinear", "Embedding", "EmbeddingBag", "Conv1d", "Conv2d", "Conv3d",
        "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "RNN", "LSTM", "GRU", "RNNCell",
        "LSTMCell", "GRUCell", "MultiheadAttention", "TransformerEncoderLayer",
        "TransformerDecoderLayer",
    )
)  # fmt: skip
_COPYING: Final = ("cuda", "to", "half", "double", "bfloat16", "unsqueeze", "view", "t", "clone")
_MOVES: Final = ("cuda", "to")


class Part(NamedTuple):
    """What a network does not hold, with its class."""

    owner: cst.ClassDef
    node: cst.CSTNode
    message: str
    fix: Fix | None = None


def unregistered(script: Script) -> Iterator[Part]:
    """Yield parameters that are copied as they are made, and layers that each call makes."""
    for site in script.tree.in_file(script.calls.of(*_PARAMETERS)):
        yield from _copied(script, site)
    for site in script.tree.in_file(script.calls.of(*LAYERS)):
        owner = script.modules.passing.network(site.node)
        if owner is None or script.modules.passing.runs_once(site.node):
            continue
        if script.modules.passing.applied_to(site.node) is not None:
            message = (
                f"each call makes a new `{script.tree.brief(site.node)}`, whose random weights "
                "never learn: make it in `__init__`"
            )
            yield Part(owner, site.node, message)


def _copied(script: Script, site: CallSite) -> Iterator[Part]:
    """Yield a parameter of which an attribute gets a copy: `self.w = nn.Parameter(w).cuda()`."""
    owner = script.modules.passing.network(site.node)
    if owner is None or site.argument("requires_grad", 1).equals(False):
        return
    whole, made = _copies(script, site.node), script.tree.parent(site.node)
    line = script.tree.parent(whole)
    if whole is site.node or not isinstance(line, cst.Assign) or len(line.targets) != 1:
        return
    target = line.targets[0].target
    if not isinstance(target, cst.Attribute) or not script.functions.is_self(target.value):
        return
    if len(script.functions.attribute(target)) != 1:
        return
    moved = isinstance(made, cst.Attribute) and made.attr.value in _MOVES
    data = site.given("data", 0)
    if moved and (data is None or not script.values.placement.on_host(data.value)):
        return
    where = " on a GPU" if moved else ""
    message = (
        f"`{script.code(target)}` is a copy of its parameter{where}, which the network does not "
        f"hold: no optimizer gets it, and it never learns; make it a parameter last"
    )
    edits = _wrapped_last(script, site, whole)
    because = "the parameter starts to learn, and the state dict holds it"
    fix = Fix.unsafe("Make it a parameter last", edits, because=because) if edits else None
    yield Part(owner, whole, message, fix)


def _copies(script: Script, made: cst.BaseExpression) -> cst.BaseExpression:
    """Return what a line makes of a parameter by methods that copy it, and by arithmetic."""
    holder = script.tree.parent(made)
    if isinstance(holder, cst.BinaryOperation):
        return _copies(script, holder)
    call = script.tree.parent(holder)
    if isinstance(call, cst.Call) and receiver_of(call, *_COPYING) is made:
        return made if _only_casts(script, call) else _copies(script, call)
    return made


def _only_casts(script: Script, call: cst.Call) -> bool:
    """Return whether a call of `to` gives a type, which the parameter may have already."""
    names = (script.name(arg.value) or "" for arg in call.args)
    return receiver_of(call, "to") is not None and any(each.startswith("torch.") for each in names)


def _wrapped_last(script: Script, site: CallSite, whole: cst.BaseExpression) -> Edits | None:
    """Put the calls behind a parameter behind what it is made of, None for other arithmetic."""
    call = script.tree.parent(script.tree.parent(site.node))
    if call is not whole or len(site.node.args) != 1 or script.tree.comments(whole):
        return None
    if not isinstance(call, cst.Call):
        return None
    given = ", ".join(script.code(arg).rstrip(", ") for arg in call.args)
    inner = f"{script.tree.operand(site.node.args[0].value)}.{method_of(call)}({given})"
    return script.edits.replace(whole, f"{script.code(site.node.func)}({inner})")
