"""Rewriting handwritten attention as one call of `F.scaled_dot_product_attention`."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import (
    Attention,
    Binding,
    Fix,
    How,
    ScoreMask,
    Script,
    word_of,
)

FUNCTION: Final = "scaled_dot_product_attention"
_WIDTH: Final = 100
_PURE: Final = frozenset("size sqrt float int tril triu ones view bool unsqueeze dim".split())
_DROPS: Final = "draws other elements to drop under the same seed"
_ROWS: Final = (
    "a row that is masked as a whole gives zeros, where the fill value gave the mean of the values"
)


def kept_where(script: Script, mask: ScoreMask) -> str:
    """Return the condition under which a mask keeps a score, as source text."""
    node = mask.condition
    code = script.code(node)
    if mask.keeps:
        return code
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        part = node.comparisons[0]
        signs = {cst.Equal: "!=", cst.NotEqual: "=="}
        sign = signs.get(type(part.operator))
        if sign is not None:
            return f"{script.code(node.left)} {sign} {script.code(part.comparator)}"
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert):
        return script.code(node.expression)
    return f"~{script.tree.operand(node)}"


class Rewriting:
    """Builds the fix for one attention; a failed check makes it None."""

    def __init__(self, script: Script, attention: Attention) -> None:
        self.script = script
        self.attention = attention
        self.copied: list[cst.CSTNode] = [attention.query, attention.key, attention.value]
        self.unsafe = ""

    def fix(self) -> Fix | None:
        """Return the fix, None if a check fails."""
        script, attention = self.script, self.attention
        arguments = self._arguments()
        found = script.edits.importing("torch.nn.functional", alias="F", at=attention.product)
        if arguments is None or found is None or not self._is_tidy():
            return None
        word, importing = found
        if self._is_hidden(word):
            return None
        spare = self._spare_lines(" ".join(arguments))
        call = self._call(f"{word}.{FUNCTION}", arguments)
        kept = set(_words(f"{word} {' '.join(arguments)}"))
        gone = [
            name
            for region in (*attention.steps, *spare, attention.product)
            for name in script.tree.within(region, cst.Name)
            if name.value not in kept
        ]
        imports = script.edits.without_imports(*gone)
        if imports is None:
            return None
        edits = script.edits.united(
            script.edits.replace(attention.product, call),
            script.edits.drop_all([*attention.steps, *spare]),
            imports,
            importing,
        )
        title = f"Call `{word}.{FUNCTION}`"
        if self.unsafe:
            return Fix.unsafe(title, edits, because=self.unsafe)
        return Fix.close(title, edits, because="rounds differently, by about 1e-6")

    # -- arguments ------------------------------------------------------------

    def _arguments(self) -> list[str] | None:
        script, attention = self.script, self.attention
        parts = (attention.query, attention.key, attention.value)
        texts = [script.code(part) for part in parts]
        causal = False
        for mask in attention.masks:
            causal = mask.test is None and script.values.scores.leaves_past(mask)
            if not causal:
                texts.append(f"attn_mask={self._mask(mask)}")
        if attention.dropout is not None:
            dropped = self._dropout(attention.dropout)
            if dropped is None:
                return None
            texts += [f"dropout_p={dropped}"] if dropped else []
        texts += ["is_causal=True"] if causal else []
        if not script.values.scores.is_usual(attention):
            if not script.program.target.has((2, 1)):
                return None
            doubt = script.program.target.doubt((2, 1))
            self.unsafe = self.unsafe or (f"`scale=` {doubt}" if doubt else "")
            texts.append(f"scale={self._scale()}")
        return texts

    def _mask(self, mask: ScoreMask) -> str:
        self.copied.append(mask.condition)
        lowest = self.script.values.scores.lowest(mask)
        if lowest is None or lowest > float("-inf"):
            self.unsafe = _ROWS
        kept = kept_where(self.script, mask)
        if mask.test is None:
            return kept
        self.copied.append(mask.test)
        return f"{kept} if {self.script.code(mask.test)} else None"

    def _scale(self) -> str:
        factor = self.attention.factor
        if factor is None:
            return "1.0"
        self.copied.append(factor)
        if self.attention.divides:
            return f"1 / {self.script.code(factor)}"
        return self.script.tree.argument(factor)

    def _dropout(self, call: cst.Call) -> str | None:
        """Return the dropout probability as source text, empty if there is no dropout."""
        script = self.script
        layer = script.values.attentions.dropout_layer(call.func)
        if layer is not None:
            func = script.code(call.func)
            if not func.startswith("self."):
                return None
            if script.values.argument(layer, "p", 0).literal not in (0, 0.0):
                self.unsafe = _DROPS
            return f"{func}.p if self.training else 0.0"
        share = script.values.argument_node(call, "p", 1)
        training = script.values.argument_node(call, "training", 2)
        text = script.code(share.value) if share is not None else "0.5"
        self.copied += [arg.value for arg in (share, training) if arg is not None]
        if script.calls.at(call).has_splat:
            return None
        if share is None or script.values.value_of(share.value).literal not in (0, 0.0):
            self.unsafe = _DROPS
        if training is None or script.values.value_of(training.value).equals(True):
            return text
        if script.values.value_of(training.value).equals(False):
            return ""
        return f"{text} if {script.code(training.value)} else 0.0"

    # -- whether lines can go -------------------------------------------------

    def _is_tidy(self) -> bool:
        """Return whether no comment is lost and copied code means the same at the product."""
        script, attention = self.script, self.attention
        if any("#" in script.code(node) for node in (*attention.steps, attention.product)):
            return False
        if not all(script.edits.stands_alone(step) for step in attention.steps):
            return False
        return not any(
            self._changes(name, node) for node in self.copied for name in self._names(node)
        )

    def _names(self, node: cst.CSTNode) -> list[cst.Name]:
        return [name for name in self.script.tree.within(node, cst.Name) if name.value != "self"]

    def _changes(self, name: cst.Name, node: cst.CSTNode) -> bool:
        """Return whether a name of a copied expression means something else at the product."""
        script = self.script
        first, last = script.tree.order(node), script.tree.order(self.attention.product)
        scope = script.scopes.lookup(name.value, script.scopes.scope(name))
        bindings = scope.bindings[name.value] if scope is not None else []
        going = [self._goes(each.node) for each in bindings]
        if going and all(going):
            return True
        if any(first < each.at < last and not self._goes(each.node) for each in bindings):
            return True
        around = script.scopes.home(node)
        return any(
            first < script.tree.order(write.node) < last
            and script.code(write.tensor) == name.value
            and not self._goes(write.node)
            for write in script.values.writes.within(around)
        )

    def _goes(self, node: cst.CSTNode) -> bool:
        return any(self.script.tree.inside(node, step) for step in self.attention.steps)

    def _is_hidden(self, word: str) -> bool:
        scopes = self.script.scopes
        root = word.partition(".")[0]
        found = scopes.lookup(root, scopes.scope(self.attention.product))
        return found is not None and found is not scopes.module

    def _spare_lines(self, kept: str) -> list[cst.BaseStatement]:
        """Return the lines that compute values which only the removed lines used."""
        script, attention = self.script, self.attention
        regions = (*attention.steps, attention.product)
        home = script.tree.parent(script.tree.statement(attention.product))
        found: list[cst.BaseStatement] = []
        for name in (name for region in regions for name in script.tree.within(region, cst.Name)):
            bindings = script.scopes.reaching(name)
            if len(bindings) != 1 or name.value in _words(kept) or not _is_pure(bindings[0]):
                continue
            line = script.tree.statement(bindings[0].node)
            outer = script.scopes.home(name)
            uses = script.scopes.uses(bindings[0], outer)
            alone = script.edits.stands_alone(line) and script.tree.parent(line) is home
            if alone and line not in found and "#" not in script.code(line):
                if all(any(script.tree.inside(use, each) for each in regions) for use in uses):
                    found.append(line)
        return [line for line in found if line not in attention.steps]

    # -- text -----------------------------------------------------------------

    def _call(self, function: str, arguments: list[str]) -> str:
        script = self.script
        rewrite, span = script.edits, script.span(self.attention.product)
        line = f"{function}({', '.join(arguments)})"
        before = span.start - rewrite.line_start(span.start)
        after = rewrite.line_end(span.end) - span.end
        if before + len(line) + after <= _WIDTH:
            return line
        indent = rewrite.indent_of(script.tree.statement(self.attention.product))
        inner = f"{rewrite.newline}{indent}{rewrite.unit()}"
        joint = ", ".join(arguments)
        if len(inner) + len(joint) > _WIDTH:
            joint = f",{inner}".join((", ".join(arguments[:3]), *arguments[3:])) + ","
        return f"{function}({inner}{joint}{rewrite.newline}{indent})"


def _words(text: str) -> list[str]:
    """Return the identifiers in a source text."""
    return "".join(c if c.isidentifier() or c.isdigit() else " " for c in text).split()


def _is_pure(binding: Binding) -> bool:
    """Return whether a binding only reads shapes or builds a triangle of ones."""
    if binding.how is not How.ASSIGN or not isinstance(binding.node, cst.Assign):
        return False
    stack: list[cst.CSTNode] = [binding.node.value]
    while stack:
        node = stack.pop()
        if isinstance(node, (cst.Await, cst.Yield, cst.NamedExpr)):
            return False
        if isinstance(node, cst.Call) and word_of(node) not in _PURE:
            return False
        stack += node.children
    return True
