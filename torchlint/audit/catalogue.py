"""The catalogue of techniques by family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torchlint.audit.checkpoints import CHECKPOINTS
from torchlint.audit.device import DEVICE
from torchlint.audit.distributed import DISTRIBUTED
from torchlint.audit.evaluation import EVALUATION
from torchlint.audit.largemodels import LARGE_MODELS
from torchlint.audit.leftovers import LEFTOVERS
from torchlint.audit.management import MANAGEMENT
from torchlint.audit.network import NETWORK
from torchlint.audit.optimization import OPTIMIZATION
from torchlint.audit.pipeline import PIPELINE
from torchlint.audit.precision import PRECISION
from torchlint.audit.technique import Technique
from torchlint.audit.trainers import TRAINERS

FAMILIES: Final[Mapping[str, tuple[Technique, ...]]] = {
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
"""Every technique, by the heading that it is printed under."""
