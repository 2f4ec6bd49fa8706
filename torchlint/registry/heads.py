"""Rule heads: what is known about a rule before its module is imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from torchlint.page.header import Header, PageError, read_header

if TYPE_CHECKING:
    from torchlint.rule import Rule

_CODE: Final = re.compile(r"[A-Z]{2,5}[0-9]{3}")


class RegistryError(Exception):
    """An unusable rule or pack; the message names it."""


def not_imported(pack: str, module: str, error: BaseException) -> RegistryError:
    """Return an error line for a module of a pack that failed to import."""
    said = f"{type(error).__name__}: {error}"
    return RegistryError(f"rule pack `{pack}`: {module} cannot be imported: {said}")


def _are_words(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(isinstance(each, str) for each in value)


def _is_version(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(type(n) is int for n in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_WORDS: Final = ("a tuple of strings", _are_words)
_PARTS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "gain": ("a string", _is_text),
    "device": ("a string", _is_text),
    "about": _WORDS,
    "needs": _WORDS,
    "elsewhere": _WORDS,
    "since": ("two numbers such as (2, 4)", _is_version),
    "default": ("True or False", lambda value: isinstance(value, bool)),
    "groups": _WORDS,
    "impact": ("high, medium or low", lambda value: value in ("high", "medium", "low")),
}
"""The parts of a rule class without a page: what each must be, and the test for it."""


@dataclass(frozen=True)
class RuleHead:
    """What is known about a rule before its module is imported: code, name, and location.

    The other facts come from its page. Without a page beside the module they come from its class,
    which is imported for that. `load` imports the module.
    """

    code: str
    name: str
    pack: str = ""
    module: str = ""
    file: str = ""
    page: str = ""
    rule: type[Rule] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, rule: type[Rule]) -> RuleHead:
        """Return the head of a rule class that is already imported."""
        return cls(rule.code, rule.name, rule=rule)

    @cached_property
    def about(self) -> tuple[str, ...]:
        """The libraries of which a file, or what is linked to it, must mention at least one."""
        return tuple(self._part("about"))

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """The words of which a file must contain at least one."""
        return tuple(self._part("needs"))

    @cached_property
    def elsewhere(self) -> tuple[str, ...]:
        """The words of which a file, or what is linked to it, must contain one, if any."""
        return tuple(self._part("elsewhere"))

    @property
    def impact(self) -> str:
        """How much the rule's findings usually matter: `high`, `medium` or `low`."""
        return str(self._part("impact"))

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The groups that the rule belongs to."""
        return tuple(self._part("groups"))

    @property
    def gain(self) -> str:
        """What improves: `speed`, `memory`, `results` (what is learned or measured), `upkeep`."""
        return str(self._part("gain"))

    @property
    def device(self) -> str:
        """Where the rule pays: on `any` device, or on an `accelerator` only."""
        return str(self._part("device"))

    @property
    def is_about_results(self) -> bool:
        """Whether the rule is about what is learned or measured, not about cost."""
        return self.gain == "results"

    @property
    def is_about_syncs(self) -> bool:
        """Whether the rule is about what the host waits for or copies, pass by pass."""
        return "sync" in self.groups

    @property
    def default(self) -> bool:
        """Whether the rule is on by default."""
        return bool(self._part("default"))

    @property
    def since(self) -> tuple[int, int]:
        """The first version of torch that has what the rule recommends."""
        major, minor = self._part("since")
        return major, minor

    @cached_property
    def header(self) -> Header:
        """The header of the page; raises `RegistryError` if it is malformed."""
        try:
            found = read_header(self.page)
        except (PageError, OSError) as error:
            raise RegistryError(f"rule pack `{self.pack}`: {error}") from None
        if (found.code, found.name) != (self.code, self.name):
            raise RegistryError(
                f"rule pack `{self.pack}`: {self.page} is the page of {found.code} {found.name}, "
                f"its file name is that of {self.code} {self.name}"
            )
        return found

    def load(self) -> type[Rule]:
        """Import the rule; raise `RegistryError` with its name and pack on failure."""
        if self.rule is not None:
            return self.rule
        return self._imported

    def read(self) -> None:
        """Read the header now, so that a broken one raises `RegistryError` here."""
        if not _CODE.fullmatch(self.code):
            raise RegistryError(
                f"rule pack `{self.pack}`: {self.module}: `{self.code}` is no code: two to five "
                "letters and three digits, such as ABC101"
            )
        if self.page:
            _ = self.header
            return
        for part, (kind, fits) in _PARTS.items():
            value = self._part(part)
            if not fits(value):
                raise RegistryError(
                    f"rule pack `{self.pack}`: {self.module}: `{part}` must be {kind}, "
                    f"it is {value!r}"
                )

    def _part(self, part: str) -> Any:
        if self.rule is None and self.page:
            return getattr(self.header, part)
        return getattr(self.load(), part)

    @cached_property
    def _imported(self) -> type[Rule]:
        from torchlint.rule import Rule

        try:
            module = import_module(self.module)
        except PageError as error:
            raise RegistryError(f"rule pack `{self.pack}`: {error}") from None
        except (Exception, SystemExit) as error:
            raise not_imported(self.pack, self.module, error) from error
        rules = [
            each
            for each in vars(module).values()
            # isinstance() takes the alias `tuple[int, ...]` for a class on Python 3.10.
            if isinstance(each, type)
            and issubclass(type(each), type)
            and each.__module__ == self.module
            and issubclass(each, Rule)
            and hasattr(each, "code")
        ]
        self._agree(rules)
        return rules[0]

    def _agree(self, rules: list[type[Rule]]) -> None:
        """Raise `RegistryError` if the rule in a module does not match its file name."""
        if len(rules) != 1:
            raise RegistryError(
                f"rule pack `{self.pack}`: {self.module} must hold one rule, it holds {len(rules)}"
            )
        for part, value in (("code", self.code), ("name", self.name)):
            if getattr(rules[0], part) != value:
                raise RegistryError(
                    f"rule pack `{self.pack}`: {self.module} promises {part} {value!r}, "
                    f"its rule has {getattr(rules[0], part)!r}"
                )
