"""One call of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.record import Record

if TYPE_CHECKING:
    from torchlint.cli.printed import Command
    from torchlint.engine.standby import Standby

__all__ = ["Invocation"]


class Invocation(Record):
    """What the program has at hand before it reads its command line."""

    command: Command | None
    standby: Standby | None
