"""The files of a rule: two side by side, or a folder of its own with its parts."""

from __future__ import annotations

import os
from typing import Final

MODULE: Final = "rule.py"
PAGE: Final = "page.md"
"""The module and the page of a rule that has a folder of its own."""


def page_beside(module: str) -> str:
    """Return the path of the page that belongs to the module of a rule."""
    folder, name = os.path.split(module)
    return os.path.join(folder, PAGE if name == MODULE else f"{name.removesuffix('.py')}.md")  # noqa: PTH118


def pack_folder(module: str) -> str:
    """Return the folder of the pack that the module of a rule belongs to."""
    folder, name = os.path.split(module)
    return os.path.dirname(folder) if name == MODULE else folder  # noqa: PTH120
