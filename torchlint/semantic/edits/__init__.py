"""Edits of code: expressions, statements, imports."""
