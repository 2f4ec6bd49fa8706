"""TL311: a handwritten activation or norm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Rule, Script
from torchlint_rules._pointwise import Formula, formulas

_FUSING: Final = frozenset({"torch.jit.script", "torch.compile"})
_FUNCTIONAL: Final = "torch.nn.functional"


class HandwrittenPointwise(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every formula that one torch function computes."""
        for formula in formulas(script):
            if not script.target.has(formula.since) or _is_fused(script, formula):
                continue
            short = "F" if formula.module == _FUNCTIONAL else "torch"
            message = (
                f"`{script.brief(formula.node)}` passes over memory once per operation: "
                f"`{short}.{formula.function}` does once"
            )
            yield Finding(self.code, script.span(formula.node), message, _fix(script, formula))


def _is_fused(script: Script, formula: Formula) -> bool:
    """Return whether a compiler gets the function around a formula."""
    function = script.function(formula.node)
    while function is not None:
        for each in function.decorators:
            named = each.decorator.func if isinstance(each.decorator, cst.Call) else each.decorator
            if script.name(named) in _FUSING:
                return True
        outer = script.parent(function)
        function = script.function(outer) if outer is not None else None
    return False


def _fix(script: Script, formula: Formula) -> Fix | None:
    alias = "F" if formula.module == _FUNCTIONAL else ""
    found = script.rewrite.importing(formula.module, alias=alias, at=formula.node)
    if found is None or not formula.fixed or "#" in script.code(formula.node):
        return None
    word, importing = found
    bound = script.scopes.lookup(word.partition(".")[0], script.scopes.scope(formula.node))
    if bound is not None and bound is not script.scopes.module:
        return None
    operands = ", ".join((script.argument(formula.operand), *formula.rest))
    text = f"{word}.{formula.function}({operands})"
    kept = {name.value for name in script.within(formula.operand, cst.Name)}
    kept |= {
        part for rest in formula.rest for part in rest.replace(".", " ").replace("=", " ").split()
    }
    kept.add(word.partition(".")[0])
    gone = [name for name in script.within(formula.node, cst.Name) if name.value not in kept]
    imports = script.rewrite.without_imports(*gone)
    if imports is None:
        return None
    edits = script.rewrite.united(script.rewrite.replace(formula.node, text), imports, importing)
    title, doubt = f"Call `{word}.{formula.function}`", script.target.doubt(formula.since)
    if doubt:
        return Fix.unsafe(title, edits, because=f"`{formula.function}` {doubt}")
    return Fix.close(title, edits, because="rounds otherwise")
