# framework: lightning
import lightning as L
import torch


class LitModel(L.LightningModule):
    def training_step(self, batch, batch_idx):
        return self.model(batch).mean()


L.Trainer(max_epochs=1).fit(LitModel())
