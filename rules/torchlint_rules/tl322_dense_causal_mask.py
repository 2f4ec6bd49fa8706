"""TL322: a causal mask is stored and read where a flag would do."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import CallSite, Finding, Fix, Rule, Script, State

_FUNCTION = "torch.nn.functional.scaled_dot_product_attention"


class DenseCausalMask(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every fused attention whose mask only hides the positions to come."""
        for site in script.calls.of(_FUNCTION):
            given = site.given("attn_mask")
            flag = site.argument("is_causal")
            if given is None or site.has_splat:
                continue
            if flag.state is not State.ABSENT and not flag.equals(False):
                continue
            if script.values.scores.is_causal(given.value):
                message = (
                    f"the mask `{script.tree.brief(given.value)}` is causal: `is_causal=True` lets "
                    "the attention skip half of the scores and store no mask"
                )
                yield Finding(self.code, script.span(given), message, _fix(script, site, given))


def _fix(script: Script, site: CallSite, mask: cst.Arg) -> Fix | None:
    flag = site.given("is_causal")
    if mask.keyword is None and mask is not site.node.args[-1]:
        return None
    if flag is None:
        edits = script.edits.replace(mask, "is_causal=True")
    elif flag.keyword is not None:
        edits = script.edits.united(
            script.edits.without_argument(site.node, mask), script.edits.replace(flag.value, "True")
        )
    else:
        return None
    spare = _spare_line(script, mask.value)
    if spare is not None:
        edits = script.edits.united(edits, script.edits.drop(spare))
    because = "another kernel may be chosen, which rounds differently"
    return Fix.close("Pass `is_causal=True` and no mask", edits, because=because)


def _spare_line(script: Script, mask: cst.BaseExpression) -> cst.BaseStatement | None:
    """Return the line that makes a mask for this call alone."""
    assign = script.scopes.line_for(mask)
    if assign is None:
        return None
    line = script.tree.statement(assign)
    small = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    block = script.tree.parent(line)
    shared = isinstance(block, cst.IndentedBlock) and len(block.body) == 1
    return line if script.edits.stands_alone(line) and small and not shared else None
