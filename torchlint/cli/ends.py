"""How a program ends that the system does not let go on."""

from __future__ import annotations

import errno
from typing import Final

__all__ = ["INTERRUPTED", "NO_ROOM", "READER_GONE"]

INTERRUPTED: Final = 130
"""The exit code for SIGINT: somebody pressed Ctrl-C."""
READER_GONE: Final = 141
"""The exit code for SIGPIPE: who read the output read no further."""
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a write for which there is no room."""
