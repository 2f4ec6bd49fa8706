"""The events of a trace in JSON, read piece by piece."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, TextIO

from torchlint.profiles.recording import ProfileError

_PIECE: Final = 1 << 20
_LONGEST: Final = 1 << 24
"""The most characters of one event, and of what stands before the first."""
_KEY: Final = '"traceEvents"'
_BROKEN: Final = "it is not JSON as torch.profiler writes it"
_BETWEEN: Final = re.compile(r"[\s,]*")
"""What stands between two events."""


def events(file: TextIO) -> Iterator[dict[str, Any]]:
    """Yield the items of the list `traceEvents`, or of a document that is a list."""
    text = _start(file)
    decode = json.JSONDecoder().raw_decode
    at = 0
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        if at < len(text) and text[at] == "]":
            return
        try:
            if at >= len(text):
                raise ValueError
            event, at = decode(text, at)
        except (ValueError, RecursionError):
            more = file.read(max(_PIECE, len(text) - at))
            if not more or len(text) - at > _LONGEST:
                raise ProfileError(_BROKEN) from None
            text, at = text[at:] + more, 0
            continue
        if isinstance(event, dict):
            yield event


def _start(file: TextIO) -> str:
    """Read up to the first event, and return what was read beyond."""
    text = file.read(_PIECE)
    if text.lstrip().startswith("["):
        return text.lstrip()[1:]
    if not text.lstrip().startswith("{"):
        raise ProfileError(_BROKEN)
    while True:
        at = text.find(_KEY)
        opened = text.find("[", at) if at >= 0 else -1
        if opened >= 0:
            return text[opened + 1 :]
        more = file.read(_PIECE)
        if not more or len(text) > _LONGEST:
            raise ProfileError("it has no list `traceEvents`, so no profiler of torch wrote it")
        text += more
