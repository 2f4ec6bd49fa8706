"""Notebooks: the code cells of an `.ipynb` file as one text, and edits written back."""

from __future__ import annotations

from torchlint.source import Source

__all__ = ["is_notebook", "read_source"]


def is_notebook(path: str) -> bool:
    """Return whether a path has the name of a notebook."""
    return path.endswith(".ipynb")


def read_source(data: bytes, path: str) -> Source:
    """Read the bytes of a script or a notebook; raises `SourceError`."""
    if not is_notebook(path):
        return Source.from_bytes(data, path)
    from torchlint.notebook.notebook import Notebook

    return Notebook.from_bytes(data, path)
