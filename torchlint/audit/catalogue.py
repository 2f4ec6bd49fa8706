"""The catalogue of techniques by family, as `techniques.toml` lists them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from torchlint.audit import questions
from torchlint.audit.device import DEVICE
from torchlint.audit.distributed import DISTRIBUTED, LARGE_MODELS
from torchlint.audit.evaluation import CHECKPOINTS, EVALUATION
from torchlint.audit.management import LEFTOVERS, MANAGEMENT, TRAINERS
from torchlint.audit.network import NETWORK
from torchlint.audit.optimization import OPTIMIZATION
from torchlint.audit.pipeline import PIPELINE
from torchlint.audit.precision import PRECISION
from torchlint.audit.technique import Ask, Technique
from torchlint.config.values import parse

_FILE: Final = Path(__file__).with_name("techniques.toml")
_QUESTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "input pipeline": PIPELINE,
    "host and device": DEVICE,
    "precision and kernels": PRECISION,
    "model and memory": NETWORK,
    "large models": LARGE_MODELS,
    "optimization step": OPTIMIZATION,
    "evaluation": EVALUATION,
    "distributed": DISTRIBUTED,
    "debugging leftovers": LEFTOVERS,
    "checkpoints": CHECKPOINTS,
    "managing the run": MANAGEMENT,
    "frameworks": TRAINERS,
}
"""The questions of each family that no other asks, by name."""


def _technique(row: Mapping[str, Any], own: Mapping[str, Any]) -> Technique:
    """Return a row of the file as a technique; `own` are the questions of its family."""
    asks = tuple(_ask(written, own) for written in row["questions"])
    articles, rules = tuple(row["articles"]), tuple(row.get("rules", ()))
    return Technique(row["name"], articles, asks, rules, row.get("gain", ""))


def _ask(written: str | list[Any], own: Mapping[str, Any]) -> Ask:
    """Return a question: one that has a name, or one made from what stands behind its name."""
    name, *given = [written] if isinstance(written, str) else written
    if name == "unless":
        given[0] = own[given[0]]
    found: Any = own.get(name) or getattr(questions, name)
    ask: Ask = found(*given) if given else found
    return ask


FAMILIES: Final[Mapping[str, tuple[Technique, ...]]] = {
    family: tuple(_technique(row, _QUESTIONS[family]) for row in rows)
    for family, rows in parse(_FILE.read_text(encoding="utf-8"), _FILE).items()
}
"""Every technique, by the heading that it is printed under."""
