"""TL106: a tensor made of a list of arrays, number by number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Grad, How, Kind, Record, Rule, Safety, Script

_TYPED: Final = {
    "torch.FloatTensor": "float32",
    "torch.Tensor": "float32",
    "torch.DoubleTensor": "float64",
    "torch.HalfTensor": "float16",
    "torch.LongTensor": "int64",
    "torch.IntTensor": "int32",
    "torch.ByteTensor": "uint8",
    "torch.BoolTensor": "bool",
}
_MAKERS: Final = ("torch.tensor", "torch.as_tensor", *_TYPED)
_FILLING: Final = frozenset("append clear copy count index sort reverse".split())
_MIXED: Final = (
    "arrays of different dtypes would be promoted by NumPy's rules, of which torch's differ"
)
_EMPTY: Final = "`np.stack` raises where the list is empty, torch.tensor made an empty tensor"


class TensorFromListOfArrays(Rule):
    """
    ## What it does
    Flags `torch.tensor`, `torch.FloatTensor` and the like where they are given a list of ndarrays
    or of losses, and stacks the list first.

    ## Why it is slow
    torch takes such a list apart number by number, each a Python object: 205 to 280 times slower
    than `np.stack` for 64 arrays of 1,000 floats. It warns of that itself. For a list of tensors on
    a GPU every number is one more wait for the device.

    ## When not to
    Lists of plain numbers are fine as they are.

    ## Fix safety
    Exact where the arrays have one dtype, as they do when one expression makes them all or a dtype
    is given. Unsafe where several may meet, and where the list may be empty, for which `np.stack`
    raises. Arrays of different shapes raise before and after.
    """

    code = "TL106"
    name = "tensor-from-list-of-arrays"
    summary = "a list of arrays is taken apart number by number"
    impact = "high"
    safety = Safety.EXACT
    articles = ("S3.12",)
    needs = ("tensor(", "Tensor(")

    invalid = {
        "a comprehension over windows": """
              import numpy as np
              import torch
              series = np.zeros(1000)
              def get_batch(starts):
            -     return torch.tensor([series[s : s + 8] for s in starts])
            +     return torch.from_numpy(np.stack([series[s : s + 8] for s in starts]))
            """,
        "a list of two arrays of one dtype": """
              import numpy as np
              import torch
              a = np.zeros(3, dtype=np.float32)
              b = np.ones(3, dtype=np.float32)
            - x = torch.tensor([a, b])
            + x = torch.from_numpy(np.stack([a, b]))
            """,
        "a list of two arrays that may differ in dtype: unsafe": """
              import numpy as np
              import torch
              def pair(a: np.ndarray, b: np.ndarray):
            -     return torch.tensor([a[:3], b[:3]])
            +     return torch.from_numpy(np.stack([a[:3], b[:3]]))
            """,
        "with a dtype of its own": """
              import numpy
              import torch
              a, b = numpy.zeros(3), numpy.arange(3)
            - x = torch.tensor([a, b], dtype=torch.float32)
            + x = torch.as_tensor(numpy.stack([a, b]), dtype=torch.float32)
            """,
        "that wants gradients": """
              import numpy as np
              import torch
              a = np.zeros(3)
            - x = torch.tensor([a, a], requires_grad=True)
            + x = torch.tensor(np.stack([a, a]), requires_grad=True)
            """,
        "the constructor of a type": """
              import numpy as np
              import torch
              a = np.zeros(3, np.float32)
            - y = torch.FloatTensor([a, a])
            + y = torch.from_numpy(np.stack([a, a]))
            - z = torch.FloatTensor([np.arange(3), np.zeros(3)])
            + z = torch.as_tensor(np.stack([np.arange(3), np.zeros(3)]), dtype=torch.float32)
            """,
        "a list that a loop fills": """
              import numpy as np
              import torch
              def collate(batch):
                  images = []
                  for item in batch:
                      images.append(np.zeros((3, 8, 8), dtype=np.float32))
            -     return torch.tensor(images)
            +     return torch.from_numpy(np.stack(images))
            """,
        "a list that may stay empty: unsafe": """
              import numpy as np
              import torch
              def collate(batch):
                  images = []
                  for item in batch:
                      if item is not None:
                          images.append(np.zeros((3, 8, 8), dtype=np.float32))
            -     return torch.tensor(images)
            +     return torch.from_numpy(np.stack(images))
            """,
        "NumPy is not imported yet": """
            + import numpy as np
              import cv2
              import torch
              def read(paths):
            -     return torch.tensor([cv2.imread(path) for path in paths])
            +     return torch.from_numpy(np.stack([cv2.imread(path) for path in paths]))
            """,
        "over several lines, with comments": """
              import numpy as np
              import torch
              a = np.zeros(3)
            - x = torch.tensor(
            -     [  # two of them
            + x = torch.from_numpy(
            +     np.stack([  # two of them
                      a,
                      a + 1.0,
            -     ]
            +     ])
              )
            """,
        "imported by name: reported, left alone": """
              import numpy as np
              from torch import tensor
              a = np.zeros(3)
            ! x = tensor([a, a])
            """,
        "losses that wait for the host one by one": """
              import torch
              import torch.nn.functional as F
              def validate(model, loader):
                  losses = []
                  for x, y in loader:
                      losses.append(F.cross_entropy(model(x), y))
            -     return torch.tensor(losses)
            +     return torch.stack([loss.detach() for loss in losses])
            """,
        "losses on a device, the result stays on the host": """
              import torch
              import torch.nn.functional as F
              def validate(model, loader):
                  losses = []
                  for x, y in loader:
                      losses.append(F.cross_entropy(model(x.cuda()), y.cuda()).detach())
            -     return torch.tensor(losses)
            +     return torch.stack(losses).cpu()
            """,
        "losses of a comprehension": """
              import torch
              import torch.nn.functional as F
              def validate(model, loader):
                  with torch.no_grad():
            -         return torch.tensor([F.mse_loss(model(x), y) for x, y in loader])
            +         return torch.stack([F.mse_loss(model(x), y) for x, y in loader])
            """,
    }
    valid = {
        "plain numbers": """
            import torch
            def collate(batch):
                lengths = [len(item) for item in batch]
                return torch.tensor(lengths), torch.tensor([1.0, 2.0]), torch.LongTensor([3])
            """,
        "host values of losses": """
            import torch
            import torch.nn.functional as F
            def validate(model, loader):
                return torch.tensor([F.mse_loss(model(x), y).item() for x, y in loader])
            """,
        "NumPy scalars: stacking them is slower": """
            import numpy as np
            import torch
            labels = np.zeros(10, dtype=np.int64)
            def collate(indices):
                return torch.tensor([labels[i] for i in indices])
            """,
        "stacked already": """
            import numpy as np
            import torch
            a = np.zeros(3)
            x = torch.tensor(np.array([a, a]))
            y = torch.from_numpy(np.stack([a, a]))
            """,
        "a list of tensors with dimensions raises as it is": """
            import torch
            x = [torch.zeros(3), torch.zeros(3)]
            def never():
                return torch.tensor(x)
            """,
        "a list of unequal rows, whatever they are": """
            import torch
            def collate(batch):
                return torch.tensor([item[0] for item in batch]), torch.FloatTensor(batch)
            """,
        "a size and no list": """
            import torch
            x = torch.FloatTensor(3, 4)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every tensor that is made of a list of arrays or losses."""
        for site in script.calls(*_MAKERS):
            given = site.given("data", 0)
            if given is None or given.star or (site.name in _TYPED and len(site.node.args) != 1):
                continue
            members = _members(script, given.value)
            if not members.elements:
                continue
            word = script.code(site.node.func)
            arrays = [script.array(element) for element in members.elements]
            if all(array is not None and array.sure and array.least > 0 for array in arrays):
                message = (
                    f"`{word}` takes a list of ndarrays apart number by number: stack "
                    f"`{script.brief(given.value)}` with NumPy first"
                )
                fix = _stacked_arrays(script, site.node, given, members)
                yield Finding(self.code, script.span(site.node), message, fix)
            elif all(_is_loss(script, element) for element in members.elements):
                message = (
                    f"`{word}` fetches the losses in `{script.brief(given.value)}` from the "
                    "device one by one: stack them"
                )
                fix = _stacked_losses(script, site.node, given, members)
                yield Finding(self.code, script.span(site.node), message, fix)


class _Members(Record):
    """What a list holds, empty where that is not shown."""

    elements: tuple[cst.BaseExpression, ...]
    may_be_empty: bool = False


def _members(script: Script, node: cst.BaseExpression) -> _Members:
    if isinstance(node, cst.List):
        if any(isinstance(element, cst.StarredElement) for element in node.elements):
            return _Members(())
        return _Members(tuple(element.value for element in node.elements))
    if isinstance(node, cst.ListComp):
        return _Members((node.elt,), bool(node.for_in.ifs))
    if not isinstance(node, cst.Name):
        return _Members(())
    bindings = script.scopes.reaching(node)
    value = bindings[0].value if len(bindings) == 1 and bindings[0].how is How.ASSIGN else None
    if isinstance(value, cst.ListComp):
        return _members(script, value)
    if isinstance(value, cst.List):
        return _grown(script, node, value)
    return _Members(())


def _grown(script: Script, node: cst.Name, start: cst.List) -> _Members:
    """Give what a list holds that starts as a literal and grows by `append`."""
    elements = [element.value for element in start.elements]
    steady = bool(elements)
    for use in script.tree.spelled(node.value):
        if script.function(use) is not script.function(node):
            continue
        holder = script.parent(use)
        if isinstance(holder, cst.AugAssign) and holder.target is use:
            return _Members(())
        call = script.parent(holder) if isinstance(holder, cst.Attribute) else None
        if not isinstance(holder, cst.Attribute) or not isinstance(call, cst.Call):
            continue
        if holder.attr.value == "append" and len(call.args) == 1:
            elements.append(call.args[0].value)
            steady = steady or not any(True for _ in script.tests_around(call))
        elif holder.attr.value not in _FILLING:
            return _Members(())
    return _Members(tuple(elements), may_be_empty=not steady)


# -- arrays -------------------------------------------------------------------


def _stacked_arrays(
    script: Script, call: cst.Call, given: cst.Arg, members: _Members
) -> Fix | None:
    name = script.name(call.func) or ""
    imported = script.rewrite.importing("numpy", alias="np")
    if not isinstance(call.func, cst.Attribute) or imported is None:
        return None
    dtype = _one_dtype(script, members)
    others = [arg for arg in call.args if arg is not given]
    typed = _TYPED.get(name, "")
    keywords = {arg.keyword.value for arg in others if arg.keyword is not None}
    if not keywords <= {"dtype", "device"} and name == "torch.tensor":
        maker = "tensor"
    elif others or (typed and typed != dtype) or given.keyword is not None:
        maker = "as_tensor"
    else:
        maker = "from_numpy"
    span = script.span(given.value)
    tail = ")"
    if maker == "as_tensor" and typed:
        tail = f"), dtype={script.code(call.func.value)}.{typed}"
    edits = (
        *script.rewrite.replace(call.func.attr, maker),
        *script.rewrite.insert(span.start, f"{imported[0]}.stack("),
        *script.rewrite.insert(span.end, tail),
        *imported[1],
    )
    title = f"Stack the arrays with `{imported[0]}.stack`"
    if not dtype and not typed and "dtype" not in keywords:
        return Fix.unsafe(title, edits, because=_MIXED)
    if members.may_be_empty:
        return Fix.unsafe(title, edits, because=_EMPTY)
    return Fix.exact(title, edits)


def _one_dtype(script: Script, members: _Members) -> str:
    """Give the dtype that all arrays of a list share, `same` where only that is known."""
    arrays = [script.array(element) for element in members.elements]
    dtypes = {array.dtype if array is not None else "" for array in arrays}
    if len(dtypes) == 1 and (dtype := dtypes.pop()):
        return dtype
    if len(members.elements) == 1 and _from_one_array(script, members.elements[0]):
        return "same"
    return ""


def _from_one_array(script: Script, element: cst.BaseExpression) -> bool:
    """Whether an expression only indexes an array that is the same in every pass."""
    if not isinstance(element, cst.Subscript):
        return False
    base = element.value
    array = script.array(base)
    if array is None or not isinstance(base, (cst.Name, cst.Attribute)):
        return False
    root: cst.BaseExpression = base
    while isinstance(root, cst.Attribute):
        root = root.value
    if not isinstance(root, cst.Name):
        return False
    return all(binding.how is not How.LOOP for binding in script.scopes.reaching(root))


# -- losses -------------------------------------------------------------------


def _stacked_losses(
    script: Script, call: cst.Call, given: cst.Arg, members: _Members
) -> Fix | None:
    """Stack losses in one go, cut off from the graph as `torch.tensor` cuts them off."""
    name = script.name(call.func)
    if name != "torch.tensor" or not isinstance(call.func, cst.Attribute) or len(call.args) > 1:
        return None
    if given.keyword is not None:
        return None
    edits: Edits = script.rewrite.replace(call.func.attr, "stack")
    attached = [each for each in members.elements if not _is_detached(script, each)]
    if isinstance(given.value, cst.Name):
        if attached:
            code = f"[loss.detach() for loss in {given.value.value}]"
            edits = (*edits, *script.rewrite.replace(given.value, code))
    else:
        for element in attached:
            span = script.span(element)
            if not isinstance(element, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)):
                edits = (*edits, *script.rewrite.insert(span.start, "("))
                edits = (*edits, *script.rewrite.insert(span.end, ").detach()"))
            else:
                edits = (*edits, *script.rewrite.insert(span.end, ".detach()"))
    if script.can_use_accelerator:
        edits = (*edits, *script.rewrite.insert(script.rewrite.closing(call) + 1, ".cpu()"))
    title = "Stack the losses with `torch.stack`"
    if members.may_be_empty:
        because = "`torch.stack` raises where the list is empty, torch.tensor made an empty tensor"
        return Fix.unsafe(title, edits, because=because)
    return Fix.exact(title, edits)


def _is_loss(script: Script, element: cst.BaseExpression) -> bool:
    """Whether an expression is a loss, cut off from its graph or not."""
    if isinstance(element, cst.Call) and isinstance(element.func, cst.Attribute):
        if element.func.attr.value == "detach":
            return script.kind(element.func.value) is Kind.LOSS
    return script.kind(element) is Kind.LOSS


def _is_detached(script: Script, element: cst.BaseExpression) -> bool:
    if script.grad(element) is Grad.OFF:
        return True
    if isinstance(element, cst.Call) and isinstance(element.func, cst.Attribute):
        return element.func.attr.value in ("detach", "detach_")
    return isinstance(element, cst.Attribute) and element.attr.value == "data"
