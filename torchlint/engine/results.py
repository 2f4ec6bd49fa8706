"""What a check or a fix of one file comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.record import Record

if TYPE_CHECKING:
    from torchlint.finding import Finding
    from torchlint.source import Source

__all__ = ["FileResult", "FixResult"]


class FileResult(Record):
    """What the rules have to say of one file, in the order of its text.

    `source` is None for a file that cannot be read, and for one of many in which nothing was found.
    A file that cannot be decoded has a source all the same (its bytes as Latin-1), so that the
    place of its TL001 can be shown.
    Fixes are graded as the settings say: a rule that is unfixable here has none.
    `suppressed` counts the findings that a comment silenced; `errors` are one line each and mean
    that the run failed in part (exit code 2).
    """

    path: str
    source: Source | None
    findings: tuple[Finding, ...] = ()
    suppressed: int = 0
    errors: tuple[str, ...] = ()


class FixResult(Record):
    """What the fixes of one file come to.

    `applied` are the findings whose fixes made `after`; their spans are places in the text of the
    pass that made them. `left` are the findings of `after`, with places in it. Both sources are
    empty texts for a file that cannot be read (`errors` says why), and for one of many in which
    nothing was found.
    """

    before: Source
    after: Source
    applied: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    suppressed: int = 0
    errors: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The path of the file as it was given."""
        return self.before.path

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return self.before.text != self.after.text
