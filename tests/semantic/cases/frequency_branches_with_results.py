"""A branch of a step's method that ends with its result runs as often as one before an `else`."""

import lightning as L


class Net(L.LightningModule):
    def training_step(self, batch, batch_idx, optimizer_idx):
        if batch is None:
            self.skip(batch)  # frequency: rare
            return None
        if optimizer_idx == 0:
            loss = self.first(batch)  # frequency: every_pass
            return loss
        if optimizer_idx == 1:
            for part in batch:
                if part.bad:
                    self.drop(part)  # frequency: rare
                    return part
            return self.penalty(batch)
        if optimizer_idx == 2:
            logger.warning("no such optimizer")
            return self.skip(batch)  # frequency: rare

    def penalty(self, batch):
        return self.second(batch)  # frequency: every_pass
