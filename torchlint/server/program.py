"""The entry point of the server."""

from __future__ import annotations

import logging
import signal
import sys

from torchlint.registry import Registry
from torchlint.server.handlers import attach
from torchlint.server.protocol import BoundedInput
from torchlint.server.session import Session


def serve(registry: Registry) -> int:
    """Serve one editor over standard input and output, and return the exit code.

    It is 0 when the editor shut the server down, else 1. Whatever rules print goes to standard
    error.
    """
    if not sys.flags.dev_mode:
        logging.getLogger("pygls").setLevel(logging.CRITICAL)
    # The reading thread cannot be interrupted, and there is nothing to clean up.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    out, sys.stdout = sys.stdout.buffer, sys.stderr
    session = Session(registry)
    attach(session)
    session.start_io(BoundedInput(sys.stdin.buffer), out)  # type: ignore[arg-type]
    return 0 if session.ended_well else 1
