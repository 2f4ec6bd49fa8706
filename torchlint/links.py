"""Where torchlint is on the web: the one place for its addresses."""

from __future__ import annotations

from typing import Final

REPOSITORY: Final = "https://github.com/torchlint/torchlint"
DOCUMENTATION: Final = "https://torchlint.github.io/torchlint"
"""The site, without a slash at its end."""

_BUILT_IN: Final = "torchlint_rules"


def rule_url(code: str, module: str) -> str | None:
    """Return the address of the page of a rule, None for a rule of another pack."""
    if module.partition(".")[0] != _BUILT_IN:
        return None
    return f"{DOCUMENTATION}/rules/{code}/"
