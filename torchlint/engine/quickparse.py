"""A fast test whether a text parses, for files that no rule applies to."""

from __future__ import annotations

import warnings


def parses(text: str) -> bool:
    """Return True if CPython can parse a text; False means that a full parse must decide.

    Building a symbol table takes half the time of building a syntax tree of Python objects, and
    rejects a few more texts.
    """
    from symtable import symtable

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            symtable(text, "", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
