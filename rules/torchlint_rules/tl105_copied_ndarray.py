"""TL105: an ndarray copied into a tensor that could share its memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Array, Binding, Finding, Fix, Heat, How, Rule, Safety, Script
from torchlint_rules._tensorfate import TensorFate, tensor_fate

_WRITING: Final = frozenset("fill sort put partition resize itemset setfield".split())
_VIEWS: Final = frozenset("reshape ravel transpose squeeze swapaxes view".split())
_LOOKS: Final = frozenset("T values iloc loc".split())
_KEYWORDS: Final = frozenset(("data", "dtype", "device"))


class CopiedNdarray(Rule):
    """
    ## What it does
    Flags `torch.tensor(array)` of an ndarray where it runs for every item or step, and writes
    `torch.from_numpy(array)`, or `torch.as_tensor(...)` where a dtype or device is given.

    ## Why it is slow
    `torch.tensor` always copies; the others take the array's memory as it is. 5 times faster with
    10,000 numbers, 2,600 times with a million; an epoch over pictures of 3x32x32 became 2.7 times
    faster.

    ## When not to
    Keep the copy if the array is filled again later, or if the tensor is written in place: both are
    one memory then. Lists and numbers gain nothing.

    ## Fix safety
    Exact where nothing else holds the array, where the tensor is copied at once (as
    `default_collate` does with what a dataset returns), and where a dtype makes a copy anyway.
    Unsafe elsewhere: array and tensor then share their memory.
    """

    code = "TL105"
    name = "copied-ndarray"
    summary = "an ndarray is copied into a tensor"
    impact = "medium"
    safety = Safety.EXACT
    articles = ("S3.12",)
    needs = ("tensor(",)

    invalid = {
        "rows of a matrix in a dataset": """
              import numpy as np
              import torch
              from torch.utils.data import DataLoader, Dataset
              class Rows(Dataset):
                  def __init__(self):
                      self.x = np.zeros((100, 8), dtype=np.float32)
                      self.y = np.zeros(100, dtype=np.int64)
                  def __len__(self):
                      return len(self.x)
                  def __getitem__(self, i):
            -         return torch.tensor(self.x[i]), torch.tensor(self.y[i])
            +         return torch.from_numpy(self.x[i]), torch.tensor(self.y[i])
              loader = DataLoader(Rows(), batch_size=4)
            """,
        "an item that may be a number": """
              import numpy as np
              import torch
              from torch.utils.data import DataLoader, Dataset
              class Rows(Dataset):
                  def __init__(self, path):
                      self.x = np.load(path)
                  def __getitem__(self, i):
            -         x = torch.tensor(self.x[i])
            +         x = torch.as_tensor(self.x[i])
                      return {"x": x.float()}
              loader = DataLoader(Rows("x.npy"), batch_size=4)
            """,
        "a new array, with a dtype": """
              import cv2
              import torch
              from torch.utils.data import Dataset
              class Pictures(Dataset):
                  def __getitem__(self, i):
                      image = cv2.imread(self.paths[i])
                      image = image.transpose(2, 0, 1) / 255.0
            -         return torch.tensor(image, dtype=torch.float32)
            +         return torch.as_tensor(image, dtype=torch.float32)
            """,
        "a picture that is copied twice": """
              import numpy as np
              import torch
              from PIL import Image
              from torch.utils.data import Dataset
              class Pictures(Dataset):
                  def __getitem__(self, i):
            -         x = torch.tensor(np.array(Image.open(self.paths[i])))
            +         x = torch.from_numpy(np.array(Image.open(self.paths[i])))
                      x.mul_(2)
                      return x
            """,
        "a frame of pandas: unsafe": """
              import pandas as pd
              import torch
              from torch.utils.data import Dataset
              class Table(Dataset):
                  def __init__(self, path):
                      self.frame = pd.read_csv(path)
                  def __getitem__(self, i):
            -         return torch.tensor(self.frame.iloc[i, 1:].values)
            +         return torch.from_numpy(self.frame.iloc[i, 1:].values)
            """,
        "no loader in sight: unsafe": """
              import numpy as np
              import torch
              from torch.utils.data import Dataset
              class Rows(Dataset):
                  def __init__(self, x: np.ndarray):
                      self.x = x
                  def __getitem__(self, i):
            -         return torch.tensor(self.x[i])
            +         return torch.as_tensor(self.x[i])
            """,
        "a class that no loader is known to read: unsafe": """
              import numpy as np
              import torch
              from torch.utils.data import DataLoader, TensorDataset
              class Rows:
                  def __init__(self):
                      self.x = np.zeros((100, 8))
                  def __getitem__(self, i):
            -         return torch.tensor(self.x[i])
            +         return torch.from_numpy(self.x[i])
              loader = DataLoader(TensorDataset(torch.zeros(3)))
            """,
        "a collate function of one's own: unsafe": """
              import numpy as np
              import torch
              from torch.utils.data import DataLoader, Dataset
              class Rows(Dataset):
                  def __init__(self):
                      self.x = np.zeros((100, 8))
                  def __getitem__(self, i):
            -         return torch.tensor(self.x[i])
            +         return torch.from_numpy(self.x[i])
              loader = DataLoader(Rows(), collate_fn=list)
            """,
        "annotated in a collate function": """
              import numpy as np
              import torch
              def collate(rows: np.ndarray):
            -     return torch.stack([torch.tensor(rows[:2]), torch.tensor(rows[2:])])
            +     return torch.stack([torch.from_numpy(rows[:2]), torch.from_numpy(rows[2:])])
            """,
        "batches of a training loop": """
              import numpy as np
              import torch
              x = np.random.rand(1000, 8)
              y = np.random.rand(1000, 1)
              model = torch.nn.Linear(8, 1)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for step in range(100):
                  rows = np.random.randint(0, 1000, size=32)
            -     xs = torch.tensor(x[rows], dtype=torch.float32)
            +     xs = torch.as_tensor(x[rows], dtype=torch.float32)
            -     ys = torch.tensor(y[rows]).float()
            +     ys = torch.from_numpy(y[rows]).float()
                  loss = torch.nn.functional.mse_loss(model(xs), ys)
                  optimizer.zero_grad()
                  loss.backward()
                  optimizer.step()
            """,
        "from another tensor of the host": """
              import torch
              def collate(batch: torch.Tensor):
                  array = batch.cpu().numpy()
            -     return torch.tensor(array)
            +     return torch.from_numpy(array)
            """,
        "in a helper that the dataset calls": """
              import torch
              from numpy import random as ra
              from torch.utils.data import Dataset
              def draw(count):
            -     return torch.tensor(ra.rand(count, 8).astype("float32"))
            +     return torch.from_numpy(ra.rand(count, 8).astype("float32"))
              class Noise(Dataset):
                  def __getitem__(self, i):
                      return draw(16)
            """,
        "a name that holds a new array by then": """
              import numpy as np
              import torch
              def collate(weights):
                  both = np.ones(len(weights))
                  both[0] = 2.0
                  both = np.concatenate((both, both[::-1]))
            -     return torch.tensor(both).unsqueeze(1)
            +     return torch.from_numpy(both).unsqueeze(1)
            """,
        "imported by name: reported, left alone": """
              import numpy as np
              from torch import tensor
              def collate(rows: np.ndarray):
            !     return tensor(rows)
            """,
    }
    valid = {
        "lists and numbers gain nothing": """
            import torch
            def collate(batch):
                return torch.tensor([1, 2]), torch.tensor(3.0), torch.tensor([b[1] for b in batch])
            """,
        "a number of NumPy, which `from_numpy` refuses": """
            import numpy as np
            import torch
            from torch.utils.data import Dataset
            class Rows(Dataset):
                def __init__(self):
                    self.y = np.zeros(100)
                def __getitem__(self, i):
                    return torch.tensor(self.y[i])
            """,
        "what the argument is does not show": """
            import torch
            from torch.utils.data import Dataset
            class Rows(Dataset):
                def __init__(self, x):
                    self.x = x
                def __getitem__(self, i):
                    return torch.tensor(self.x[i])
            """,
        "a tensor that wants gradients is one of its own": """
            import numpy as np
            import torch
            def collate(rows: np.ndarray):
                return torch.tensor(rows, requires_grad=True)
            """,
        "a ring buffer that is filled again": """
            import numpy as np
            import torch
            class Replay:
                def __init__(self):
                    self.states = np.zeros((1000, 4), dtype=np.float32)
                def push(self, at, state):
                    self.states[at] = state
                def sample_and_collate(self, at):
                    return torch.tensor(self.states[:at])
            """,
        "a buffer that each pass fills again": """
            import numpy as np
            import torch
            def train(model, optimizer):
                buffer = np.zeros((8, 4), dtype=np.float32)
                for step in range(10):
                    x = torch.tensor(buffer)
                    buffer[step % 8] = step
                    loss = model(x).sum()
                    loss.backward()
                    optimizer.step()
            """,
        "an observation of an environment": """
            import torch
            def act(env, model, optimizer):
                state = env.reset()
                while True:
                    value = model(torch.tensor(state))
                    value.sum().backward()
                    optimizer.step()
                    state, reward, done, info = env.step(value)
            """,
        "an addition in place to the array itself": """
            import numpy as np
            import torch
            from torch.utils.data import DataLoader, Dataset
            class Rows(Dataset):
                def __init__(self):
                    self.x = np.zeros((100, 8))
                def __getitem__(self, i):
                    x = torch.tensor(self.x[i])
                    self.x[i] += 1
                    return x
            loader = DataLoader(Rows())
            """,
        "written in place: the dataset's array would change": """
            import numpy as np
            import torch
            from torch.utils.data import DataLoader, Dataset
            class Rows(Dataset):
                def __init__(self):
                    self.x = np.zeros((100, 8))
                def __getitem__(self, i):
                    x = torch.tensor(self.x[i])
                    x += 1
                    z = torch.tensor(self.x[i])
                    z[0] = 1
                    return x, z, torch.tensor(self.x[i]).mul_(2)
            loader = DataLoader(Rows())
            """,
        "read-only memory: torch would warn": """
            import numpy as np
            import torch
            from PIL import Image
            from torch.utils.data import Dataset
            class Rows(Dataset):
                def __init__(self):
                    self.x = np.memmap("x.bin", mode="r", shape=(100, 8))
                    self.y = np.load("y.npy", mmap_mode="r")
                    self.z = np.broadcast_to(np.zeros(8), (100, 8))
                def __getitem__(self, i):
                    image = np.asarray(Image.open(self.paths[i]))
                    return torch.tensor(self.x[i]), torch.tensor(self.y[i]), torch.tensor(image)
                def other(self, i):
                    return torch.tensor(self.z[i])
            """,
        "once, before the training": """
            import numpy as np
            import torch
            x = torch.tensor(np.zeros((100, 8)))
            """,
        "it shares already": """
            import numpy as np
            import torch
            def collate(rows: np.ndarray):
                return torch.from_numpy(rows), torch.as_tensor(rows), torch.FloatTensor(rows)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every copy of an array that is made for each item or step."""
        for site in script.calls("torch.tensor"):
            given = site.given("data", 0)
            keywords = {arg.keyword.value if arg.keyword else "data" for arg in site.node.args}
            if given is None or site.has_splat or not keywords <= _KEYWORDS:
                continue
            array = script.array(given.value)
            if array is None or array.frozen or not _is_repeated(script, site.node):
                continue
            because = _shared(script, site.node, given, array)
            if because is None:
                continue
            plain = len(site.node.args) == 1 and given.keyword is None and array.sure
            maker = "from_numpy" if plain else "as_tensor"
            word, code = script.code(site.node.func), script.code(given.value)
            message = (
                f"`{word}` copies the array `{code}` every time: `torch.{maker}` takes its memory"
            )
            fix = None
            if isinstance(site.node.func, cst.Attribute):
                edits = script.rewrite.replace(site.node.func.attr, maker)
                title = f"Write `torch.{maker}`"
                unsafe = Fix.unsafe(title, edits, because=because) if because else None
                fix = unsafe or Fix.exact(title, edits)
            yield Finding(self.code, script.span(site.node), message, fix)


# -- where --------------------------------------------------------------------


def _is_repeated(script: Script, node: cst.CSTNode, depth: int = 3) -> bool:
    """Whether code runs for every item or step, itself or through functions of this file."""
    function = script.function(node)
    if function is not None:
        name = function.name.value
        if _dataset(script, node) is not None and name in ("__getitem__", "__getitems__"):
            return True
        if "collate" in name or any(
            "collate" in script.code(owner.name).lower()
            for owner in [script.scopes.class_of(node)]
            if owner is not None and name == "__call__"
        ):
            return True
        if any(
            call.keyword.value == "collate_fn" and script.definition(call.value) is function
            for call in script.all(cst.Arg)
            if call.keyword is not None
        ):
            return True
        if depth and any(
            _is_repeated(script, call, depth - 1) for call in script.functions.callers(function)
        ):
            return True
    return script.heat(node) is Heat.HOT


def _dataset(script: Script, node: cst.CSTNode) -> cst.ClassDef | None:
    """Give the dataset in whose body a node stands."""
    owner = script.scopes.class_of(node)
    function = script.function(node)
    if owner is None or function is None or script.functions.method(owner, "__getitem__") is None:
        return None
    return owner


# -- who holds the memory ------------------------------------------------------


def _shared(script: Script, call: cst.Call, given: cst.Arg, array: Array) -> str | None:
    """Say who else would hold the tensor's memory, "" where nobody; None where one writes to it."""
    converted = _dtype(script, call)
    if array.fresh or (converted and array.dtype and converted != array.dtype):
        return ""
    root = _root(given.value)
    fate = tensor_fate(script, call)
    if fate is TensorFate.WRITTEN and not _is_own(script, call, root):
        return None
    if _is_written(script, root, call):
        return None
    if fate is TensorFate.COPIED or _is_own(script, call, root) or _collated(script, call, fate):
        return ""
    because = f"tensor and `{script.code(root)}` share their memory: writing to one changes both"
    if isinstance(given.value, cst.Attribute) and given.value.attr.value == "values":
        return f"{because}; pandas 3 may hand out read-only memory, of which torch warns"
    return because


def _dtype(script: Script, call: cst.Call) -> str:
    given = script.call(call).given("dtype", 1)
    name = script.name(given.value) if given is not None else None
    return (name or "").rpartition(".")[2]


def _root(node: cst.BaseExpression) -> cst.BaseExpression:
    """Give the array whose memory an expression looks at."""
    while True:
        if isinstance(node, cst.Subscript) or (
            isinstance(node, cst.Attribute) and node.attr.value in _LOOKS
        ):
            node = node.value
        elif (
            isinstance(node, cst.Call)
            and isinstance(node.func, cst.Attribute)
            and node.func.attr.value in _VIEWS
        ):
            node = node.func.value
        else:
            return node


def _is_own(script: Script, call: cst.Call, root: cst.BaseExpression) -> bool:
    """Whether a name holds new memory that its pass of the loop alone has, and only reads."""
    if not isinstance(root, cst.Name):
        made = script.array(root)
        return made is not None and made.fresh
    bindings = script.scopes.reaching(root)
    home = script.function(call)
    if not bindings or any(script.function(binding.node) is not home for binding in bindings):
        return False
    if not all(_is_new(script, binding) for binding in bindings):
        return False
    loops = [loop.node for loop in script.loops_around(call)]
    if any(not script.tree.inside(b.node, loop) for b in bindings for loop in loops[:1]):
        return False
    uses = [
        use
        for use in script.within(home or script.tree.module, cst.Name)
        if use.value == root.value
        and use is not root
        and script.scopes.stored(use) is None
        and any(binding in bindings for binding in script.scopes.reaching(use))
    ]
    return all(_only_reads(script, use) for use in uses) and all(
        script.tree.order(use) < script.tree.order(call) for use in uses
    )


def _is_new(script: Script, binding: Binding, depth: int = 4) -> bool:
    """Whether a binding gives its name new memory, or a view of what the name held before."""
    if binding.how is How.AUGMENTED:
        return True
    value = binding.value
    made = script.array(value) if value is not None and binding.how is How.ASSIGN else None
    if value is None or made is None or made.fresh:
        return made is not None
    root = _root(value)
    if not isinstance(root, cst.Name) or root.value != binding.name or not depth:
        return False
    return all(_is_new(script, each, depth - 1) for each in script.scopes.reaching(root))


def _only_reads(script: Script, use: cst.Name) -> bool:
    """Whether a use of an array neither keeps nor hands on its memory."""
    holder = script.parent(use)
    if isinstance(holder, (cst.Attribute, cst.Subscript, cst.BinaryOperation, cst.Comparison)):
        return True
    outer = script.parent(holder) if isinstance(holder, cst.Arg) else None
    name = script.name(outer.func) if isinstance(outer, cst.Call) else None
    return (name or "").startswith(("numpy.", "cv2.", "builtins.len", "builtins.print"))


def _is_written(script: Script, root: cst.BaseExpression, call: cst.Call) -> bool:
    """Whether an array is written to where the tensor may still be in use."""
    path = script.code(root)
    own = isinstance(root, cst.Name)
    home = script.function(call)
    changes: list[cst.AssignTarget | cst.AugAssign] = [
        *script.all(cst.AssignTarget),
        *script.all(cst.AugAssign),
    ]
    for node in changes:
        target = node.target
        subscripted = isinstance(target, cst.Subscript)
        if not subscripted and isinstance(node, cst.AssignTarget):
            continue
        if script.code(_root(target)) == path and _matters(script, node, call, own, home):
            return True
    for other in script.all(cst.Call):
        func = other.func
        if not isinstance(func, cst.Attribute):
            continue
        filled = func.attr.value in _WRITING and script.code(func.value) == path
        out = any(a.keyword and a.keyword.value == "out" and script.code(a.value) == path
                  for a in other.args)  # fmt: skip
        if (filled or out) and _matters(script, other, call, own, home):
            return True
    return False


def _matters(
    script: Script, write: cst.CSTNode, call: cst.Call, own: bool, home: cst.FunctionDef | None
) -> bool:
    """Whether a write can come after the tensor was made."""
    place = script.function(write)
    if own and place is home:
        loop = next(script.loops_around(call), None)
        again = loop is not None and script.tree.inside(write, loop.node)
        return again or script.tree.order(write) > script.tree.order(call)
    if own:
        return place is None
    return place is not None and place.name.value != "__init__"


def _collated(script: Script, call: cst.Call, fate: TensorFate) -> bool:
    """Whether a dataset returns a tensor to loaders that all copy it into their batch."""
    owner = _dataset(script, call)
    function = script.function(call)
    if fate is not TensorFate.RETURNED or owner is None or function is None:
        return False
    if function.name.value != "__getitem__":
        return False
    loaders = list(script.calls("torch.utils.data.DataLoader"))
    handed = [site.given("dataset", 0) for site in loaders]
    known = any("Dataset" in base for base in script.functions.bases(owner)) or any(
        arg is not None and script.functions.instance_of(arg.value) is owner for arg in handed
    )
    if (
        not loaders
        or not known
        or any(
            script.functions.instance_of(item.value) is owner for item in script.all(cst.Subscript)
        )
    ):
        return False
    return not any(
        site.has_splat
        or site.given("collate_fn", 6) is not None
        or site.argument("batch_size", 1).equals(None)
        for site in loaders
    )
