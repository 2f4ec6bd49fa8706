"""The source tree of torchlint, as developers use it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class CheckoutError(Exception):
    """There is no source tree where one is needed; the message says what to do."""


@dataclass(frozen=True)
class Checkout:
    """The folders of a source tree."""

    root: Path

    @classmethod
    def around(cls, folder: Path) -> Checkout:
        """Return the source tree that contains a folder; raises `CheckoutError`."""
        for root in (folder, *folder.parents):
            found = cls(root)
            if (root / "pyproject.toml").is_file() and found.rules.is_dir():
                return found
        raise CheckoutError(
            "not a torchlint source tree (a pyproject.toml and rules/torchlint_rules): "
            "change into one"
        )

    @property
    def rules(self) -> Path:
        """The built-in pack."""
        return self.root / "rules" / "torchlint_rules"

    @property
    def fixtures(self) -> Path:
        """The golden files, in a folder per rule."""
        return self.root / "fixtures" / "rules"

    @property
    def docs(self) -> Path:
        """The documentation pages."""
        return self.root / "docs"

    @property
    def site(self) -> Path:
        """The generated sources of the site, which git ignores."""
        return self.root / "build" / "docs"
