from __future__ import annotations

from torchlint.program.search import Texts

# an import that was commented out: its bracket stays open to the end of the file
COMMENTED = (
    "# from .layers import (\n"
    + "#     Layer, and some words about it\n" * 40
    + "# )\n__all__ = [\n"
    + "    # a group of names, with a comment\n    'a',\n" * 40
    + "]\n"
)


def test_many_comments_behind_an_open_bracket_are_read_once() -> None:
    texts = Texts({"layers.py": b"", "kept.py": COMMENTED.encode()})
    assert texts.importing("layers.py") == ["kept.py"]


def test_a_bracket_in_a_comment_does_not_end_the_names() -> None:
    texts = Texts({"layers.py": b"", "users.py": b"from . import (  # )\n    layers,\n)\n"})
    assert texts.importing("layers.py") == ["users.py"]
