"""Audits of whole scripts: chosen rows by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_rows import rows_of

from torchlint.audit import Status

FIXTURES = Path(__file__).parents[2] / "fixtures"
IN_USE, MISSING = Status.IN_USE, Status.MISSING
NOT_APPLICABLE, CANNOT_TELL = Status.NOT_APPLICABLE, Status.CANNOT_TELL

CHOSEN = {
    "scripts/image_classifier/before.py": {
        "workers load batches": NOT_APPLICABLE,
        "batches in pinned memory": MISSING,
        "inputs normalized": IN_USE,
        "mixed precision": MISSING,
        "no bias before batch norm": MISSING,
        "learning-rate schedule and warm-up": IN_USE,
        "evaluation without gradients": MISSING,
        "evaluation mode, then training mode again": IN_USE,
        "state dicts saved, not modules": IN_USE,
        "resuming from checkpoints": MISSING,
        "torchrun starts the processes": NOT_APPLICABLE,
    },
    "scripts/character_gpt/before.py": {
        "workers load batches": NOT_APPLICABLE,
        "fused attention": MISSING,
    },
    "scripts/dataparallel_classifier/before.py": {
        "DistributedDataParallel on several GPUs": MISSING,
    },
    "scripts/tabular_mlp/before.py": {
        "cuDNN's autotuner": NOT_APPLICABLE,
    },
    "scripts/vae/before.py": {
        "no debugging tools left on": MISSING,
    },
    "quiet/nanogpt_style.py": {
        "mixed precision": IN_USE,
        "TF32 matmuls": IN_USE,
        "fused attention": IN_USE,
        "fused optimizer": IN_USE,
        "gradient accumulation": IN_USE,
        "gradient clipping": IN_USE,
        "learning-rate schedule and warm-up": IN_USE,
        "torchrun starts the processes": IN_USE,
        "gradients synchronized once per accumulation": IN_USE,
        "arrays become tensors without a copy": IN_USE,
        "early stopping": NOT_APPLICABLE,
    },
    "quiet/ddp_torchrun.py": {
        "DistributedDataParallel on several GPUs": IN_USE,
        "data sharded by process and reshuffled every epoch": IN_USE,
        "no bias before batch norm": IN_USE,
        "non-blocking copies to the device": IN_USE,
        "gradients synchronized once per accumulation": NOT_APPLICABLE,
        "no search for unused parameters": IN_USE,
    },
    "quiet/amp_accumulation_clipping.py": {
        "mixed precision": IN_USE,
        "autocast and scaler used correctly": IN_USE,
        "gradient accumulation": IN_USE,
        "gradient clipping": IN_USE,
    },
    "quiet/lightning_module.py": {
        "gradients set to None in every step": NOT_APPLICABLE,
        "DistributedDataParallel on several GPUs": NOT_APPLICABLE,
    },
    "quiet/accelerate_loop.py": {
        "networks moved to the device once": NOT_APPLICABLE,
        "gradients set to None in every step": IN_USE,
    },
    "quiet/transformers_trainer.py": {
        "no host syncs in the training loop": NOT_APPLICABLE,
    },
    "quiet/cpu_only.py": {
        "mixed precision": NOT_APPLICABLE,
        "non-blocking copies to the device": NOT_APPLICABLE,
        "batches in pinned memory": NOT_APPLICABLE,
    },
    "quiet/inference_only.py": {
        "no debugging tools left on": NOT_APPLICABLE,
        "evaluation without gradients": IN_USE,
        "early stopping": NOT_APPLICABLE,
    },
    "quiet/lbfgs_closure.py": {
        "learning-rate schedule and warm-up": NOT_APPLICABLE,
        "fused optimizer": NOT_APPLICABLE,
    },
}


@pytest.mark.parametrize("script", CHOSEN)
def test_chosen_rows(script: str) -> None:
    rows = rows_of((FIXTURES / script).read_text(encoding="utf-8"))
    expected = CHOSEN[script]
    assert {name: rows[name].status for name in expected} == expected


OFF_BY_DEFAULT = {
    "TL211", "TL222", "TL223", "TL224", "TL225", "TL307", "TL308", "TL312", "TL331", "TL603",
    "TL705", "TL804",
}  # fmt: skip


@pytest.mark.parametrize(
    "script", sorted((FIXTURES / "quiet").glob("*.py")), ids=lambda path: path.stem
)
def test_no_rule_that_is_on_finds_anything_in_well_tuned_code(script: Path) -> None:
    rows = rows_of(script.read_text(encoding="utf-8"))
    told = {code for row in rows.values() for code in row.rules}
    assert told <= OFF_BY_DEFAULT
