"""Exit codes and errors for runs that are cut short."""

from __future__ import annotations

import errno
from typing import Final

INTERRUPTED: Final = 130
"""The exit code after Ctrl-C (SIGINT)."""
READER_GONE: Final = 141
"""The exit code when the reader of the output has exited (SIGPIPE)."""
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a write without enough disk space."""
