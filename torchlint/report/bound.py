"""What a script's steps wait for, in words, and what helps."""

from __future__ import annotations

from typing import Final

from torchlint.harness.judging.bound import Bound

_WORDS: Final = {
    "data": "bound by data: the device waits {:.0%} of a step for it; see TL1xx, `torchlint tune`",
    "copies": "bound by copies: the device copies from the host or to it for {:.0%} of a step; "
    "pinned memory and `non_blocking=True` (TL102) hide that, smaller types shorten it",
    "reads": "bound by syncs: the host waits for the device in each step, so it is never ahead; "
    "see TL2xx",
    "launches": "bound by launches: the device is done before the host launches more; fewer and "
    "larger kernels help (TL308, TL501), or a larger batch",
    "device": "bound by the device, which always has work: precision and kernels help (TL3xx)",
}


def bound_words(bound: Bound | None) -> tuple[str, ...]:
    """Return one line on what steps wait for, none where it is the processor or unknown."""
    words = _WORDS.get(bound.by) if bound is not None else None
    if bound is None or words is None:
        return ()
    said = words.format(bound.share or 0.0)
    if bound.reached is not None:
        said += f"; its products reach {bound.reached:.0%} of what a large one does"
    return (said,)
