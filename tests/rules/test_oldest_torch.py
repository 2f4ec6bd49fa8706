"""A fix that is made without being asked for runs on the oldest torch that a project can have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torchlint.config import Settings
from torchlint.engine import check_source, fix_source
from torchlint.finding import Safety
from torchlint.registry import load_registry
from torchlint.source import Source
from torchlint.testing import Example, examples_of

REGISTRY = load_registry()
NEWER = (
    "amp.GradScaler", "amp.custom_", "fused=True", "rms_norm(", "scale=1", "enable_gqa",
    "torch.accelerator", "swap_tensors", "torch.xpu.is_available",
)  # fmt: skip
"""What torch 2.0 does not have, or does not take on every device."""


def _examples() -> Iterator[Example]:
    for rule in REGISTRY.rules:
        for example in examples_of(rule.load()):
            if any(word in example.after for word in NEWER) and not example.valid:
                yield example


@pytest.mark.parametrize("example", list(_examples()), ids=lambda e: f"{e.rule.code}: {e.sentence}")
def test_what_is_newer_than_torch_2_0_is_never_written_by_default(example: Example) -> None:
    settings = Settings(
        select=(example.rule.code,),
        target_device=example.settings.target_device,
        rules=example.settings.rules,
    )
    source = Source("train.py", example.before)
    after = fix_source(source, REGISTRY.select(settings), settings).after.text
    for word in NEWER:
        assert after.count(word) <= example.before.count(word)


ADAM = "import torch\noptimizer = torch.optim.Adam(model.parameters())\n"
ADAGRAD = "import torch\nnet.cuda()\noptimizer = torch.optim.Adagrad(net.parameters())\n"
SCALER = "import torch\nscaler = torch.cuda.amp.GradScaler()\n"
AUTOCAST = "import torch\nwith torch.cuda.amp.autocast():\n    pass\n"
TOGETHER = (
    "from torch.cuda.amp import GradScaler, autocast\n"
    "with autocast():\n    pass\nscaler = GradScaler()\n"
)


@pytest.mark.parametrize(
    ("text", "target", "safety", "needed"),
    [
        (ADAM, None, Safety.UNSAFE, "2.4"),
        (ADAM, (2, 4), Safety.CLOSE, ""),
        (ADAGRAD, None, Safety.UNSAFE, "2.9"),
        (ADAGRAD, (2, 9), Safety.CLOSE, ""),
        (SCALER, None, Safety.UNSAFE, "2.3"),
        (SCALER, (2, 4), Safety.EXACT, ""),
        (AUTOCAST, None, Safety.EXACT, ""),
        (TOGETHER, None, Safety.UNSAFE, "2.3"),
    ],
)
def test_the_version_is_in_the_reason(
    text: str, target: tuple[int, int] | None, safety: Safety, needed: str
) -> None:
    settings = Settings(select=("TL501", "TL302"), target_torch=target)
    found = check_source(Source("train.py", text), REGISTRY.select(settings), settings).findings
    for finding in found:
        assert finding.fix is not None
        assert finding.fix.safety is safety
        assert (f"needs torch {needed}" in (finding.fix.because or "")) == bool(needed)
