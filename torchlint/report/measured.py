"""A report of `verify --json` as a ranking of findings by the time that they cost."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from torchlint.finding import Safety
from torchlint.report.entry import Entry, Measured

_VERSION: Final = 1
_VERDICTS: Final = ("FASTER", "SAME", "SLOWER", "DIFFERENT", "UNSURE")
_KINDS: Final = {str: "a text", int: "a whole number", list: "a list", dict: "an object"}

Value = TypeVar("Value")


class MeasuredError(Exception):
    """The file is not a report of `verify --json`; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class MeasuredReport:
    """The measured costs in one script, by file and rule."""

    file: Path
    script: str
    costs: Mapping[tuple[str, str], Measured]
    """By the real path of a file and the code of a rule."""

    def require(self, paths: Sequence[str]) -> None:
        """Refuse a report of a script that is not among the checked paths."""
        if _places(self.script, self.file).isdisjoint(map(os.path.realpath, paths)):
            raise MeasuredError(
                f"{self.file} was measured on {self.script}, which is not among the checked files; "
                "run check in the folder in which `verify` ran"
            )

    def ranked(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the findings with their costs, the most expensive first, unmeasured ones last.

        Equal costs keep the order of files and lines.
        """
        costs = [self._cost(entry) for entry in entries]
        together = Counter(id(cost) for cost in costs)
        measured = [
            replace(entry, measured=cost and replace(cost, findings=together[id(cost)]))
            for entry, cost in zip(entries, costs, strict=True)
        ]
        return sorted(measured, key=_rank)

    def _cost(self, entry: Entry) -> Measured | None:
        """Return the measured cost of a finding whose fix was applied."""
        cost = self.costs.get((os.path.realpath(entry.path), entry.finding.code))
        made = cost is not None and entry.fix is not None and entry.fix.safety >= cost.safety
        return cost if made else None


def _rank(entry: Entry) -> float:
    share = entry.measured.share if entry.measured else None
    return math.inf if share is None else -share


def read_measured(file: Path) -> MeasuredReport:
    """Read what `verify --json` wrote; raises `MeasuredError` for anything else."""
    try:
        return _report(_Reader(file), json.loads(file.read_bytes()))
    except OSError as error:
        raise MeasuredError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise MeasuredError(f"{file} is not JSON, and so not a report of `verify --json`") from None


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads values from a document, and reports where one is wrong."""

    file: Path

    def take(self, holder: Any, key: str, kind: type[Value], where: str = "") -> Value:
        """Return the value under `key`, which must be of the given kind."""
        value = holder.get(key) if isinstance(holder, dict) else None
        if type(value) is not kind:
            raise self.wrong(where + key, f"not {_KINDS[kind]}")
        return value

    def take_texts(self, holder: Any, key: str, where: str) -> list[str]:
        """Return the list of texts under `key`."""
        values = self.take(holder, key, list, where)
        if not all(type(value) is str for value in values):
            raise self.wrong(where + key, "not a list of texts")
        return values

    def take_ratio(self, holder: Any, key: str, where: str) -> float:
        """Return the positive number under `key`."""
        value = holder.get(key) if isinstance(holder, dict) else None
        if isinstance(value, int | float) and value is not True and 0 < value < 1e300:
            return float(value)
        raise self.wrong(where + key, "not a number above 0")

    def take_word(self, holder: Any, key: str, where: str, words: Sequence[str]) -> str:
        """Return the text under `key`, which must be one of `words`."""
        value = self.take(holder, key, str, where)
        if value not in words:
            raise self.wrong(where + key, f"none of {', '.join(words)}")
        return value

    def wrong(self, what: str, why: str) -> MeasuredError:
        """Return an error for a missing or wrong value."""
        return MeasuredError(f"{self.file} is not a report of `verify --json`: `{what}` is {why}")


def _report(reader: _Reader, document: Any) -> MeasuredReport:
    version = reader.take(document, "version", int)
    if version != _VERSION:
        raise MeasuredError(
            f"{reader.file} is of version {version}, and this torchlint reads version {_VERSION}: "
            "run `torchlint verify --json` again"
        )
    script = reader.take(document, "script", str)
    device = reader.take(document, "device", str)
    variants = reader.take(document, "variants", list)
    costs: dict[tuple[str, str], Measured] = {}
    for number, variant in enumerate(variants):
        where = f"variants[{number}]."
        codes = reader.take_texts(variant, "codes", where)
        kind = reader.take(variant, "kind", str, where)
        cost = _cost(reader, variant, device, where)
        files = reader.take_texts(variant, "files", where) if "files" in variant else [script]
        if kind == "rule" and cost is not None:
            places = {place for name in files for place in _places(name, reader.file)}
            costs.update({(place, code): cost for place in places for code in codes})
    return MeasuredReport(reader.file, script, costs)


def _cost(reader: _Reader, variant: Any, device: str, where: str) -> Measured | None:
    """Return the gain of a variant, None where it was not timed."""
    words = [safety.word for safety in Safety]
    safety = Safety(words.index(reader.take_word(variant, "safety", where, words)))
    verdict = reader.take_word(variant, "verdict", where, _VERDICTS)
    if variant.get("speedup") is None:
        return None
    speedup = reader.take(variant, "speedup", dict, where)
    ratio, low, high = (
        reader.take_ratio(speedup, key, f"{where}speedup.") for key in ("ratio", "low", "high")
    )
    return Measured(verdict, device, ratio, low, high, safety)


def _places(name: str, report: Path) -> set[str]:
    """Return the real paths that a name can stand for: from here, or from the report's folder."""
    if "\0" in name:
        raise MeasuredError(f"{report} is not a report of `verify --json`: it names no file")
    return {os.path.realpath(name), os.path.realpath(report.parent / name)}
