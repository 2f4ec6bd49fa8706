"""The catalogue of all rules, and selecting from it by settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

from torchlint.config import ConfigError, Settings, nearest, place
from torchlint.page.files import page_beside
from torchlint.page.header import GROUPS
from torchlint.registry.heads import RegistryError, RuleHead
from torchlint.registry.packs import installed_packs, rules_of
from torchlint.registry.selection import ALL, Groups, Selection, covers, values, winners

if TYPE_CHECKING:
    from torchlint.rule import Rule

T = TypeVar("T")

_ALWAYS: Final = ("TL001",)
"""Always on unless ignored, because a file that cannot be checked is not clean."""


@dataclass(frozen=True)
class Registry:
    """Every rule of every pack, in the order of codes.

    `errors` name packs that failed; `deprecations` name packs in a format that is going away.
    """

    rules: tuple[RuleHead, ...]
    errors: tuple[str, ...] = ()
    deprecations: tuple[str, ...] = ()

    @cached_property
    def known(self) -> Mapping[str, str]:
        """The name of every rule by its code."""
        return {head.code: head.name for head in self.rules}

    @cached_property
    def groups(self) -> Groups:
        """The codes of the rules of every group."""
        return {
            group: frozenset(head.code for head in self.rules if group in head.groups)
            for group in GROUPS
        }

    def find(self, word: str) -> RuleHead:
        """Return the rule with this code or name; raise `ConfigError` with the nearest one."""
        for head in self.rules:
            if word.upper() == head.code or word.lower() == head.name:
                return head
        raise ConfigError(f"unknown rule `{word}`{self._hint(word)}")

    def loaded(self) -> tuple[list[type[Rule]], list[str]]:
        """Import every rule; return the usable ones, and one error line for each other.

        A broken pack does not affect the others.
        """
        outcomes = [_outcome(head.load) for head in self.rules]
        failures = [str(each) for each in outcomes if isinstance(each, RegistryError)]
        usable = [each for each in outcomes if not isinstance(each, RegistryError)]
        return usable, [*self.errors, *failures]

    def select(self, settings: Settings) -> Selection:
        """Return the rules that `settings` select; raise `ConfigError` for an unknown word."""
        self._refuse_unknown(settings)
        default = frozenset(head.code for head in self.rules if head.default or settings.preview)
        codes = winners(
            self.known,
            (*(settings.select or ()), *settings.extend_select),
            (*settings.ignore, *settings.extend_ignore),
            start=default if settings.select is None else _ALWAYS,
            groups=self.groups,
        )
        off = {code for code, value in self.severities(settings).items() if value == "off"}
        heads = [head for head in self.rules if head.code in codes - off]
        target = settings.target_torch
        fitting = [head for head in heads if target is None or head.since <= target]
        complete = default <= codes - off
        return Selection(tuple(fitting), self.known, complete, self.groups)

    def severities(self, settings: Settings) -> dict[str, str]:
        """Return the severity of every code for which `settings` set one."""
        return values(self.known, settings.severity, self.groups) if settings.severity else {}

    def covered(self, words: Iterable[str]) -> frozenset[str]:
        """Return the codes that any of these words covers."""
        words = tuple(words)
        return frozenset(
            code
            for code, name in self.known.items()
            if any(covers(word, code, name, self.groups) for word in words)
        )

    def _hint(self, word: str) -> str:
        """Return a hint for an unknown word: the codes of its family, or the nearest word."""
        letters = word.upper().rstrip("0123456789")
        digits = word[len(letters) :]
        if not digits or not any(code.startswith(letters) for code in self.known):
            return nearest(word, [ALL, *self._words()]) or "; `torchlint rules` lists them"
        family = next(
            (
                found
                for stop in range(len(digits) - 1, 0, -1)
                if (found := self.covered([letters + digits[:stop]]))
            ),
            None,
        )
        if family is None:
            starts = sorted({code[: len(letters) + 1] for code in self.known})
            return f": codes begin with {', '.join(each for each in starts if letters in each)}"
        are = "code is" if len(family) == 1 else "codes are"
        return f": the nearest {are} {', '.join(sorted(family))}"

    def _words(self) -> list[str]:
        return [*self.known, *self.known.values(), *GROUPS]

    def _refuse_unknown(self, settings: Settings) -> None:
        for option in (
            "select",
            "extend_select",
            "ignore",
            "extend_ignore",
            "fixable",
            "unfixable",
            "extend_safe_fixes",
            "extend_unsafe_fixes",
        ):
            for word in getattr(settings, option) or ():
                self._refuse_word(word, option, settings)
        for word in settings.severity:
            self._refuse_word(word, "severity", settings)
        for words in settings.per_file_ignores.values():
            for word in words:
                self._refuse_word(word, "per_file_ignores", settings)
        for name, options in settings.rules.items():
            self._refuse_options(name, options, settings)

    def _refuse_word(self, word: str, option: str, settings: Settings) -> None:
        if word not in GROUPS and (not word or not self.covered([word])):
            raise ConfigError(
                f"{place(settings, option, word)}: unknown code or name `{word}`{self._hint(word)}"
            )

    def _refuse_options(self, name: str, options: Mapping[str, Any], settings: Settings) -> None:
        """Raise `ConfigError` for options of unknown rules, and for unknown options."""
        head = next((head for head in self.rules if name in (head.name, head.code)), None)
        if head is None:
            hint = nearest(name, self.known.values())
            raise ConfigError(f"{place(settings, name)}: unknown rule `{name}`{hint}")
        known = head.load().options if options else {}
        for key, value in options.items():
            if key not in known:
                hint = nearest(key, known) or (", it has none" if not known else "")
                raise ConfigError(
                    f"{place(settings, key)}: rule `{name}` has no option `{key}`{hint}"
                )
            if type(value) is not type(known[key]):
                raise ConfigError(
                    f"{place(settings, key)}: option `{key}` of rule `{name}` must be "
                    f"{_kind(known[key])}, such as {known[key]!r}"
                )


def _kind(value: Any) -> str:
    kinds = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    return kinds.get(type(value), "a list" if isinstance(value, (list, tuple)) else "a table")


def load_registry() -> Registry:
    """List the rules of the built-in pack and of every installed one; raises `RegistryError`."""
    heads: dict[str, RuleHead] = {}
    names: dict[str, RuleHead] = {}
    errors: list[str] = []
    deprecations: list[str] = []
    for pack, package in installed_packs().items():
        try:
            found = list(rules_of(pack, package))
        except RegistryError as error:
            errors.append(str(error))
            continue
        if not found:
            errors.append(f"rule pack `{pack}`: the package {package} holds no rules")
        deprecations += deprecation(pack, found)
        for head in _usable(found, errors):
            _refuse_clash(heads.get(head.code) or names.get(head.name), head)
            heads[head.code] = names[head.name] = head
    if not heads:
        raise RegistryError("; ".join(("no rules found", *errors)))
    return Registry(
        tuple(heads[code] for code in sorted(heads)), tuple(errors), tuple(deprecations)
    )


def deprecation(pack: str, heads: Iterable[RuleHead]) -> list[str]:
    """Return a warning if a pack still has rule pages in Python, a deprecated format."""
    without = [head for head in heads if not head.page]
    if not without:
        return []
    first = without[0].module.partition(".")[2]
    page = os.path.basename(page_beside(without[0].file))  # noqa: PTH119
    more = f" and {len(without) - 1} more" if len(without) > 1 else ""
    return [
        f"rule pack `{pack}`: the page of {first}{more} stands in Python, which the next "
        f"release of torchlint does not read: write {page} beside it"
    ]


def _usable(heads: Iterable[RuleHead], errors: list[str]) -> Iterator[RuleHead]:
    """Yield the heads that can be read; add an error line for each of the others."""
    for head in heads:
        outcome = _outcome(head.read)
        if isinstance(outcome, RegistryError):
            errors.append(str(outcome))
        else:
            yield head


def _outcome(do: Callable[[], T]) -> T | RegistryError:
    try:
        return do()
    except RegistryError as error:
        return error


def _refuse_clash(first: RuleHead | None, second: RuleHead) -> None:
    if first is not None:
        raise RegistryError(
            f"rule packs `{first.pack}` and `{second.pack}` clash: {first.code} "
            f"{first.name} and {second.code} {second.name}"
        )
