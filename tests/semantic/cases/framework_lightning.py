# accelerator: yes
# framework: lightning
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader


class LitModel(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(28 * 28, 10)  # kind: MODULE

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.layer(x.flatten(1)), y)  # kind: LOSS
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)  # kind: OPTIMIZER


trainer = pl.Trainer(max_epochs=3, accelerator="gpu")  # name: pytorch_lightning.Trainer
trainer.fit(LitModel(), DataLoader(dataset, batch_size=32))
