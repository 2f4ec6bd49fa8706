"""The process that is torchrun: it starts the ranks, and ends with the one that started it."""

from __future__ import annotations

from collections.abc import Sequence

from torchlint.harness.child.run import end_with_parent

__all__ = ["agent"]


def agent(arguments: Sequence[str]) -> None:
    """Be `torchrun` with these arguments."""
    end_with_parent()
    from torch.distributed.run import main

    main(arguments)
