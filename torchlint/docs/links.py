"""Links between the generated pages."""

from __future__ import annotations

import re

from torchlint.docs.articles import TITLE, tip_of



def anchor(heading: str) -> str:
    """Return the anchor that Markdown renderers make for a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def tip_link(source: str, page: str) -> str:
    """Return a link to the tip of `S3.7` on the page of tips."""
    tip = tip_of(source)
    return f"[{TITLE}: {tip}]({page}#{anchor(tip)})"
