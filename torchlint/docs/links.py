"""Links between the generated pages."""

from __future__ import annotations

import re

from torchlint.docs.articles import article_of, tip_of



def anchor(heading: str) -> str:
    """Return the anchor that Markdown renderers make for a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def article_link(source: str, page: str) -> str:
    """Return a link to `S0` or to the tip of `S3.7` on the page of articles."""
    tip = tip_of(source)
    title = f"{article_of(source)} {tip}".rstrip()
    return f"[{title}]({page}#{anchor(tip or article_of(source))})"
