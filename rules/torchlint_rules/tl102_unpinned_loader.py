"""TL102: a loader whose batches are copied to the GPU from pageable memory."""

from __future__ import annotations

from collections.abc import Iterator

from torchlint.api import CallSite, Finding, Fix, Rule, Script
from torchlint_rules._pinning import available, unpinned, unseen


class UnpinnedLoader(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loader whose batches go to a GPU from pageable memory."""
        for site in unpinned(script):
            asked = available(script)
            assert asked is not None
            message = (
                f"{script.loaders.label(site.node)} hands out pageable memory: every batch is "
                f"copied twice on its way to the GPU; pass pin_memory={asked}"
            )
            yield Finding(self.code, script.span(site.node), message, _fix(script, site, asked))


def _fix(script: Script, site: CallSite, asked: str) -> Fix | None:
    imported = script.rewrite.importing("torch", at=site.node)
    if imported is None:
        return None
    torch, edits = imported
    value = asked.replace("torch", torch, 1)
    change = script.rewrite.with_keyword(site.node, "pin_memory", value)
    deprecated = site.given("pin_memory_device")
    if deprecated is not None:
        if not script.target.has((2, 8)):
            return None
        change = (*change, *script.rewrite.without_argument(site.node, deprecated))
    title, because = f"Pass pin_memory={value}", unseen(script, site)
    doubt = script.target.doubt((2, 6)) if "accelerator" in asked else ""
    if doubt:
        because = because or f"`torch.accelerator` {doubt}"
    if because:
        return Fix.unsafe(title, change, edits, because=because)
    return Fix.exact(title, change, edits)
