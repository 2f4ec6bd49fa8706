"""A baseline: known findings, kept in a file beside the code."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from torchlint.report.entry import Entry
from torchlint.report.identity import Identities, Identity

_VERSION: Final = 1
_TOOL: Final = "torchlint"
_KEYS: Final = ("path", "code", "statement")


class BaselineError(Exception):
    """A file that cannot be used as a baseline; the message says why in one line."""


@dataclass(frozen=True)
class Baseline:
    """How often each finding is known; paths are relative to the folder of the file."""

    file: Path
    counts: Mapping[Identity, int]

    @classmethod
    def read(cls, file: Path) -> Baseline:
        """Read what `--write-baseline` wrote; raises `BaselineError` for anything else."""
        try:
            document = json.loads(file.read_bytes())
        except FileNotFoundError:
            raise BaselineError(f"{file} does not exist: `--write-baseline` creates it") from None
        except OSError as error:
            raise BaselineError(f"{file} cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError):
            raise BaselineError(f"{file} is not a baseline: not JSON") from None
        return cls(file, _counts(document, file))

    @classmethod
    def of(cls, file: Path, entries: Sequence[Entry]) -> Baseline:
        """Return a baseline of these findings."""
        return cls(file, Counter(map(Identities(file.absolute().parent).of, entries)))

    def unknown(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the findings that are not in the baseline."""
        left = Counter(self.counts)
        new = []
        for entry, identity in zip(entries, map(self._identities.of, entries), strict=True):
            if left[identity] > 0:
                left[identity] -= 1
            else:
                new.append(entry)
        return new

    def knows(self, entry: Entry) -> bool:
        """Return whether a finding of this code in this statement is known."""
        return self._identities.of(entry) in self.counts

    def gone(
        self, entries: Sequence[Entry], looked_for: Callable[[Identity], bool]
    ) -> Counter[Identity]:
        """Return the findings of the baseline that a run looked for and did not find."""
        left = Counter(self.counts)
        left.subtract(Counter(map(self._identities.of, entries)))
        return Counter(
            {each: count for each, count in left.items() if count > 0 and looked_for(each)}
        )

    def updated(self, entries: Sequence[Entry], looked_for: Callable[[Identity], bool]) -> Baseline:
        """Return the baseline after a run, with findings that the run did not look for kept."""
        kept = {each: count for each, count in self.counts.items() if not looked_for(each)}
        return Baseline(self.file, kept | Counter(map(self._identities.of, entries)))

    def to_bytes(self) -> bytes:
        """Return the content of the file: a line per statement, ordered by path and code."""
        found = ({**asdict(each), "count": self.counts[each]} for each in sorted(self.counts))
        body = ",\n    ".join(map(json.dumps, found))
        findings = f"[\n    {body}\n  ]" if body else "[]"
        text = f'{{\n  "tool": "{_TOOL}",\n  "version": {_VERSION},\n  "findings": {findings}\n}}\n'
        return text.encode()

    @cached_property
    def _identities(self) -> Identities:
        return Identities(self.file.absolute().parent)


def is_baseline(file: Path) -> bool:
    """Return whether a file is a baseline, of any version."""
    try:
        document = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("tool") == _TOOL and "version" in document


def _counts(document: Any, file: Path) -> Counter[Identity]:
    if not isinstance(document, dict) or document.get("tool") != _TOOL:
        raise BaselineError(f"{file} is not a baseline: `--write-baseline` did not write it")
    version = document.get("version")
    if version != _VERSION:
        raise BaselineError(
            f"{file} is a baseline of version {version!r}, and this torchlint reads version "
            f"{_VERSION}: `--write-baseline` writes it again"
        )
    findings = document.get("findings")
    if not isinstance(findings, list):
        raise BaselineError(f"{file} is not a baseline: `findings` is not a list")
    counts: Counter[Identity] = Counter()
    for number, each in enumerate(findings):
        if not _is_complete(each):
            raise BaselineError(f"{file} is not a baseline: `findings[{number}]` is not complete")
        counts[Identity(*(each[key] for key in _KEYS))] += each["count"]
    return counts


def _is_complete(finding: Any) -> bool:
    if not isinstance(finding, dict) or type(finding.get("count")) is not int:
        return False
    return finding["count"] > 0 and all(isinstance(finding.get(key), str) for key in _KEYS)
