# accelerator: yes
# framework: none
"""The backward pass stands one or two calls away from the loop."""
import torch
from torch import nn
from torch.utils.data import DataLoader


def step(model, x, y, criterion, optimizer):
    optimizer.zero_grad()
    loss = criterion(model(x), y)  # kind: LOSS; grad: on
    loss.backward()
    optimizer.step()
    return loss.item()  # kind: NUMBER


def fit(model, train_loader, criterion, optimizer, epochs):
    for epoch in range(epochs):  # role: EPOCH
        running = 0.0
        for x, y in train_loader:  # role: TRAIN_BATCH
            running += step(model, x.cuda(), y.cuda(), criterion, optimizer)  # kind: NUMBER; frequency: every_pass
        print(running / len(train_loader))


def update(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def learn(model, batch, criterion, optimizer):
    inputs, targets = batch
    loss = criterion(model(inputs), targets)  # kind: LOSS
    update(loss, optimizer)
    return loss.detach()  # kind: TENSOR


def train(model, loader, criterion, optimizer):
    for batch in loader:  # role: TRAIN_BATCH
        learn(model, batch, criterion, optimizer)


def score(model, batch):
    x, y = batch
    return (model(x).argmax(1) == y).float().mean()  # kind: TENSOR; grad: off


@torch.no_grad()
def evaluate(model, val_loader):
    accuracies = []
    for batch in val_loader:  # role: EVAL_BATCH
        accuracies.append(score(model, batch).item())  # frequency: every_pass; grad: off
    return sum(accuracies) / len(accuracies)


class Trainer:
    def __init__(self, model, train_data: DataLoader, valid_data: DataLoader, optimizer, gpu_id):
        self.gpu_id = gpu_id
        self.model = model.to(gpu_id)
        self.train_data = train_data
        self.valid_data = valid_data
        self.optimizer = optimizer
        self.criterion = nn.CrossEntropyLoss()  # kind: CRITERION

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        output = self.model(source)
        loss = self.criterion(output, targets)  # kind: LOSS
        loss.backward()
        self.optimizer.step()

    def _run_epoch(self, epoch):
        self.train_data.sampler.set_epoch(epoch)
        for source, targets in self.train_data:  # role: TRAIN_BATCH; kind self.train_data: LOADER; kind source: TENSOR
            source = source.to(self.gpu_id)  # kind: TENSOR
            targets = targets.to(self.gpu_id)
            self._run_batch(source, targets)

    def _validate(self):
        with torch.no_grad():
            for source, targets in self.valid_data:  # role: EVAL_BATCH
                output = self.model(source.to(self.gpu_id))  # grad: off

    def train(self, max_epochs: int):
        for epoch in range(max_epochs):  # role: EPOCH
            self._run_epoch(epoch)
            if epoch % 5 == 0:
                self._validate()
