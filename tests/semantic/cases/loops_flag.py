# accelerator: yes
# framework: none
"""One function or method that trains or evaluates, as a flag says."""
import torch
import torch.nn as nn


def run_epoch(model, loader, criterion, optimizer, device, train=True):
    model.train() if train else model.eval()
    total = 0.0
    with torch.set_grad_enabled(train):
        for x, y in loader:  # role: TRAIN_BATCH; grad: unknown
            x, y = x.to(device), y.to(device)
            output = model(x)  # grad: unknown
            loss = criterion(output, y)  # kind: LOSS
            if train:
                optimizer.zero_grad()
                loss.backward()  # frequency: every_pass
                optimizer.step()
            total += loss.item()  # kind: NUMBER; frequency: every_pass
    return total / len(loader)


def iterate(model, loader, criterion, optimizer=None):
    is_training = optimizer is not None
    torch.set_grad_enabled(is_training)
    for x, y in loader:  # role: TRAIN_BATCH
        loss = criterion(model(x), y)  # grad: unknown
        if is_training:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


class Solver(object):
    def __init__(self, model, train_loader, val_loader, optimizer):
        self.model = nn.DataParallel(model).cuda()  # kind: MODULE; name: ?
        self.train_loader = train_loader
        self.val_loader = val_loader
        self.optimizer = optimizer
        self.criterion = nn.MSELoss().cuda()  # kind: CRITERION

    def loop(self, loader, training):
        losses = []
        for x, y in loader:  # role: TRAIN_BATCH
            loss = self.criterion(self.model(x.cuda()), y.cuda())  # kind: LOSS; grad: unknown
            if training:
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    def fit(self, epochs):
        for epoch in range(epochs):  # role: EPOCH
            self.loop(self.train_loader, training=True)  # grad: on
            with torch.no_grad():
                self.loop(self.val_loader, training=False)  # grad: off
