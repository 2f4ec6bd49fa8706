"""Pages of rules for packs that tests write."""

from __future__ import annotations

__all__ = ["page"]

_BODY = """
## What it does
It.

## Why it is slow
So.

## When not to
Never.

## Fix safety
As it says.

## Reported

### a
```diff
! x
```

## Not reported

### b
```python
y
```
"""


def page(code: str, name: str, /, **parts: str) -> str:
    """Return a page in Markdown; `parts` are keys of the header."""
    header = {
        "code": code,
        "name": name,
        "summary": name,
        "impact": "low",
        "safety": "none",
        "needs": "[torch]",
        **parts,
    }
    lines = "".join(f"{key}: {value}\n" for key, value in header.items() if value)
    return f"---\n{lines}---\n{_BODY}"
