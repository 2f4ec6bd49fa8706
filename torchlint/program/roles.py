"""What a module is for, by its path alone."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from torchlint.notebook import is_notebook

_TEST: Final = re.compile(
    r"(?:^|/)(?:tests?|testing|benchmarks?|docs?)/|(?:^|/)(?:test_[^/]*|[^/]*_test|conftest)\.\w+$"
)


@cache
def is_test(path: str) -> bool:
    """Return whether a path is that of a test, a benchmark or documentation."""
    return _TEST.search(path) is not None


def is_main(path: str) -> bool:
    """Return whether a module is run as the main module, by its name."""
    return is_notebook(path) or path.endswith("__main__.py")
