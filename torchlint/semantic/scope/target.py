"""Target: the torch version and the device that a script is checked for."""

from __future__ import annotations

from typing import Final, NamedTuple

_OLDEST: Final = (2, 0)
"""The oldest torch to support in a project that states no version."""


class Target(NamedTuple):
    """The lowest torch that must run the result (None: the newest) and the device in use."""

    torch: tuple[int, int] | None = None
    device: str = "auto"

    def has(self, version: tuple[int, int]) -> bool:
        """Return whether every supported torch is at least `version`."""
        return self.torch is None or self.torch >= version

    def doubt(self, version: tuple[int, int]) -> str:
        """Return why code that needs a torch version may not run, "" if every project has it.

        Without a stated version a rule may mention the newest torch, but an automatic fix must run
        on the oldest.
        """
        if (self.torch or _OLDEST) >= version:
            return ""
        needed = ".".join(map(str, version))
        return f"needs torch {needed}, and no `target-torch` says that the project has it"
