from __future__ import annotations

import json
from typing import Any


def code(source: str, **members: Any) -> dict[str, Any]:
    """Return a code cell as Jupyter writes it."""
    cell: dict[str, Any] = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
    }
    return {**cell, "source": source.splitlines(keepends=True), **members}


def markdown(source: str) -> dict[str, Any]:
    """Return a cell of text."""
    return {"cell_type": "markdown", "metadata": {}, "source": source.splitlines(keepends=True)}


def notebook(*cells: dict[str, Any], language: str = "python", indent: int | None = 1) -> str:
    """Return the JSON of a notebook of format 4 as Jupyter writes it."""
    whole = {
        "cells": list(cells),
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": language, "name": "python3"},
            "language_info": {"name": language},
        },
        "nbformat": 4,
        "nbformat_minor": 4,
    }
    return json.dumps(whole, indent=indent, ensure_ascii=False) + "\n"


TRAINING = notebook(
    markdown("# Digits"),
    code("!pip install -q torchvision\n%matplotlib inline"),
    code(
        "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n"
        "from mine import Digits"
    ),
    code("%%bash\nnvidia-smi | grep import"),
    code(
        "device = torch.device('cuda')\n"
        "train_loader = DataLoader(Digits(), batch_size=64, shuffle=True)  # größer?"
    ),
    code(
        "net = nn.Linear(784, 10).to(device)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1, fused=True)\n"
        "net?"
    ),
    code(
        "%%time\n"
        "torch.autograd.set_detect_anomaly(True)\n"
        "for epoch in range(3):\n"
        "    total = 0.0\n"
        "    for x, y in train_loader:\n"
        "        optimizer.zero_grad()\n"
        "        loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))\n"
        "        loss.backward()\n"
        "        optimizer.step()\n"
        "        total += loss.item()\n"
        "    print(epoch, (total\n"
        "% 7))",
        outputs=[{"name": "stdout", "output_type": "stream", "text": ["0 1.0 \\n\n", "\u001b[0m"]}],
    ),
)
