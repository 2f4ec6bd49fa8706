"""Reading a file as a script or a notebook, by its name."""

from __future__ import annotations

from torchlint.source import Source


def is_notebook(path: str) -> bool:
    """Return whether a path has the name of a notebook."""
    return path.endswith(".ipynb")


def read_source(data: bytes, path: str) -> Source:
    """Read the bytes of a script or a notebook; raises `SourceError`."""
    if not is_notebook(path):
        return Source.from_bytes(data, path)
    from torchlint.notebook.notebook import Notebook

    return Notebook.from_bytes(data, path)
