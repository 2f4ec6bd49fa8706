"""The whole script: head, data, network, optimizer, loops, and the parameters at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hypothesis import strategies as st

from trainings.data import write_data
from trainings.loops import write_loops
from trainings.network import write_network
from trainings.writer import Setup, Task, Writer, inner

__all__ = ["COMPOSED", "training_scripts"]

COMPOSED: Final = (
    *("TL101", "TL102", "TL104", "TL105", "TL106", "TL108"),
    *("TL201", "TL202", "TL203", "TL204", "TL206", "TL208", "TL209"),
    *("TL302", "TL307", "TL310", "TL311", "TL313", "TL314", "TL315"),
    *("TL404", "TL405", "TL406", "TL408", "TL411"),
    *("TL501", "TL502", "TL506", "TL508", "TL509", "TL510"),
    *("TL601", "TL704", "TL801", "TL802", "TL803", "TL903"),
)
"""The rules of which a script can be made to hold the pattern."""

_PARAMETERS: Final = "for name, value in model.state_dict().items():\n    print(name, value)\n"

_PENALTY: Final = """\
def penalty(weight):
    total = 0.0
    for i in range(weight.size(0)):
        total = total + weight[i] ** 2
    return total
"""


@st.composite
def training_scripts(draw: st.DrawFn, focus: str, close: bool = False) -> str:
    """Draw a script that runs in some milliseconds and holds the pattern of the rule `focus`.

    `close` says that fixes which round differently are to be made as well.
    """
    writer = Writer(draw, focus, close)
    form = writer.pick(
        ("rows", "TL101 TL404 TL405 TL502"),
        ("images", "TL307"),
        ("tokens", "TL203 TL310 TL315 TL406"),
    )
    task = Task(form, writer.pick((0, ""), (3, "")))
    data, feed = write_data(writer, task)
    network = write_network(writer, task)
    lines, setup = _setup(writer, task)
    loops = write_loops(_of(network, writer), task, feed, setup)
    if writer.pick((False, ""), (True, "TL101")):
        loops[-1] = f'if __name__ == "__main__":\n{inner([loops[-1]])}'
    sections = [data, network, lines, *loops, _PARAMETERS]
    if "init_process_group(" in network:
        sections.append("dist.destroy_process_group()")
    body = "\n\n\n".join(section.strip() for section in sections) + "\n"
    if "penalty(" in body:
        body = f"{_PENALTY}\n\n{body}"
    return f"{_head(writer, body)}\n\n{body}"


def _of(network: str, writer: Writer) -> Writer:
    """Return a writer that leaves out what the network cannot do on every processor."""
    return replace(writer, close=True) if "nn.LSTM" in network else writer


_IMPORTS: Final = {
    "dist.": "import torch.distributed as dist",
    "DistributedDataParallel(": "from torch.nn.parallel import DistributedDataParallel",
    "Variable(": "from torch.autograd import Variable",
    "checkpoint(": "from torch.utils.checkpoint import checkpoint",
    "F.": "import torch.nn.functional as F",
    "DataLoader(": "from torch.utils.data import DataLoader, Dataset, TensorDataset",
}


def _head(writer: Writer, body: str) -> str:
    """Write the imports that the rest needs, the seeds, the device, and what was left on."""
    left = writer.some(
        ("torch.autograd.set_detect_anomaly(True)", "TL801"),
        ('os.environ["CUDA_LAUNCH_BLOCKING"] = "1"', "TL803"),
    )
    lines = [
        "import copy" if "copy.deepcopy" in body else "",
        "import io" if "io.BytesIO" in body else "",
        "import math" if "math." in body else "",
        "import os" if any("os." in line for line in left) else "",
        "import numpy as np",
        "import torch",
        writer.pick(("from torch import nn", ""), ("import torch.nn as nn", "")),
        *(line for word, line in _IMPORTS.items() if word in body),
        f"\ntorch.manual_seed({writer.draw(st.integers(0, 9))})",
        "rng = np.random.default_rng(7)",
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")',
        *left,
    ]
    return "\n".join(line for line in lines if line)


def _setup(writer: Writer, task: Task) -> tuple[str, Setup]:
    """Write the loss, the optimizer and the schedule, which may be none."""
    loss = f"criterion = {'nn.CrossEntropyLoss()' if task.classes else 'nn.MSELoss()'}"
    rebuilt = writer.pick(("", "TL104 TL206"), ("", ""), (loss, "TL510"))
    # By default it makes whole steps of what rounds to nothing: the bias before a batch norm.
    eps = ", eps=1e-4" if writer.close else ""
    optimizer = writer.pick(
        ("SGD(model.parameters(), lr=0.05)", "TL314"),
        ("SGD(model.parameters(), lr=0.05, momentum=0.9)", ""),
        ("Adam(model.parameters(), lr=0.01)", "TL501"),
        ("AdamW(model.parameters(), lr=0.01, weight_decay=0.1)", "TL501"),
        (f"Adagrad(model.parameters(), lr=0.05{eps})", ""),
        ("RMSprop(model.parameters(), lr=0.01)", ""),
    )
    scheduler = writer.pick(
        ("", ""),
        ("StepLR(optimizer, step_size=1, gamma=0.5)", ""),
        ("ExponentialLR(optimizer, 0.9)", ""),
    )
    lines = [
        writer.maybe(
            "for param in model.out.parameters():\n    param.requires_grad = False",
            "TL508",
            "TL404 TL502 TL704",
        ),
        writer.maybe("averaged = copy.deepcopy(model)", "TL411 TL509", "TL502 TL704"),
        "" if rebuilt else loss,
        f"optimizer = torch.optim.{optimizer}",
        f"scheduler = torch.optim.lr_scheduler.{scheduler}" if scheduler else "",
    ]
    text = "\n".join(line for line in lines if line)
    return text, Setup(scheduler, rebuilt, averaged="averaged" in text)
