"""TL331: attention of Transformers that is told to run without a fused kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Finding, Fix, Rule, Script, Value

_OPTION: Final = "attn_implementation"
_MAKERS: Final = (".from_pretrained", ".from_config")
_WEIGHTS: Final = ("attentions", "cross_attentions", "output_attentions")
_CAPPED: Final = ("gemma-2", "gemma2", "gemma-3", "gpt-oss", "gpt_oss")
"""Networks whose attention limits its scores, or has sinks, which SDPA lacks."""


class EagerAttention(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every network of Transformers that is loaded with eager attention."""
        names = [name for name in script.calls.called if name.endswith(_MAKERS)]
        named = [name for name in names if name.startswith("transformers.")]
        for site in script.calls.of(*named):
            given = site.given(_OPTION)
            if not site.argument(_OPTION).equals("eager") or _asks_for_weights(script):
                continue
            name = _name(site)
            if name is None or any(word in name.lower() for word in _CAPPED):
                continue
            message = (
                f'`{_OPTION}="eager"` computes attention step by step and keeps every weight: '
                "leave it out, and Transformers uses the fused kernel where the network has one"
            )
            fix = None
            if given is not None and isinstance(given.value, cst.SimpleString):
                fix = Fix.unsafe(
                    f"Leave `{_OPTION}` out",
                    script.edits.without_argument(site.node, given),
                    because="a network that drops attention weights draws other masks",
                )
            yield Finding(self.code, script.span(given or site.node), message, fix)


def _name(site: CallSite) -> str | None:
    """Return the name of the weights that a network is loaded from, None if it is unknown."""
    found: Value = site.argument("pretrained_model_name_or_path", 0)
    return found.literal if isinstance(found.literal, str) else None


def _asks_for_weights(script: Script) -> bool:
    """Return whether code in view asks for the weights of attention, or reads them."""
    asked = (arg.keyword.value for arg in script.tree.all(cst.Arg) if arg.keyword is not None)
    return "output_attentions" in asked or any(
        True for word in _WEIGHTS for _ in script.functions.attributes(word)
    )
