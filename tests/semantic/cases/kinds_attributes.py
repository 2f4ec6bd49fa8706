# accelerator: yes
# framework: none
"""Attributes of self, of a class, of an object made in this file."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Config:
    lr = 0.1
    device = "cuda"


class Experiment:
    criterion = nn.CrossEntropyLoss()

    def __init__(self, X, y, config):
        self.loader = DataLoader(TensorDataset(X, y), batch_size=32)
        self.net = nn.Linear(4, 2).to(config.device)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=config.lr)
        self.sched = None
        self.history = []
        self.total = 0.0
        self.ambiguous = None
        self.build()

    def build(self):
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, 10)  # kind: SCHEDULER
        self.scaler = torch.cuda.amp.GradScaler(enabled=False)  # kind: SCALER
        self.ambiguous = nn.Linear(3, 3)

    def other(self):
        self.ambiguous = "text"

    def run(self):
        a = self.loader  # kind: LOADER
        b = self.net  # kind: MODULE
        c = self.opt  # kind: OPTIMIZER
        d = self.sched  # kind: SCHEDULER
        e = self.scaler  # kind: SCALER
        net = self.net(e)  # kind: TENSOR
        f = self.criterion  # kind: CRITERION
        g = self.history  # kind: SEQUENCE
        h = self.ambiguous  # kind: UNKNOWN
        i = self.never_assigned  # kind: UNKNOWN
        for inputs, targets in self.loader:  # role: TRAIN_BATCH; kind inputs: TENSOR
            out = self.net(inputs.cuda())  # kind: TENSOR
            self.loss = self.criterion(out, targets.cuda())  # kind: LOSS
            self.opt.zero_grad()
            self.loss.backward()  # kind self.loss: LOSS
            self.opt.step()
            self.total += self.loss.item()  # kind: NUMBER; frequency: every_pass
        return a, b, c, d, e, f, g, h, i


experiment = Experiment(torch.randn(8, 4), torch.zeros(8), Config())
net = experiment.net  # kind: MODULE
loader = experiment.loader  # kind: LOADER


class Independent:
    def run(self):
        return self.net(self.loader)
