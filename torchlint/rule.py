"""The Rule class: page, examples and code of one rule together."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Literal

from torchlint.finding import Finding, Safety
from torchlint.semantic.script import Script

__all__ = ["HEADINGS", "Rule", "RuleError"]

HEADINGS: Final = ("What it does", "Why it is slow", "When not to", "Fix safety")
"""The headings of a rule's page, in order."""

_CODE: Final = re.compile(r"[A-Z]{2,5}[0-9]{3}")
_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class RuleError(TypeError):
    """A rule class with a part missing or malformed."""


class Rule(ABC):
    """One pattern: asks a `Script` for facts and yields findings.

    The docstring of a rule is its page, under `HEADINGS`. `invalid` and `valid` map a sentence to
    a snippet; in an invalid one, lines that begin with `- ` and `+ ` are the input and the output
    of the fix, and `! ` marks a line that is flagged and stays.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    summary: ClassVar[str]
    impact: ClassVar[Literal["high", "medium", "low"]]
    safety: ClassVar[Safety | None]
    """The best class that a fix of this rule can earn, None where it only reports."""
    about: ClassVar[tuple[str, ...]] = ("torch",)
    """The libraries of which a file must name at least one."""
    articles: ClassVar[tuple[str, ...]] = ()
    """The articles that advise it: `S0` to `S2`, and `S3.7` for the seventh tip of the last."""
    needs: ClassVar[tuple[str, ...]]
    """Words of which a file must hold at least one as well for the rule to matter."""
    since: ClassVar[tuple[int, int]] = (1, 0)
    """The first version of torch that has what the rule advises."""
    default: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ()
    """Codes of rules whose fixes are made before its own, where both are due in one file."""
    options: ClassVar[Mapping[str, Any]] = {}
    """The rule's own options with their defaults; a value must have its default's type."""
    invalid: ClassVar[Mapping[str, str]]
    valid: ClassVar[Mapping[str, str]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if inspect.isabstract(cls):
            return
        for part in ("code", "name", "summary", "impact", "safety", "needs", "invalid", "valid"):
            if not hasattr(cls, part):
                raise RuleError(f"rule {cls.__name__} has no `{part}`")
        if not _CODE.fullmatch(cls.code) or not _NAME.fullmatch(cls.name):
            raise RuleError(f"rule {cls.__name__}: {cls.code!r} or {cls.name!r} is malformed")
        for part in ("needs", "invalid", "valid"):
            if not getattr(cls, part):
                raise RuleError(f"rule {cls.code}: `{part}` is empty")
        found = tuple(re.findall(r"^ *## (.+?) *$", cls.__doc__ or "", re.MULTILINE))
        if found != HEADINGS:
            raise RuleError(f"rule {cls.code}: its page has the headings {found}, not {HEADINGS}")

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.settings: Mapping[str, Any] = {**self.options, **(options or {})}

    @abstractmethod
    def check(self, script: Script) -> Iterator[Finding]:
        """Yield what there is to say of `script`, in any order."""
