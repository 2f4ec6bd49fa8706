"""Which fixes may be made: the user's own grades, and the gate."""

from __future__ import annotations

from torchlint.config import Settings
from torchlint.finding import Finding, Safety

__all__ = ["applies"]


def applies(finding: Finding, settings: Settings) -> bool:
    """Whether `fix` makes the fix of this finding under these settings."""
    gate = Safety.UNSAFE if settings.unsafe_fixes else Safety.CLOSE
    return finding.fix is not None and finding.fix.safety >= gate
