"""What `verify --json` measured, as the order in which findings are worth a reader's time."""

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
from torchlint.report.entry import Entry
from torchlint.report.gain import Measured

__all__ = ["MeasuredError", "MeasuredReport", "read_measured"]

_VERSION: Final = 1
_VERDICTS: Final = ("FASTER", "SAME", "SLOWER", "DIFFERENT", "UNSURE")
_KINDS: Final = {str: "a text", int: "a whole number", list: "a list", dict: "an object"}

Value = TypeVar("Value")


class MeasuredError(Exception):
    """The file is no report of `verify --json`; the message says in a line what is wrong."""


@dataclass(frozen=True, slots=True)
class MeasuredReport:
    """The costs of one script: for each file and rule, what fixing it gained."""

    file: Path
    script: str
    costs: Mapping[tuple[str, str], Measured]
    """By the real path of a file and the code of a rule."""

    def require(self, paths: Sequence[str]) -> None:
        """Refuse a report of a script that is not among those looked at."""
        if _places(self.script, self.file).isdisjoint(map(os.path.realpath, paths)):
            raise MeasuredError(
                f"{self.file} is of {self.script}, which is not among the files to check: "
                "check it from the folder that `verify` ran in"
            )

    def ranked(self, entries: Sequence[Entry]) -> list[Entry]:
        """Give the findings with what they cost, the costliest first, unmeasured ones last.

        Those that cost the same stay in the order of files and lines.
        """
        costs = [self._cost(entry) for entry in entries]
        together = Counter(id(cost) for cost in costs)
        told = [
            replace(entry, measured=cost and replace(cost, findings=together[id(cost)]))
            for entry, cost in zip(entries, costs, strict=True)
        ]
        return sorted(told, key=_rank)

    def _cost(self, entry: Entry) -> Measured | None:
        """Give what was measured of a finding: of one whose fix was made, that is."""
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
        raise MeasuredError(f"{file} is not JSON: `verify --json` writes what is wanted") from None


@dataclass(frozen=True, slots=True)
class _Reader:
    """Takes values out of a document and says where one is not what it should be."""

    file: Path

    def take(self, holder: Any, key: str, kind: type[Value], where: str = "") -> Value:
        """Give the value under `key`, which is of the kind that is named."""
        value = holder.get(key) if isinstance(holder, dict) else None
        if type(value) is not kind:
            raise self.wrong(where + key, f"not {_KINDS[kind]}")
        return value

    def take_texts(self, holder: Any, key: str, where: str) -> list[str]:
        """Give the list of texts under `key`."""
        values = self.take(holder, key, list, where)
        if not all(type(value) is str for value in values):
            raise self.wrong(where + key, "not a list of texts")
        return values

    def take_ratio(self, holder: Any, key: str, where: str) -> float:
        """Give the number above 0 under `key`."""
        value = holder.get(key) if isinstance(holder, dict) else None
        if isinstance(value, int | float) and value is not True and 0 < value < 1e300:
            return float(value)
        raise self.wrong(where + key, "not a number above 0")

    def take_word(self, holder: Any, key: str, where: str, words: Sequence[str]) -> str:
        """Give the text under `key`, one of those that are known."""
        value = self.take(holder, key, str, where)
        if value not in words:
            raise self.wrong(where + key, f"none of {', '.join(words)}")
        return value

    def wrong(self, what: str, why: str) -> MeasuredError:
        """Give the error of a value that is missing or wrong."""
        return MeasuredError(f"{self.file} is no report of `verify --json`: `{what}` is {why}")


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
    """Give what a variant gained, None where it was not timed."""
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
    """Give the real paths that a name in a report can stand for: from here, or beside it."""
    if "\0" in name:
        raise MeasuredError(f"{report} is no report of `verify --json`: it names no file")
    return {os.path.realpath(name), os.path.realpath(report.parent / name)}
