"""Where the batches come from: loaders over tensors and over datasets, slices, lists of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trainings.writer import Feed, Task, Writer, inner

__all__ = ["write_data"]

_INPUTS: Final = {
    "rows": "rng.normal(size=({n}, 6)).astype(np.float32)",
    "images": "rng.normal(size=({n}, 1, 6, 6)).astype(np.float32)",
    "tokens": "rng.integers(0, 9, size=({n}, 5))",
}
_TARGETS: Final = {
    0: "rng.normal(size={n}).astype(np.float32)",
    3: "rng.integers(0, 3, size={n})",
}

_WORK: Final = {
    "rows": 'np.convolve(self.inputs[index], [0.2, 0.5, 0.3], mode="same").astype(np.float32)',
    "images": "np.fft.fft2(self.inputs[index]).real.astype(np.float32)",
    "tokens": "np.sort(self.inputs[index])",
}
"""What a dataset computes for each item."""

_DATASET: Final = """\

class Items(Dataset):
    def __init__(self, inputs, targets):
        self.inputs = inputs
        self.targets = targets

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
{item}


dataset = Items(inputs, targets)
"""

_COLLATE: Final = """\

def collate(items):
    inputs = torch.{made}([item[0] for item in items])
    targets = torch.tensor(np.array([item[1] for item in items]))
    return inputs, targets


"""


def write_data(writer: Writer, task: Task) -> tuple[str, Feed]:
    """Write the data of a task, and say how its batches come."""
    arrays = f"inputs = {_INPUTS[task.form]}\ntargets = {_TARGETS[task.classes]}\n"
    text, feed = writer.pick(*_SOURCES)(writer, task)
    return arrays.format(n=task.items) + text, feed


def _of_tensors(writer: Writer, task: Task) -> tuple[str, Feed]:
    made = writer.pick(("from_numpy", ""), ("tensor", ""))
    text = f"dataset = TensorDataset(torch.{made}(inputs), torch.{made}(targets))\n"
    return _loaded(writer, task, text)


def _of_items(writer: Writer, task: Task) -> tuple[str, Feed]:
    item = writer.pick(
        (["return torch.tensor(self.inputs[index]), torch.tensor(self.targets[index])"], "TL105"),
        (["x = torch.tensor(self.inputs[index])", "return x, self.targets[index]"], "TL105"),
        (["x, y = self.inputs[index], self.targets[index]", "return torch.tensor(x), y"], "TL105"),
        (["return torch.from_numpy(self.inputs[index]), self.targets[index]"], ""),
    )
    return _loaded(writer, task, _DATASET.format(item=inner(item, 2)))


def _of_computed_items(writer: Writer, task: Task) -> tuple[str, Feed]:
    item = [f"x = {_WORK[task.form]}", "return torch.from_numpy(x), self.targets[index]"]
    return _loaded(writer, task, _DATASET.format(item=inner(item, 2)))


def _of_gathered_items(writer: Writer, task: Task) -> tuple[str, Feed]:
    made = writer.pick(("tensor", ""), ("as_tensor", ""))
    item = inner(["return self.inputs[index], self.targets[index]"], 2)
    text = _COLLATE.format(made=made) + _DATASET.format(item=item)
    return _loaded(writer, task, text, "collate_fn=collate")


def _loaded(writer: Writer, task: Task, dataset: str, *more: str) -> tuple[str, Feed]:
    """Put a loader over a dataset: made once, or for each epoch."""
    options = writer.some(("shuffle=True", ""), ("drop_last=True", ""))
    arguments = ["dataset", f"batch_size={task.batch}", *options, *more]
    loader = f"loader = DataLoader({', '.join(arguments)})\n"
    made, each_epoch = writer.pick(((loader, ""), ""), ((loader, ""), ""), (("", loader), "TL104"))
    head, first = writer.pick(
        (("for xb, yb in loader:", ""), ""),
        (("for step, (xb, yb) in enumerate(loader):", ""), "TL704"),
        (("for batch in loader:", "xb, yb = batch\n"), ""),
        (("for step, batch in enumerate(loader):", "xb, yb = batch[0], batch[1]\n"), "TL704"),
    )
    moved = writer.pick(
        ("xb = xb.to(device)\nyb = yb.to(device)\n", "TL102 TL204 TL307"),
        ("xb, yb = xb.to(device), yb.to(device)\n", "TL102 TL204 TL307"),
        ("", ""),
    )
    wrapped = writer.maybe("xb, yb = Variable(xb), Variable(yb)\n", "TL408")
    index = "step" if "enumerate" in head else ""
    return dataset + made, Feed(head, first + moved + wrapped, each_epoch, index=index)


def _by_slices(writer: Writer, task: Task) -> tuple[str, Feed]:
    order = writer.maybe(f"order = torch.randperm({task.items})\n")
    part = f"start : start + {task.batch}"
    chosen = f"order[{part}]" if order else part
    first = writer.pick(
        (f"xb = inputs[{chosen}].to(device)\nyb = targets[{chosen}].to(device)\n", ""),
        (f"xb = Variable(inputs[{chosen}])\nyb = Variable(targets[{chosen}])\n", "TL408"),
    )
    return "inputs = torch.tensor(inputs)\ntargets = torch.tensor(targets)\n", _hand(
        task, first, order
    )


def _by_lists(writer: Writer, task: Task) -> tuple[str, Feed]:
    made = writer.pick(("tensor", "TL106"), ("as_tensor", ""))
    last = f"min(start + {task.batch}, {task.items})"
    first = (
        f"xb = torch.{made}([inputs[i] for i in range(start, {last})])\n"
        f"yb = torch.from_numpy(targets[start : start + {task.batch}])\n"
    )
    return "", _hand(task, first, "")


def _hand(task: Task, first: str, before: str) -> Feed:
    head = f"for start in range(0, {task.items}, {task.batch}):"
    steps = str(-(-task.items // task.batch))
    return Feed(head, first, before, steps, index=f"start // {task.batch}")


_SOURCES: Final[tuple[tuple[Callable[[Writer, Task], tuple[str, Feed]], str], ...]] = (
    (_of_tensors, "TL102 TL104 TL108 TL204 TL307 TL704"),
    (_of_items, "TL102 TL104 TL105 TL204 TL307 TL704"),
    (_of_computed_items, "TL101 TL102 TL104 TL204 TL307 TL704"),
    (_of_gathered_items, "TL104 TL307 TL704"),
    (_by_slices, "TL408"),
    (_by_lists, "TL106"),
)
