"""TL211: the host waits in every step to learn what a tensor holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, How, Kind, Rule, Script, State

_TENSORS: Final = (Kind.TENSOR, Kind.LOSS)
_SIZED: Final = {
    "nonzero": "torch.where(condition, a, b) needs no indices",
    "argwhere": "torch.where(condition, a, b) needs no indices",
    "unique": "count on the device, or do it before training",
    "unique_consecutive": "count on the device, or do it before training",
    "masked_select": "multiply by the mask, or use torch.where",
    "equal": "(a == b).all() stays on the device",
    "allclose": "compare on the device, and read the result now and then",
}
_WITH: Final = {
    "torch.bincount": ("minlength", 2),
    "torch.repeat_interleave": ("output_size", None),
    "torch.nn.functional.one_hot": ("num_classes", 1),
}
_NUMBERED: Final = ("builtins.range", "torch.arange", "builtins.sorted")
_REDUCED: Final = ("builtins.max", "builtins.min", "builtins.sum", "builtins.any", "builtins.all")
_WAITING: Final = frozenset(
    {*_WITH, *_NUMBERED, *_REDUCED, "torch.where", *(f"torch.{name}" for name in _SIZED)}
)
"""Functions that wait for the tensor that they are given first."""
_PACK: Final = "torch.nn.utils.rnn.pack_padded_sequence"
_CLIP: Final = "torch.nn.utils.clip_grad_norm_"
_MASKING: Final = frozenset("eq ne gt ge lt le bool isnan isfinite isinf logical_not".split())


class DataDependentSync(Rule):
    """
    ## What it does
    Reports operations of every step for which the host must know what a tensor on the device
    holds: branches on tensors, `x[mask]`, `nonzero`, `unique`, `range(t)`, distributions that
    check their arguments.

    ## Why it is slow
    The host stops until the device has computed the value, and the device then waits for work.

    ## When not to
    Many of these are the algorithm itself, so the rule is off unless it is selected. It is silent
    for scripts that run on the CPU alone, for tensors on the host, for what happens now and then,
    and for `masked_fill`, `torch.where(c, a, b)`, `x[mask] = 0`, `clamp` and `topk`, which do not
    wait.

    ## Fix safety
    There is no automatic fix: `(loss * mask).sum() / mask.sum().clamp(min=1)` for
    `loss[mask].mean()` differs where nothing is chosen and where a masked value is not finite.
    """

    code = "TL211"
    name = "data-dependent-sync"
    summary = "the host waits in every step to learn what a tensor holds"
    impact = "medium"
    safety = None
    articles = ("S3.7",)
    needs = ("backward", "forward")
    default = False

    invalid = {
        "branches on tensors": """
              import torch
              import torch.nn.functional as F
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
            !     if loss > 10:
                      loss = loss * 0.1
            !     assert torch.isfinite(loss).all()
            !     if use_gpu and not torch.isnan(loss).any():
                      loss.backward()
            !     scale = 1 if loss < 1 else 2
            """,
        "a mask that each batch narrows": """
              import torch
              import torch.nn.functional as F
              open_ = torch.ones(8).cuda() > 0
              for x, y in loader:
                  open_ = open_ & (y.cuda() > 0)
            !     loss = F.cross_entropy(model(x.cuda()[open_]), y)
                  loss.backward()
            """,
        "a loop until a tensor is small enough": """
              import torch
              from torch import nn
              class Solver(nn.Module):
                  def forward(self, x):
                      error = (x - 1).abs().max()
            !         while error > 1e-3:
                          x = x / 2
                          error = (x - 1).abs().max()
                      return x
              solver = Solver().cuda()
            """,
        "the mask says how much is chosen": """
              import torch
              import torch.nn.functional as F
              for x, y in loader:
                  y = y.cuda()
                  out = model(x.cuda())
                  mask = y != 0
            !     loss = F.cross_entropy(out[mask], y, reduction="mean")
            !     loss = loss + out[out > 0].mean()
            !     chosen = torch.masked_select(out, mask)
                  loss.backward()
            """,
        "operations whose result has a size that the values decide": """
              import torch
              import torch.nn.functional as F
              for x, y in loader:
                  y = y.cuda()
            !     where = torch.nonzero(y)
            !     places = torch.where(y > 0)
            !     kinds = y.unique()
            !     counts = torch.bincount(y)
            !     hot = F.one_hot(y)
            !     same = torch.equal(y, y)
                  loss = F.cross_entropy(model(x.cuda()), y)
                  loss.backward()
            """,
        "the host counts with a tensor": """
              import torch
              import torch.nn.functional as F
              for x, y in loader:
                  y = y.cuda()
                  longest = y.max()
            !     for t in range(longest):
                      print(t)
            !     x = x[:, :longest]
            !     most = max(y)
                  loss = F.cross_entropy(model(x.cuda()), y)
                  loss.backward()
            """,
        "checks of arguments": """
              import torch
              import torch.nn.functional as F
              from torch.distributions import Categorical
              from torch.nn.utils.rnn import pack_padded_sequence
              for x, y in loader:
                  y = y.cuda()
                  out = model(x.cuda())
            !     chosen = Categorical(logits=out)
                  lengths = (out > 0).sum(1)
            !     packed = pack_padded_sequence(out, lengths)
                  loss = F.cross_entropy(out, y)
                  loss.backward()
            !     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
            """,
    }
    valid = {
        "what does not wait": """
            import torch
            import torch.nn.functional as F
            from torch.distributions import Categorical
            for x, y in loader:
                y = y.cuda()
                out = model(x.cuda())
                out = out.masked_fill(out > 0, 0)
                out = torch.where(out > 0, out, 0).clamp(0, 1)
                out[out > 0] = 0
                best = out.topk(5).values
                hot = F.one_hot(y, 10)
                hot = F.one_hot(y, num_classes=10)
                counts = torch.bincount(y, minlength=10)
                both = torch.stack([out, out])
                chosen = Categorical(logits=out, validate_args=False)
                loss = F.cross_entropy(out, y)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            """,
        "the host knows the shape": """
            import torch
            import torch.nn.functional as F
            for x, y in loader:
                out = model(x.cuda())
                if out.dim() == 2 and out.size(0) > 1 and out.shape[1] > 2:
                    out = out[: out.size(0) // 2]
                for t in range(out.size(1)):
                    out = out + t
                loss = F.cross_entropy(out, y.cuda())
                if loss is not None and loss.requires_grad:
                    loss.backward()
            """,
        "indices of a known number": """
            import torch
            import torch.nn.functional as F
            for x, y in loader:
                order = torch.randperm(x.size(0), device="cuda")
                loss = F.cross_entropy(model(x.cuda())[order], y.cuda()[order])
                loss.backward()
            """,
        "tensors on the host": """
            import torch
            import torch.nn.functional as F
            from torch.utils.data import DataLoader
            loader = DataLoader(images)
            for x, y in loader:
                if (y > 0).any():
                    x = x[y > 0]
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
            """,
        "the script runs on the CPU": """
            import torch
            import torch.nn.functional as F
            for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                if torch.isnan(loss):
                    break
                loss.backward()
            """,
        "now and then": """
            import torch
            import torch.nn.functional as F
            for i, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                if i % 100 == 0:
                    assert torch.isfinite(loss)
            """,
        "what a network out of sight gives and takes may be numbers of the host": """
            import torch
            from torch import nn
            from torch.nn.utils.rnn import pack_padded_sequence
            class Places(nn.Module):
                def forward(self, length):
                    return self.table[torch.arange(length - 1)]
            places = Places().cuda()
            for x, y in loader:
                scores, lengths = model(x.cuda())
                loss = pack_padded_sequence(scores, lengths).data.sum() / sum(lengths)
                loss.backward()
            """,
        "numbers that were read before": """
            import torch.nn.functional as F
            for x, y in loader:
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                value = loss.item()
                if value > 10:
                    break
                loss.backward()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Report every place of each step where the host must know what a tensor holds."""
        if not script.can_use_accelerator:
            return
        for place, cost in (*_branches(script), *_selections(script), *_calls(script)):
            if script.each_step(place):
                message = f"`{script.brief(place)}` waits for the device in every step: {cost}"
                yield Finding(self.code, script.span(place), message)


def _on_device(script: Script, node: cst.BaseExpression) -> bool:
    """Whether an expression is a tensor that may lie on the device."""
    return script.kind(node) in _TENSORS and not script.on_host(node)


def _counts_on_device(script: Script, node: cst.BaseExpression) -> bool:
    """Whether a length is a tensor for sure, not by what networks mostly take and give."""
    return _on_device(script, node) and not any(
        binding.how in (How.PARAMETER, How.UNPACKED)
        for name in script.within(node, cst.Name)
        for binding in script.scopes.reaching(name)
    )


# -- branches ---------------------------------------------------------------------


def _branches(script: Script) -> Iterator[tuple[cst.BaseExpression, str]]:
    """Yield the tests that ask a tensor."""
    holders: list[cst.If | cst.While | cst.Assert | cst.IfExp] = [
        *script.all(cst.If),
        *script.all(cst.While),
        *script.all(cst.Assert),
        *script.all(cst.IfExp),
    ]
    for holder in holders:
        for part in _parts(holder.test):
            if not _compares_text(part) and _may_repeat(script, part) and _on_device(script, part):
                yield part, "choose on the device with torch.where, or look now and then"


def _parts(test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield what `and`, `or` and `not` join in a test."""
    if isinstance(test, cst.BooleanOperation):
        yield from _parts(test.left)
        yield from _parts(test.right)
    elif isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        yield from _parts(test.expression)
    else:
        yield test


def _compares_text(part: cst.BaseExpression) -> bool:
    return isinstance(part, cst.Comparison) and any(
        isinstance(each.comparator, cst.SimpleString) for each in part.comparisons
    )


def _may_repeat(script: Script, node: cst.CSTNode) -> bool:
    """Whether a node stands in a function or in a loop."""
    around = (cst.FunctionDef, cst.For, cst.While)
    return any(isinstance(outer, around) for outer in script.tree.ancestors(node))


# -- selections -------------------------------------------------------------------


def _selections(script: Script) -> Iterator[tuple[cst.Subscript, str]]:
    """Yield the indexings by a mask, and those whose bounds are tensors."""
    for item in script.all(cst.Subscript):
        if not any(_may_select(script, element.slice) for element in item.slice):
            continue
        if isinstance(script.parent(item), (cst.AssignTarget, cst.AugAssign, cst.Del)):
            continue
        if script.kind(item.value) not in _TENSORS:
            continue
        for element in item.slice:
            index = element.slice
            if isinstance(index, cst.Index):
                if _is_mask(script, index.value) and _on_device(script, index.value):
                    yield item, "multiply by the mask, or use torch.where"
                    break
            elif isinstance(index, cst.Slice):
                bounds = [bound for bound in (index.lower, index.upper) if bound is not None]
                if any(_counts_on_device(script, bound) for bound in bounds):
                    yield item, "keep lengths on the host too"
                    break


def _may_select(script: Script, index: cst.BaseSlice) -> bool:
    """Whether an index is a mask, or a range with bounds that are not written down."""
    if isinstance(index, cst.Index):
        return _is_mask(script, index.value)
    bounds = (index.lower, index.upper) if isinstance(index, cst.Slice) else ()
    return any(not isinstance(each, (cst.Integer, type(None))) for each in bounds)


def _is_mask(script: Script, node: cst.BaseExpression, trail: frozenset[int] = frozenset()) -> bool:
    """Whether a tensor surely holds booleans; `trail` are the bindings that led to it."""
    if isinstance(node, cst.Comparison):
        return True
    if isinstance(node, cst.UnaryOperation):
        return _is_mask(script, node.expression, trail)
    if isinstance(node, cst.BinaryOperation):
        bitwise = isinstance(node.operator, (cst.BitAnd, cst.BitOr))
        return bitwise and _is_mask(script, node.left, trail)
    if isinstance(node, cst.Call):
        func = node.func
        return isinstance(func, cst.Attribute) and func.attr.value in _MASKING
    if isinstance(node, cst.Name):
        bindings = script.scopes.reaching(node)
        return bool(bindings) and all(
            id(binding) in trail
            or (
                binding.how is How.ASSIGN
                and binding.value is not None
                and not isinstance(binding.value, cst.Name)
                and _is_mask(script, binding.value, trail | {id(binding)})
            )
            for binding in bindings
        )
    return False


# -- calls --------------------------------------------------------------------------


def _calls(script: Script) -> Iterator[tuple[cst.Call, str]]:
    """Yield the calls that wait, each with what to do in its place."""
    for call in script.method_calls(*_SIZED):
        cost = _cost_of_method(script, call) if not script.name(call.func) else None
        if cost is not None:
            yield call, cost
    for site in script.calls(_CLIP, _PACK, *_WAITING):
        cost = _cost_of_function(script, site.node, site.name or "")
        if cost is not None:
            yield site.node, cost
    for call in script.all(cst.Call) if "distributions" in script.source.text else ():
        if _checks_arguments(script, call):
            yield call, "pass validate_args=False"


def _checks_arguments(script: Script, call: cst.Call) -> bool:
    """Whether a call makes a distribution that looks at its arguments."""
    module, _, last = (script.name(call.func) or "").rpartition(".")
    if module != "torch.distributions" or not last[:1].isupper() or not call.args:
        return False
    return script.call(call).argument("validate_args").state is State.ABSENT


def _cost_of_method(script: Script, call: cst.Call) -> str | None:
    func = call.func
    if not isinstance(func, cst.Attribute) or func.attr.value not in _SIZED:
        return None
    return _SIZED[func.attr.value] if _on_device(script, func.value) else None


def _cost_of_function(script: Script, call: cst.Call, name: str) -> str | None:
    first = call.args[0].value if call.args else None
    last = name.rpartition(".")[2]
    if name == _CLIP:
        strict = script.call(call).argument("error_if_nonfinite", 3)
        return "leave out error_if_nonfinite=True" if strict.equals(True) else None
    if name == _PACK:
        lengths = script.call(call).given("lengths", 1)
        known = lengths is None or not _counts_on_device(script, lengths.value)
        return None if known else "keep the lengths on the host"
    if first is None or not _on_device(script, first):
        return None
    if name in _NUMBERED:
        sure = _counts_on_device(script, first)
        return "keep the number on the host too" if sure else None
    if name in _REDUCED and len(call.args) == 1 and _counts_on_device(script, first):
        return f"`.{last}()` of the tensor is one operation"
    if name in _WITH:
        word, place = _WITH[name]
        given = script.call(call).argument(word, place)
        return f"pass {word}" if given.state is State.ABSENT else None
    if name == "torch.where":
        return _SIZED["nonzero"] if len(call.args) == 1 else None
    return _SIZED.get(last)
