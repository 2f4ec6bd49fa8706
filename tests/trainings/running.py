"""Running a script in this process, and telling two runs apart."""

from __future__ import annotations

import math
import os
import random
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

__all__ = ["Outcome", "difference", "run"]


@dataclass(frozen=True)
class Outcome:
    """What a script printed, value by value, and the random stream that it left behind."""

    printed: list[Any]
    stream: torch.Tensor


def run(text: str, *, double: bool = False) -> Outcome:
    """Run a script as `python train.py` would, and take down what it prints.

    `double` runs it in double precision, where other rounding is told from other mathematics.
    """
    if double:
        text = text.replace("np.float32", "np.float64").replace(".float()", ".double()")
    printed: list[Any] = []

    def take_down(*values: object) -> None:
        printed.extend(_copy(value) for value in values)

    with _as_new():
        torch.set_default_dtype(torch.float64 if double else torch.float32)
        namespace = {"__name__": "__main__", "print": take_down}
        exec(compile(text, "train.py", "exec"), namespace)
        return Outcome(printed, torch.get_rng_state())


@contextmanager
def _as_new() -> Iterator[None]:
    """Return a script what a new process has, and take back what it changed."""
    environment, threads = dict(os.environ), torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)
        torch.autograd.set_detect_anomaly(False)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        torch.set_default_dtype(torch.float32)
        os.environ.clear()
        os.environ.update(environment)


def _copy(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return list(map(_copy, value)) if isinstance(value, (list, tuple)) else value


def difference(before: Outcome, after: Outcome, tolerance: float) -> str | None:
    """Return how two runs differ, None if they do not; without tolerance to the last bit."""
    if len(before.printed) != len(after.printed):
        return f"{len(before.printed)} values became {len(after.printed)}"
    for first, second in zip(before.printed, after.printed, strict=True):
        if not _same(first, second, tolerance):
            return f"{first!r} became {second!r}"
    if not torch.equal(before.stream, after.stream):
        return "the random stream went on otherwise"
    return None


_NUMBERS: Final = (int, float, np.floating)


def _digits_off(text: str) -> str:
    """Return a text with its numbers taken out: what is rounded otherwise is printed otherwise."""
    return re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "0", text)


def _is_nan(value: Any) -> bool:
    return isinstance(value, _NUMBERS) and math.isnan(value)


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether tensors are equal to the last bit, those of a training that diverged too."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    return bool(((first == second) | (first.isnan() & second.isnan())).all())


def _same(first: Any, second: Any, tolerance: float) -> bool:
    if isinstance(first, list) and isinstance(second, list):
        pairs = zip(first, second, strict=False)
        return len(first) == len(second) and all(_same(*pair, tolerance) for pair in pairs)
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        if not tolerance:
            return _equal(first, second)
        first, second = first.double(), second.double()
        return bool(torch.allclose(first, second, tolerance, tolerance, equal_nan=True))
    if _is_nan(first) and _is_nan(second):
        return type(first) is type(second)
    if isinstance(first, _NUMBERS) and isinstance(second, _NUMBERS) and tolerance:
        return math.isclose(first, second, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(first, str) and tolerance:
        return isinstance(second, str) and _digits_off(first) == _digits_off(second)
    return type(first) is type(second) and bool(first == second)
