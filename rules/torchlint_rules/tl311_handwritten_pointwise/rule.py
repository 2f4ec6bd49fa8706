"""TL311: a handwritten activation or norm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Impact, Rule, Script
from torchlint_rules.tl311_handwritten_pointwise.pointwise import Formula, formulas

_TRANSPARENT: Final = ("builtins.", "functools.", "torch.", "abc.")
_FUNCTIONAL: Final = "torch.nn.functional"


class HandwrittenPointwise(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Report every formula that one function of torch computes, if no compiler gets it."""
        for formula in formulas(script):
            if not script.program.target.has(formula.since) or script.modules.reach.is_compiled(
                formula.node
            ):
                continue
            if _is_registered(script, formula):
                continue
            short = "F" if formula.module == _FUNCTIONAL else "torch"
            message = (
                f"`{script.tree.brief(formula.node)}` takes one pass over memory per operation; "
                f"`{short}.{formula.function}` is one fused kernel"
            )
            impact: Impact = "medium" if script.modules.reach.is_trained(formula.node) else "low"
            fix = _fix(script, formula)
            yield Finding(self.code, script.span(formula.node), message, fix, impact=impact)


def _is_registered(script: Script, formula: Formula) -> bool:
    """Return whether a decorator of another module takes the function around a formula."""
    function = script.scopes.function(formula.node)
    marks = function.decorators if function is not None else ()
    named = (m.decorator.func if isinstance(m.decorator, cst.Call) else m.decorator for m in marks)
    return any(not (script.name(each) or "").startswith(_TRANSPARENT) for each in named)


def _fix(script: Script, formula: Formula) -> Fix | None:
    alias = "F" if formula.module == _FUNCTIONAL else ""
    found = script.edits.importing(formula.module, alias=alias, at=formula.node)
    if found is None or not formula.fixed or "#" in script.code(formula.node):
        return None
    word, importing = found
    bound = script.scopes.lookup(word.partition(".")[0], script.scopes.scope(formula.node))
    if bound is not None and bound is not script.scopes.module:
        return None
    operands = ", ".join((script.tree.argument(formula.operand), *formula.rest))
    text = f"{word}.{formula.function}({operands})"
    kept = {name.value for name in script.tree.within(formula.operand, cst.Name)}
    kept |= {
        part for rest in formula.rest for part in rest.replace(".", " ").replace("=", " ").split()
    }
    kept.add(word.partition(".")[0])
    gone = [name for name in script.tree.within(formula.node, cst.Name) if name.value not in kept]
    imports = script.edits.without_imports(*gone)
    if imports is None:
        return None
    edits = script.edits.united(script.edits.replace(formula.node, text), imports, importing)
    title, doubt = f"Call `{word}.{formula.function}`", script.program.target.doubt(formula.since)
    if doubt:
        return Fix.unsafe(title, edits, because=f"`{formula.function}` {doubt}")
    return Fix.close(title, edits, because="rounds differently")
