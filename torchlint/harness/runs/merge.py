"""One trace for all ranks of a run, from the slowest rank or the first failure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final, TypeVar

from torchlint.harness.trace import Failure, Trace

_T = TypeVar("_T")

_CONSEQUENCE: Final = re.compile(
    r"Connection (closed|reset|refused)|Broken pipe|NCCL|ProcessGroup|Socket|gloo"
    r"|[Tt]imed out|store"
)
"""Errors that follow from the end of another rank."""


def merged(ranks: Sequence[Trace]) -> Trace:
    """Return one trace for all ranks, none of which failed.

    Times are those of the slowest rank, for which the others wait. A loss is the mean over
    ranks, that of the global batch, since gradients are averaged. Memory is that of the rank
    that needs most.
    """
    times = tuple(fmean(rank.durations) if rank.durations else 0.0 for rank in ranks)
    slowest = ranks[max(range(len(ranks)), key=times.__getitem__)]
    memories = [rank.device_memory for rank in ranks if rank.device_memory is not None]
    return replace(
        slowest,
        ending="full" if all(rank.ending == "full" for rank in ranks) else "ended",
        taken=min(rank.taken for rank in ranks),
        losses=_mean_losses(ranks),
        loss_steps=ranks[0].loss_steps,
        parameters=ranks[0].parameters,
        diverged=len({rank.weights for rank in ranks}) > 1,
        misaligned=next((rank.misaligned for rank in ranks if rank.misaligned), ""),
        syncs=max((rank.syncs for rank in ranks), key=len),
        sync_steps=ranks[0].sync_steps,
        host_memory=max(rank.host_memory for rank in ranks),
        worker_memory=max(rank.worker_memory for rank in ranks),
        device_memory=max(memories, default=None),
        modules=_all(rank.modules for rank in ranks),
        warnings=_all(rank.warnings for rank in ranks),
        diverted=_all(rank.diverted for rank in ranks),
        memories=max((rank.memories for rank in ranks), key=_reserved),
        rank_times=times if any(times) else (),
        output=ranks[0].output,
        profile=ranks[0].profile,
        ran=_all_lines(ranks),
    )


def _reserved(memories: tuple[tuple[int, int], ...]) -> int:
    return sum(reserved for _, reserved in memories)


def _mean_losses(ranks: Sequence[Trace]) -> tuple[float, ...]:
    count = min(len(rank.losses) for rank in ranks)
    if any(len(rank.losses) != count for rank in ranks):
        return ranks[0].losses
    return tuple(fmean(losses) for losses in zip(*(rank.losses for rank in ranks), strict=True))


def _all_lines(ranks: Sequence[Trace]) -> dict[str, tuple[int, ...]]:
    files = {path for rank in ranks for path in rank.ran}
    return {path: _all(tuple(rank.ran.get(path, ())) for rank in ranks) for path in files}


def _all(groups: Iterable[tuple[_T, ...]]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))


def first_failure(failures: Sequence[tuple[int, float, Failure]], count: int) -> Failure:
    """Return the failure that caused the others, with its rank; each comes with its time."""
    causes = [each for each in failures if not _CONSEQUENCE.search(each[2].message)]
    rank, _, failure = min(causes or failures, key=lambda each: each[1])
    return replace(failure, message=f"rank {rank} of {count}: {failure.message}")
