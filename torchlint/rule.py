"""The base class of rules, which reads its metadata from the page of the rule."""

from __future__ import annotations

import inspect
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from torchlint.finding import Finding, Safety
from torchlint.page.document import (
    HEADINGS,
    Page,
    check_page,
    headings,
    read_page,
    sections,
    snippets,
)
from torchlint.page.files import page_beside
from torchlint.page.header import Header
from torchlint.semantic.script import Script

_CODE: Final = re.compile(r"[A-Z]{2,5}[0-9]{3}")
_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_IN_PYTHON: Final = ("name", "summary", "impact", "safety", "needs", "invalid", "valid")


class RuleError(TypeError):
    """A rule class whose page or code is incomplete or malformed."""


class Rule(ABC):
    """One rule: asks a `Script` for facts and yields findings.

    Its page is a Markdown file beside its module, of the same name. The header of the page gives
    the class its attributes.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    summary: ClassVar[str]
    impact: ClassVar[Literal["high", "medium", "low"]]
    safety: ClassVar[Safety | None]
    """The best class that a fix of this rule can earn, None where it only reports."""
    groups: ClassVar[tuple[str, ...]] = ("perf",)
    """The groups that it belongs to: words that select it."""
    gain: ClassVar[Literal["speed", "memory", "results", "upkeep"]] = "speed"
    """What improves: the step, memory, what is learned or measured, or life with newer versions."""
    device: ClassVar[Literal["any", "accelerator"]] = "any"
    """Where it pays: on any device, or on an accelerator only."""
    about: ClassVar[tuple[str, ...]] = ("torch",)
    """The libraries of which a file, or what is linked to it, must name at least one."""
    articles: ClassVar[tuple[str, ...]] = ()
    """The articles that advise it: `S0` to `S2`, and `S3.7` for the seventh tip of the last."""
    needs: ClassVar[tuple[str, ...]]
    """Words of which a file must hold at least one: they stand where the finding stands."""
    elsewhere: ClassVar[tuple[str, ...]] = ()
    """Words of which the file, or what is linked to it, must hold at least one, if there are any.
    """
    since: ClassVar[tuple[int, int]] = (0, 4)
    """The first version of torch that has what the rule advises."""
    default: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ()
    """Codes of rules whose fixes are made before its own, where both are due in one file."""
    options: ClassVar[Mapping[str, Any]] = {}
    """The rule's own options with their defaults; a value must have its default's type."""
    page_file: ClassVar[str] = ""
    """The file of the page, empty where the page stands in the class."""
    invalid: ClassVar[Mapping[str, str]]
    """Examples with findings, where the page stands in the class."""
    valid: ClassVar[Mapping[str, str]]
    """Examples without any, where the page stands in the class."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if inspect.isabstract(cls) or cls.page_file:
            return
        if hasattr(cls, "code"):
            cls._check_in_python()
        else:
            cls._take_header()

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.settings: Mapping[str, Any] = {**self.options, **(options or {})}

    @classmethod
    def page(cls) -> Page:
        """Return the parsed page of the rule; raise `PageError` if it is malformed."""
        if cls.page_file:
            return read_page(cls.page_file)
        values = {key: getattr(cls, key) for key in Header._fields}
        values["safety"] = None if cls.safety is None else cls.safety.word
        values["options"] = json.dumps(cls.options, ensure_ascii=False)
        return Page(
            Header(**values),
            sections(cls.__doc__ or ""),
            tuple(snippets(cls.invalid)),
            tuple(snippets(cls.valid)),
        )

    @abstractmethod
    def check(self, script: Script) -> Iterator[Finding]:
        """Yield the findings for `script`, in any order."""

    @classmethod
    def _take_header(cls) -> None:
        """Set the attributes of the class from the page beside the module."""
        module = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
        file = page_beside(module)
        if not Path(file).is_file():
            raise RuleError(f"rule {cls.__name__} has no page: write {Path(file).name}")
        header = check_page(file)
        for key, value in zip(header._fields, header, strict=True):
            if key in vars(cls):
                raise RuleError(f"rule {cls.__name__}: `{key}` belongs to {Path(file).name}")
            setattr(cls, key, value)
        cls.safety = None if header.safety is None else Safety[header.safety.upper()]
        cls.options = header.defaults
        cls.page_file = file

    @classmethod
    def _check_in_python(cls) -> None:
        """Raise `RuleError` for an incomplete class whose page is written in Python."""
        for part in _IN_PYTHON:
            if not hasattr(cls, part):
                raise RuleError(f"rule {cls.__name__} has no `{part}`")
        if not _CODE.fullmatch(cls.code) or not _NAME.fullmatch(cls.name):
            raise RuleError(f"rule {cls.__name__}: {cls.code!r} or {cls.name!r} is malformed")
        for part in ("needs", "invalid", "valid"):
            if not getattr(cls, part):
                raise RuleError(f"rule {cls.code}: `{part}` is empty")
        found = headings(cls.__doc__ or "")
        if found != HEADINGS:
            raise RuleError(f"rule {cls.code}: its page has the headings {found}, not {HEADINGS}")
