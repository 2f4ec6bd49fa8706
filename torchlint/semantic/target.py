"""For which torch and which device a script is judged."""

from __future__ import annotations

from torchlint.record import Record

__all__ = ["Target"]


class Target(Record):
    """The lowest torch that must run the result (None: the newest) and the device in use."""

    torch: tuple[int, int] | None = None
    device: str = "auto"

    def has(self, version: tuple[int, int]) -> bool:
        """Whether every torch in question is at least `version`."""
        return self.torch is None or self.torch >= version
