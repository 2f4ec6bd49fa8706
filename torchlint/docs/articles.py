"""The public article from which rules come, and its tips."""

from __future__ import annotations

from typing import Final

LAST: Final = "S3"
"""The key of the article that rules use; `S0` to `S2` are texts without a public address."""

TITLE: Final = "Faster Deep Learning Training with PyTorch"

ORIGIN: Final = (
    "Many rules look for what an article of 2021 advises: "
    f"[{TITLE}](https://efficientdl.com/faster-deep-learning-in-pytorch-a-guide/) by Lorenz Kuhn. "
    "Below are its tips and their rules. Most of them are also in PyTorch's "
    "[Performance Tuning Guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)."
)

TIPS: Final = (
    "Learning-rate schedule",
    "Workers and pinned memory",
    "Batch size",
    "Mixed precision",
    "Choice of optimizer",
    "cuDNN autotuner",
    "Transfers between host and device",
    "Activation checkpointing",
    "Gradient accumulation",
    "Training on several GPUs",
    "Gradients set to None",
    "Tensors that share memory with arrays",
    "Debugging tools switched off",
    "Gradient clipping",
    "No bias before batch norm",
    "No gradients in evaluation",
    "Normalized inputs and batch norm",
)
"""The subjects of the seventeen tips, in order."""

BONUS: Final = "bonus"
"""The word after the key for advice outside of the tips."""


def tip_of(source: str) -> str:
    """Return the heading of the tip of `S3.7`."""
    number = source.partition(".")[2]
    return "Other advice" if number == BONUS else f"{number}. {TIPS[int(number) - 1]}"
