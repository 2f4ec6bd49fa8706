# accelerator: yes
# framework: none
"""What comes out of a loader and a network in other shapes than two tensors."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader


class MultiEpochsDataLoader(DataLoader):
    pass


def dictionaries(model, train_loader, optimizer, device):
    for batch in train_loader:  # role: TRAIN_BATCH
        image = batch["image"].to(device)  # kind: TENSOR
        mask = batch["mask"].to(device, non_blocking=True)  # kind: TENSOR
        loss = nn.BCEWithLogitsLoss()(model(image), mask)  # kind: LOSS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def positions(model, train_loader, criterion, optimizer):
    for i, data in enumerate(train_loader, 0):  # role: TRAIN_BATCH; kind i: NUMBER
        inputs, labels = data  # kind inputs: TENSOR; kind labels: TENSOR
        first, second = data[0].cuda(), data[1].cuda()  # kind first: TENSOR; kind second: TENSOR
        outputs = model(inputs.cuda())
        loss = criterion(outputs, labels.cuda())  # kind: LOSS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item(), end="\r")  # frequency: every_pass


def tuples_of_losses(detector, data_loader, optimizer, device):
    for images, targets in data_loader:  # role: TRAIN_BATCH
        images = [image.to(device) for image in images]  # kind: SEQUENCE
        targets = [{k: v.to(device) for k, v in t.items()} for t in targets]  # kind: SEQUENCE
        loss_dict = detector(images, targets)
        losses = sum(loss for loss in loss_dict.values())
        loss_value = losses.item()  # kind: NUMBER; frequency: every_pass
        optimizer.zero_grad()
        losses.backward()  # kind losses: LOSS
        optimizer.step()


def wrapped(model, dataset, criterion, optimizer):
    model = nn.parallel.DistributedDataParallel(model.cuda())  # kind: MODULE
    loader = MultiEpochsDataLoader(dataset, batch_size=8)  # kind: LOADER
    for x, y in loader:  # role: TRAIN_BATCH; kind x: TENSOR
        out = model.module(x)  # kind: TENSOR
        out = model.forward(x)  # kind: TENSOR
        loss, parts = criterion(out, y), {}
        loss.backward()  # kind loss: LOSS
        optimizer.step()
    torch.save({"model": model.module.state_dict()}, "last.pt")  # frequency: unknown


class Lit(nn.Module):
    def training_loop(self, loader, optimizer):
        for x, y in loader:  # role: TRAIN_BATCH
            logits = self(x)  # kind: TENSOR
            loss = self.compute_loss(logits, y)  # kind: LOSS
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def compute_loss(self, logits, y):
        return nn.functional.cross_entropy(logits, y)  # kind: LOSS


def text(model, train_iterator, optimizer, criterion, clip):
    epoch_loss = 0
    for i, batch in enumerate(train_iterator):  # role: TRAIN_BATCH
        src = batch.src
        trg = batch.trg
        output = model(src, trg)  # kind: TENSOR
        output = output[1:].view(-1, output.shape[-1])  # kind: TENSOR
        loss = criterion(output, trg[1:].view(-1))  # kind: LOSS
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        epoch_loss += loss.item()  # frequency: every_pass
    return epoch_loss / len(train_iterator)


def graph(gnn, loader, optimizer):
    for data in loader:  # role: TRAIN_BATCH
        data = data.to("cuda")
        out = gnn(data.x, data.edge_index)
        loss = nn.functional.nll_loss(out, data.y)  # kind: LOSS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = float(loss) * data.num_graphs  # frequency: every_pass


def full_batch(model, X, y, criterion, optimizer):
    for epoch in range(1000):  # role: TRAIN_BATCH
        optimizer.zero_grad()
        loss = criterion(model(X), y)  # kind: LOSS
        loss.backward()
        optimizer.step()
        if epoch % 100 == 0:
            print(loss.item())  # frequency: rare


def minibatches_by_hand(model, X, y, criterion, optimizer, batch_size):
    for epoch in range(10):  # role: EPOCH
        permutation = torch.randperm(X.size(0))  # kind: TENSOR
        for i in range(0, X.size(0), batch_size):  # role: TRAIN_BATCH; kind i: NUMBER
            indices = permutation[i : i + batch_size]  # kind: TENSOR
            optimizer.zero_grad()
            loss = criterion(model(X[indices]), y[indices])  # kind: LOSS
            loss.backward()
            optimizer.step()


def optimise_an_image(image, features, content, steps):
    optimizer = torch.optim.LBFGS([image.requires_grad_()])
    run = [0]
    while run[0] <= steps:  # role: TRAIN_BATCH

        def closure():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(features(image), content)  # kind: LOSS
            loss.backward()
            run[0] += 1
            return loss

        optimizer.step(closure)


def moved_by_the_caller(model, train_loader, optimizer):
    for batch in train_loader:  # role: TRAIN_BATCH
        pair_loss(model, [part.cuda() for part in batch]).backward()
        optimizer.step()


def pair_loss(model, batch):
    first, second = batch  # kind first: TENSOR; kind second: TENSOR
    return nn.functional.mse_loss(model(first), second)
