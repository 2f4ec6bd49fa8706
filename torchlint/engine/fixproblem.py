"""Verifying the text that fixes produce, before it is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from torchlint.edit import Edit
from torchlint.engine.freenames import newly_unbound
from torchlint.engine.parsing import UnparsableError, compile_problem, syntax_problem
from torchlint.source import Source, SourceError
from torchlint.suppress import Comment, comments_of, is_suppression


def fix_problem(before: Source, after: Source, edits: Iterable[Edit]) -> str | None:
    """Return what is wrong with `after`, made from `before` by `edits`; None if nothing is.

    The text must survive encoding and decoding, compile if it did before, parse with LibCST, bind
    every name it reads as before, and keep every comment. Only a suppression may go, by an edit
    that removes nothing but its comment.
    """
    return (
        _unwritable(after)
        or _uncompilable(before, after)
        or _newly_unbound(before, after)
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


def _newly_unbound(before: Source, after: Source) -> str | None:
    try:
        return newly_unbound(before, after)
    except UnparsableError:  # the text did not parse before
        return None


def _unreadable(after: Source) -> str | None:
    """Return why LibCST cannot parse a text that CPython can, None if it can."""
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
    """Yield the suppression comments that an edit replaces without any code."""
    edits = [edit for edit in edits if edit.span.start < edit.span.end]
    for comment in comments:
        if is_suppression(comment.text) and any(_is_about(edit, comment, before) for edit in edits):
            yield comment


def _is_about(edit: Edit, comment: Comment, before: Source) -> bool:
    replaced = before.text[edit.span.start : edit.span.end]
    start = edit.span.start + len(replaced) - len(replaced.lstrip())
    end = edit.span.end - len(replaced) + len(replaced.rstrip())
    return comment.span.start <= start < end <= comment.span.end
