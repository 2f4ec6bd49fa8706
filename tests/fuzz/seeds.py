"""What a fuzzer starts from: files of the fixtures, and what torchlint itself writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["seeds"]

_FIXTURES: Final = Path(__file__).parents[2] / "fixtures"
_COMMENTS: Final = (
    "# noqa",
    "# noqa: TL801, E501 why",
    "# torchlint: ignore",
    "# torchlint: ignore[TL801, anomaly-detection] why",
    "# torchlint: ignore-file[TL8]  # noqa:TL8",
)
_CONFIGURATION: Final = """\
[tool.torchlint]
select = ["TL1", "anomaly-detection"]
exclude = ["a/*.py", "[!b]"]
per-file-ignores = { "**/x.py" = ["TL801"] }
target-torch = "2.4"
jobs = 2
file-timeout = 1.5
baseline = "known.json"
[tool.torchlint.rules.loader-without-workers]
workers = 2
[project]
dependencies = ["torch>=2.1,<3", "numpy"]
"""
_GITIGNORE: Final = """\
# made by tools
*.py[co]
/build/
!docs/**/keep?.py
**/[!a-c[:digit:]]\\ x*y*z/**
"""
_BASELINE: Final = {
    "tool": "torchlint",
    "version": 1,
    "findings": [
        {
            "path": "fuzzed.py",
            "code": "TL801",
            "statement": "torch.autograd.set_detect_anomaly(True)",
            "count": 1,
        }
    ],
}
_MEASURED: Final = {
    "version": 1,
    "script": "fuzzed.py",
    "device": "cpu",
    "variants": [
        {
            "kind": "rule",
            "codes": ["TL801"],
            "safety": "exact",
            "verdict": "FASTER",
            "files": ["fuzzed.py"],
            "speedup": {"ratio": 1.5, "low": 1.4, "high": 1.6},
        }
    ],
}
_OUTLINE: Final = [
    [["function", ["f"], 1, 2, 40, ["data", "f"], ["data.x"], [[0, "data", None, "data"]], True]],
    [[1, "data", "x", "y"]],
    [[0, "data"]],
    ["f"],
    True,
    False,
]


def seeds(target: str) -> Iterator[bytes]:
    """Yield the inputs that the fuzzing of a target begins with."""
    if target == "source":
        yield from (path.read_bytes() for path in sorted(_FIXTURES.rglob("*.py")))
    elif target == "notebook":
        yield from (_notebook(path) for path in sorted((_FIXTURES / "scripts").rglob("*.py")))
    elif target == "suppressions":
        yield from (comment.encode() for comment in _COMMENTS)
    elif target == "configuration":
        yield _CONFIGURATION.encode()
        yield _CONFIGURATION.replace("tool.torchlint", "x").encode()
    elif target == "gitignore":
        yield _GITIGNORE.encode()
    elif target == "baseline":
        yield json.dumps(_BASELINE).encode()
    elif target == "measured":
        yield json.dumps(_MEASURED).encode()
    elif target == "outlines":
        yield json.dumps(_OUTLINE).encode()
        yield b"null"
    else:
        yield b"{}"
        yield b'[1, ["TL801", 0, 5, "told", ["Do", 3, "", [[0, 5, ""]]], [[0, 5, "note"]]]]'


def _notebook(path: Path) -> bytes:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    cells: list[dict[str, object]] = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": source}
        for source in ("%matplotlib inline\n!ls", lines, "x = !date\n%time print(x)?")
    ]
    head = {"metadata": {"kernelspec": {"language": "python"}}, "nbformat": 4}
    return json.dumps({"cells": cells, **head}, indent=1).encode()
