"""Reads a file into LibCST's nodes: by CPython's parser where that is enough, else by LibCST's.

CPython's parser is many times faster, and what rules ask of a tree is all in it; white space and
comments are not, so fixes are edits of the text. LibCST reads f-strings, strings that stand side by
side and files with rare syntax.
"""

from torchlint.semantic.syntax.reading import Syntax, read

__all__ = ["Syntax", "read"]
