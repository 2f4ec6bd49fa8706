"""The results of checking and fixing one file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from torchlint.config import ConfigError
from torchlint.finding import Finding
from torchlint.registry import RegistryError
from torchlint.source import Source

R = TypeVar("R")


class FileResult(NamedTuple):
    """The findings of one file, in the order of its text.

    `source` is None for a file that cannot be read, and for one of many files without findings.
    A file that cannot be decoded still has a source (its bytes as Latin-1), so that the place of
    its TL001 can be shown.
    The settings are already applied to the fixes: findings of an unfixable rule have none.
    `suppressed` counts the findings that a comment silenced. `errors` have one line each and make
    the run fail (exit code 2); `warnings` name what could not be finished in this file.
    `import_uses` are the imported names for which it mattered whether other files use them, with
    the answer; None if it is unknown. `linked` is the digest of the definitions of other modules
    that the file was judged with, empty if nothing depended on them.
    """

    path: str
    source: Source | None
    findings: tuple[Finding, ...] = ()
    suppressed: int = 0
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    import_uses: tuple[tuple[str, bool | None], ...] = ()
    linked: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether every rule finished, so that the result can be cached."""
        return not (self.errors or self.warnings)


class FixResult(NamedTuple):
    """The outcome of fixing one file.

    `applied` are the findings whose fixes made `after`; their spans refer to the text of the pass
    that fixed them. `left` are the findings of `after`. Both sources are empty texts for a file
    that cannot be read (`errors` says why), and for one of many files without findings.
    `warnings` name what could not be finished, and fixes that were withheld.
    The fields from `left` on are those of a `FileResult` from `findings` on, for `after`.
    """

    before: Source
    after: Source
    applied: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    suppressed: int = 0
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    import_uses: tuple[tuple[str, bool | None], ...] = ()
    linked: str = ""

    @classmethod
    def of(
        cls, check: FileResult, before: Source, after: Source, applied: tuple[Finding, ...] = ()
    ) -> FixResult:
        """Return the outcome of fixes after which a check found what is left."""
        return cls(before, after, applied, *check[2:])

    def check(self) -> FileResult:
        """Return the check that found what is left."""
        return FileResult(self.path, self.after, *self[3:])

    @property
    def is_whole(self) -> bool:
        """Whether every rule finished and every enabled fix was made."""
        return not (self.errors or self.warnings)

    @property
    def path(self) -> str:
        """The path of the file as it was given."""
        return self.before.path

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return self.before.text != self.after.text


def guarded(path: str, work: Callable[[], R], otherwise: Callable[[str], R]) -> R:
    """Return `work()`; if it raises, return `otherwise` of the error message.

    Errors of the configuration and of rule packs do not belong to the file, and are raised.
    """
    try:
        return work()
    except (ConfigError, RegistryError):
        raise
    except Exception as error:
        return otherwise(internal_error("the analysis", path, error, "the file was skipped"))


def internal_error(who: str, path: str, error: Exception, rest: str) -> str:
    """Return the message for an internal error on a file; `rest` says what still ran."""
    from traceback import extract_tb

    frames = extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    said = " ".join(str(error).split())
    return (
        f"internal error in {who} on {path} (please report): "
        f"{type(error).__name__}: {said}{place}; {rest}"
    )
