"""The callbacks in the trainers themselves, where these are installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TRANSFORMERS = """\
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from torchlint.callbacks import TransformersCallback

torch.autograd.set_detect_anomaly(True)
rows = [{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor(n % 2)} for n in range(8)]
sizes = dict(vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
network = BertForSequenceClassification(BertConfig(**sizes, intermediate_size=8))
arguments = TrainingArguments(
    "out", max_steps=2, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no"
)
callbacks = [TransformersCallback()]
Trainer(network, arguments, train_dataset=rows, callbacks=callbacks).train()
print("trained")
"""
LIGHTNING = """\
import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchlint.callbacks import LightningCallback


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.autograd.set_detect_anomaly(True)
loader = DataLoader(TensorDataset(torch.rand(16, 8), torch.rand(16, 1)), batch_size=8)
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer = L.Trainer(max_epochs=2, accelerator="cpu", callbacks=[LightningCallback()], **quiet)
trainer.fit(Net(), loader)
print("trained")
"""


@pytest.mark.parametrize(
    ("framework", "script"), [("transformers", TRANSFORMERS), ("lightning", LIGHTNING)]
)
def test_a_real_trainer_prints_the_findings_once(
    tmp_path: Path, framework: str, script: str
) -> None:
    if find_spec(framework) is None:
        pytest.skip(f"needs {framework}")
    file = tmp_path / "train.py"
    file.write_text(script)
    done = subprocess.run(
        [sys.executable, file], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("trained\n")
    assert done.stderr.count("TL801 [anomaly-detection]") == 1
