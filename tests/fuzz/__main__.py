"""A fuzzer that watches which code its inputs reach: `PYTHONPATH=tests python -m fuzz TARGET`."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import mkdtemp

import atheris

with atheris.instrument_imports(include=["torchlint", "torchlint_rules"]):
    from fuzz.seeds import seeds
    from fuzz.targets import TARGETS


def main() -> None:
    """Fuzz one target; what stands behind its name are options of libFuzzer."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        names = ", ".join(TARGETS)
        sys.exit(f"usage: python -m fuzz TARGET [-max_total_time=300 ...]; targets: {names}")
    _, name, *options = sys.argv
    corpus = Path(mkdtemp(prefix=f"torchlint-fuzz-{name}-"))
    for number, seed in enumerate(seeds(name)):
        (corpus / f"seed{number:04}").write_bytes(seed)
    with atheris.instrument_imports(include=["torchlint", "torchlint_rules"]):
        TARGETS[name](next(seeds(name)))  # imports what is imported late
    atheris.Setup([sys.argv[0], *options, str(corpus)], TARGETS[name])
    atheris.Fuzz()


main()
