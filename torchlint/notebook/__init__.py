"""Notebooks: the code cells of an `.ipynb` file as one text, and edits written back."""

from torchlint.notebook.reading import is_notebook, read_source

__all__ = ["is_notebook", "read_source"]
