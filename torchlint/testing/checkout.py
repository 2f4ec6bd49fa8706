"""The source tree of torchlint that a developer works in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Checkout", "CheckoutError"]


class CheckoutError(Exception):
    """There is no source tree where one is needed; the message says what to do."""


@dataclass(frozen=True)
class Checkout:
    """The folders of a source tree."""

    root: Path

    @classmethod
    def around(cls, folder: Path) -> Checkout:
        """Find the tree that a folder stands in; raises `CheckoutError`."""
        for root in (folder, *folder.parents):
            found = cls(root)
            if (root / "pyproject.toml").is_file() and found.rules.is_dir():
                return found
        raise CheckoutError(
            "this is no source tree of torchlint (a pyproject.toml and rules/torchlint_rules): "
            "change into one"
        )

    @property
    def rules(self) -> Path:
        """The built-in pack."""
        return self.root / "rules" / "torchlint_rules"

    @property
    def fixtures(self) -> Path:
        """A folder of golden files for each rule."""
        return self.root / "fixtures" / "rules"

    @property
    def docs(self) -> Path:
        """The pages for readers."""
        return self.root / "docs"
