# accelerator: yes
# framework: none
import itertools
from itertools import cycle, islice

import torch
import torch.nn as nn
from torch.utils.data import DataLoader
from tqdm import tqdm, trange
from tqdm.auto import tqdm as progress


def through_tqdm(model, train_ds, criterion, optimizer, epochs):
    loader = DataLoader(train_ds, batch_size=32)
    for epoch in trange(epochs):  # role: EPOCH
        for x, y in tqdm(loader, desc=f"epoch {epoch}", leave=False):  # role: TRAIN_BATCH; kind x: TENSOR
            loss = criterion(model(x.cuda()), y.cuda())  # kind: LOSS
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def through_a_bar(model, loader, criterion, optimizer):
    pbar = tqdm(enumerate(loader), total=len(loader))
    for step, batch in pbar:  # role: TRAIN_BATCH; kind step: NUMBER
        images, labels = batch  # kind images: TENSOR; kind labels: TENSOR
        loss = criterion(model(images.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        pbar.set_postfix(loss=loss.item())  # frequency: every_pass


def with_a_bar(model, loader, criterion, optimizer):
    with tqdm(loader, unit="batch") as tepoch:
        for data, target in tepoch:  # role: TRAIN_BATCH
            loss = criterion(model(data), target)  # kind: LOSS
            loss.backward()
            optimizer.step()


def enumerated_bar(model, val_loader):
    predictions = []  # kind: SEQUENCE
    with torch.no_grad():
        for i, (x, _) in enumerate(progress(val_loader)):  # role: EVAL_BATCH
            predictions.append(model(x.cuda()).cpu())  # grad: off; frequency: every_pass
    return torch.cat(predictions)  # kind: TENSOR


def two_loaders(net, labeled_loader, unlabeled_loader, optimizer, criterion):
    for (x, y), (u, _) in zip(labeled_loader, cycle(unlabeled_loader)):  # role: TRAIN_BATCH; kind x: TENSOR; kind u: TENSOR
        loss = criterion(net(x), y) + net(u).pow(2).mean()  # kind: LOSS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def numbered(net, loader, optimizer, criterion, max_batches):
    for step, (x, y) in zip(range(max_batches), loader):  # role: TRAIN_BATCH
        criterion(net(x), y).backward()
        optimizer.step()
    for step, (x, y) in enumerate(islice(loader, max_batches), start=1):  # role: TRAIN_BATCH; kind x: TENSOR
        criterion(net(x), y).backward()
        optimizer.step()


def by_next_in_range(net, loader, optimizer, criterion, iterations):
    iterator = iter(loader)
    for it in range(iterations):  # role: TRAIN_BATCH
        try:
            x, y = next(iterator)  # kind x: TENSOR; frequency: every_pass
        except StopIteration:
            iterator = iter(loader)
            x, y = next(iterator)  # frequency: rare
        loss = criterion(net(x), y)  # kind: LOSS; frequency: every_pass
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def moved_from_next(net, loader, optimizer, criterion):
    batches = iter(loader)
    for _ in range(100):  # role: TRAIN_BATCH
        x, y = next(batches)
        x, y = x.cuda(), y.cuda()  # kind x: TENSOR
        a = next(batches)
        kept = (a.cuda() != -100).sum()  # kind: TENSOR
        criterion(net(x), y).backward()
        optimizer.step()


def by_next_in_while(net, loader, optimizer, criterion, total_steps):
    data_iter = itertools.cycle(loader)
    step = 0
    while step < total_steps:  # role: TRAIN_BATCH
        images, labels = next(data_iter)
        loss = criterion(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1


def old_iterator(net, loader, optimizer, criterion):
    data_iter = iter(loader)
    i = 0
    while i < len(loader):  # role: TRAIN_BATCH
        data = data_iter.next()
        i += 1
        loss = criterion(net(data[0]), data[1])
        loss.backward()
        optimizer.step()


def forever(net, loader, optimizer, criterion, max_steps):
    global_step = 0
    while True:  # role: EPOCH
        for x, y in loader:  # role: TRAIN_BATCH
            loss = criterion(net(x), y)
            loss.backward()
            optimizer.step()
            global_step += 1
            if global_step >= max_steps:
                return  # frequency: rare


def dictionary_batches(model, train_dataloader, optimizer):
    for batch in train_dataloader:  # role: TRAIN_BATCH
        batch = {k: v.to("cuda") for k, v in batch.items()}  # kind: MAPPING
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()


def statistics(loader):
    mean = 0.0
    total = 0
    for images, _ in loader:  # role: OTHER
        mean += images.mean([2, 3]).sum(0)
        total += images.size(0)
    return mean / total


def showing(loader, classes):
    dataiter = iter(loader)
    images, labels = next(dataiter)  # frequency: unknown
    for j in range(4):  # role: OTHER
        print(classes[labels[j]])


def layers(model):
    for name, parameter in model.named_parameters():  # role: OTHER
        print(name, parameter.shape)
    for module in model.modules():  # role: OTHER
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)


def move(state, device):
    for key, value in state.items():  # role: OTHER
        if torch.is_tensor(value):
            state[key] = value.to(device)
