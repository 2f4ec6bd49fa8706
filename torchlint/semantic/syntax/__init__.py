"""Syntax: reads a file into LibCST nodes, by CPython's parser where possible.

CPython's parser is many times faster, and its tree has everything that rules ask for; it lacks
white space and comments, so fixes are text edits. LibCST's parser reads f-strings, adjacent strings
and files with rare syntax.
"""

from torchlint.semantic.syntax.reading import Syntax, read

__all__ = ["Syntax", "read"]
