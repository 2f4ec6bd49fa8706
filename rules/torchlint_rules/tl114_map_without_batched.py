"""TL114: a dataset that is tokenised row by row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Rule, Script, State
from torchlint_rules.shared.tokenizers import TextMap, is_column, text_maps, tokenizer_of

_BY_ROW: Final = "batched with_indices with_rank input_columns".split()
"""Arguments of `map` that say what its function gets."""
_SAME: Final = frozenset(
    "truncation max_length add_special_tokens return_attention_mask return_token_type_ids "
    "return_special_tokens_mask return_length verbose".split()
)
"""Arguments of a tokenizer that mean the same for one text and for many."""
_EACH: Final = (False, "max_length", "do_not_pad")
"""The paddings that do not depend on the other texts of a batch."""


class MapWithoutBatched(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every `map` that hands one row at a time to a tokenizer."""
        for mapped in text_maps(script):
            if any(mapped.site.argument(name).state is not State.ABSENT for name in _BY_ROW):
                continue
            if all(_is_counted(script, call) for call in mapped.calls):
                continue
            call = mapped.site.node
            named = script.code(mapped.calls[0].func)
            message = (
                f"`map` gives `{named}` one row at a time: with `batched=True` it tokenizes "
                "1,000 texts in one call"
            )
            fix = None
            if _is_plain(script, mapped):
                fix = Fix.unsafe(
                    "Pass batched=True",
                    script.edits.with_keyword(call, "batched", "True"),
                    because="a column of lists instead of texts would be tokenized in another way",
                )
            yield Finding(self.code, script.span(call.func), message, fix)


def _is_counted(script: Script, call: cst.Call) -> bool:
    """Return whether only the number of tokens of a call is used."""
    around = (each for each in script.tree.ancestors(call) if isinstance(each, cst.Call))
    outer = next(around, None)
    return outer is not None and script.name(outer.func) == "builtins.len"


def _is_plain(script: Script, mapped: TextMap) -> bool:
    """Return whether a function only returns what a tokenizer makes of columns of its row."""
    body = mapped.body
    if isinstance(body, cst.IndentedBlock):
        lines = [line for line in body.body if not _is_docstring(line)]
        line = lines[0] if len(lines) == 1 else None
        last = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        body = last.value if isinstance(last, cst.Return) and last.value is not None else body
    if not isinstance(body, cst.Call) or tokenizer_of(script, body) is None:
        return False
    if script.calls.at(body).method in ("encode", "tokenize"):
        return False
    return all(_is_same(script, arg, mapped.row) for arg in body.args)


def _is_docstring(line: cst.BaseStatement) -> bool:
    return (
        isinstance(line, cst.SimpleStatementLine)
        and isinstance(line.body[0], cst.Expr)
        and isinstance(line.body[0].value, cst.SimpleString)
    )


def _is_same(script: Script, arg: cst.Arg, row: str) -> bool:
    """Return whether an argument of a tokenizer means the same for one text and for many."""
    if arg.star:
        return False
    if arg.keyword is None or arg.keyword.value in ("text", "text_pair"):
        return is_column(arg.value, row)
    if arg.keyword.value == "padding":
        return any(script.values.value_of(arg.value).equals(each) for each in _EACH)
    uses = (name for name in (arg.value, *script.tree.within(arg.value, cst.Name)))
    return arg.keyword.value in _SAME and not any(
        isinstance(name, cst.Name) and name.value == row for name in uses
    )
