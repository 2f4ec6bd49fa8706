"""The torchrun process: it starts the ranks, and ends when its parent ends."""

from __future__ import annotations

from collections.abc import Sequence

from torchlint.harness.child.run import end_with_parent


def agent(arguments: Sequence[str]) -> None:
    """Run `torchrun` with these arguments."""
    end_with_parent()
    from torch.distributed.run import main

    main(arguments)
