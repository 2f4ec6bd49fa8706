"""The four articles from which the rules come, and the tips of the last one."""

from __future__ import annotations

from typing import Final

ARTICLES: Final = {
    "S0": "How can I accelerate deep learning model training in PyTorch?",
    "S1": "Performance Boost: Advanced Training Techniques",
    "S2": "Best Practices for Efficient Deep Learning Model Training",
    "S3": "What can you do to make your training finish faster?",
}
"""The titles, by the keys that rules use."""

ORIGIN: Final = (
    "torchlint began with four articles. Below is what they advise, and the rule that looks for it. "
    "Only the last one has an address here: the first three came to the project as texts without "
    "author or address, and no public page could be identified as theirs. Most of their advice is "
    "also in PyTorch's own "
    "[Performance Tuning Guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)."
)
"""Where the articles came from."""

PUBLISHED: Final = {
    "S3": "By Lorenz Kuhn: [Faster Deep Learning Training with PyTorch]"
    "(https://efficientdl.com/faster-deep-learning-in-pytorch-a-guide/), 2021.",
}
"""Author and address, by key, where they are known."""

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
"""The subjects of the seventeen tips of the last article, in order."""

BONUS: Final = "bonus"
"""The word after the key of the last article for advice outside of its tips."""


def article_of(source: str) -> str:
    """Return the title of `S0` or of the article of `S3.7`."""
    return ARTICLES[source.partition(".")[0]]


def tip_of(source: str) -> str:
    """Return the heading of the tip of `S3.7`, empty for a whole article."""
    number = source.partition(".")[2]
    if not number:
        return ""
    return "Other advice" if number == BONUS else f"{number}. {TIPS[int(number) - 1]}"
