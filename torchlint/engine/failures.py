"""Internal errors: report one in a line and go on with the other files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from torchlint.config import ConfigError
from torchlint.registry import RegistryError

R = TypeVar("R")


def guarded(path: str, work: Callable[[], R], otherwise: Callable[[str], R]) -> R:
    """Return `work()`; if it raises, return `otherwise` of the error message.

    Errors of the configuration and of rule packs do not belong to the file, and are raised.
    """
    try:
        return work()
    except (ConfigError, RegistryError):
        raise
    except Exception as error:
        return otherwise(internal_error("the analysis", path, error, "the file was skipped"))


def internal_error(who: str, path: str, error: Exception, rest: str) -> str:
    """Return the message for an internal error on a file; `rest` says what still ran."""
    from traceback import extract_tb

    frames = extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    said = " ".join(str(error).split())
    return (
        f"internal error in {who} on {path} (please report): "
        f"{type(error).__name__}: {said}{place}; {rest}"
    )
