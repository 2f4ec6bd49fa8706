"""How the server is run."""

from __future__ import annotations

import logging
import signal
import sys

from torchlint.registry import Registry
from torchlint.server.handlers import attach
from torchlint.server.protocol import BoundedInput
from torchlint.server.session import Session

__all__ = ["serve"]


def serve(registry: Registry) -> int:
    """Serve one editor over standard input and output, and give the exit code.

    It is 0 when the editor took its leave, else 1. What a rule may print goes to standard error.
    """
    if not sys.flags.dev_mode:
        logging.getLogger("pygls").setLevel(logging.CRITICAL)
    # The thread that reads cannot be interrupted, and there is nothing to put in order.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    out, sys.stdout = sys.stdout.buffer, sys.stderr
    session = Session(registry)
    attach(session)
    session.start_io(BoundedInput(sys.stdin.buffer), out)  # type: ignore[arg-type]
    return 0 if session.ended_well else 1
