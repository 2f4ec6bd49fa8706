"""Distrust of our own fixes: what would be wrong with a text that they made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from torchlint.edit import Edit
from torchlint.engine.lostimports import unimported
from torchlint.engine.parsing import compile_problem, syntax_problem
from torchlint.source import Source, SourceError
from torchlint.suppress import Comment, comments_of, is_suppression

__all__ = ["harm"]


def harm(before: Source, after: Source, edits: Iterable[Edit]) -> str | None:
    """Say what is wrong with `after`, which `edits` made of `before`; None if nothing is.

    The text must survive writing and reading, compile if it did before, be read again, import what
    it uses as before, and keep every comment. The only comment that may go is a suppression, and
    only by an edit that replaces nothing but that comment: an edit of code brings back every
    comment it replaces.
    """
    return (
        _unwritable(after)
        or _uncompilable(before, after)
        or _unimported(before, after)
        or _lost_comment(before, after, edits)
    )


def _unwritable(after: Source) -> str | None:
    try:
        again = type(after).from_bytes(after.to_bytes(), after.path)
    except SourceError as error:
        return f"cannot be written: {error.message}"
    if again != after:
        return "cannot be written: it would be read in another encoding"
    return None


def _uncompilable(before: Source, after: Source) -> str | None:
    problem = compile_problem(after)
    if problem is not None and compile_problem(before) is not None:
        problem = syntax_problem(after)
    if problem is not None:
        return f"does not compile: {problem.reason}"
    return _unreadable(after)


def _unimported(before: Source, after: Source) -> str | None:
    name = unimported(before, after)
    return f"leaves `{name}` in use and takes its import out" if name is not None else None


def _unreadable(after: Source) -> str | None:
    """Say why the next pass could not read a text that CPython takes."""
    from libcst import ParserSyntaxError

    from torchlint.semantic.syntax import read

    try:
        read(after)
    except ParserSyntaxError as error:
        return f"cannot be read by LibCST: {error.message}"
    except RecursionError:
        return "is nested too deeply"
    return None


def _lost_comment(before: Source, after: Source, edits: Iterable[Edit]) -> str | None:
    if "#" not in before.text:
        return None
    comments = list(comments_of(before))
    owed = Counter(comment.text for comment in comments)
    owed -= Counter(comment.text for comment in _given_up(before, comments, edits))
    owed -= Counter(comment.text for comment in comments_of(after))
    if owed:
        return f"loses the comment `{next(iter(owed))}`"
    return None


def _given_up(before: Source, comments: list[Comment], edits: Iterable[Edit]) -> Iterator[Comment]:
    """Yield the suppressions that an edit replaces and nothing else with them."""
    edits = [edit for edit in edits if edit.span.start < edit.span.end]
    for comment in comments:
        if is_suppression(comment.text) and any(_is_about(edit, comment, before) for edit in edits):
            yield comment


def _is_about(edit: Edit, comment: Comment, before: Source) -> bool:
    replaced = before.text[edit.span.start : edit.span.end]
    start = edit.span.start + len(replaced) - len(replaced.lstrip())
    end = edit.span.end - len(replaced) + len(replaced.rstrip())
    return comment.span.start <= start < end <= comment.span.end
