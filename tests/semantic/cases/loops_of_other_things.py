# accelerator: yes
# framework: none
"""Loops around loops, and loops that only look like training."""
import itertools

import torch
import torch.nn as nn
from apex import amp
from sklearn.model_selection import KFold
from torch.utils.data import DataLoader, Subset
from tqdm import tqdm


def folds(dataset, make_net, criterion, epochs):
    for fold, (train_ids, val_ids) in enumerate(KFold(5).split(dataset)):  # role: EPOCH; kind fold: NUMBER
        train_part = DataLoader(Subset(dataset, train_ids), batch_size=10)  # kind: LOADER; frequency: unknown
        network = make_net().cuda()
        optimizer = torch.optim.Adam(network.parameters())  # kind: OPTIMIZER
        for epoch in range(epochs):  # role: EPOCH
            for i, (x, y) in enumerate(train_part):  # role: TRAIN_BATCH
                loss = criterion(network(x.cuda()), y.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


def both_loaders(net, train_loader, val_loader):
    scores = []
    for loader in (train_loader, val_loader):  # role: OTHER
        hits = 0
        with torch.no_grad():
            for x, y in loader:  # role: EVAL_BATCH
                hits += (net(x.cuda()).argmax(1).cpu() == y).sum().item()  # grad: off; frequency: every_pass
        scores.append(hits / len(loader.dataset))
    return scores


def while_epoch(net, train_loader, criterion, optimizer):
    epoch = 0
    while epoch < 10:  # role: EPOCH
        for x, y in tqdm(train_loader):  # role: TRAIN_BATCH
            optimizer.zero_grad()
            (criterion(net(x.cuda()), y.cuda()) / 2).backward()
            optimizer.step()
        epoch += 1
    for epoch in itertools.count():  # role: EPOCH
        for x, y in train_loader:  # role: TRAIN_BATCH
            with amp.scale_loss(criterion(net(x), y), optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        if epoch > 10:
            break


def two_losses(net, loader, optimizer):
    for x, y in loader:  # role: TRAIN_BATCH
        a, b = net(x)
        torch.autograd.backward([a.mean(), b.mean()])
        optimizer.step()


def generate(model, idx, max_new_tokens):
    for _ in range(max_new_tokens):  # role: OTHER
        logits = model(idx)  # kind: TENSOR; frequency: unknown
        idx = torch.cat((idx, logits.argmax(-1, keepdim=True)), dim=1)  # kind: TENSOR
    return idx


def diffuse(unet, x, steps):
    for t in reversed(range(steps)):  # role: OTHER
        x = x - unet(x, torch.tensor([t]))
    return x


def cache(loader, path):
    for i, (x, y) in enumerate(loader):  # role: OTHER
        torch.save((x, y), f"{path}/{i}.pt")


def weights(dataset, classes):
    counts = [0] * classes  # kind: UNKNOWN
    for _, label in dataset:  # role: OTHER
        counts[label] += 1
    return torch.tensor(counts)  # kind: TENSOR


def somebody_elses_method(dataset, model):
    for i, data in enumerate(dataset):  # role: OTHER
        model.set_input(data)
        model.optimize_parameters()


def ddp_training_then_test(model, train_loader, test_loader, optimizer, loss_fn, rank):
    model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])

    @torch.no_grad()
    def test():
        for x, y in test_loader:  # role: EVAL_BATCH; grad: off
            model(x)

    for step, (x, y) in enumerate(train_loader):  # role: TRAIN_BATCH
        loss = loss_fn(model(x.to(rank)), y.to(rank))
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(loss.item())  # frequency: rare
        if step % 1000 == 0:
            test()  # frequency: rare


def power_iteration(matrix: torch.Tensor, v: torch.Tensor, n):
    for _ in range(n):  # role: OTHER
        v = matrix @ v  # kind: TENSOR
        v = v / v.norm()  # kind: TENSOR
    return v.norm().item()  # kind: NUMBER


def warm_restarts(net, scheduler, schedulers):
    for s in schedulers:  # role: OTHER
        s.step()
    for _ in range(10):  # role: OTHER
        scheduler.step()


def games(env, agent):
    while True:  # role: OTHER
        state = env.step(agent.act())
        if state is None:
            break


@torch.no_grad()
def slices(net, data, labels, size):
    hits = 0
    for i in range(0, len(data), size):  # role: EVAL_BATCH
        hits += (net(data[i : i + size]).argmax(1) == labels[i : i + size]).sum().item()  # frequency: every_pass
    return hits / len(data)


def batches_of_a_helper(net, sentences):
    net.eval()
    answers = []
    for sentence, length in in_batches(sentences):  # role: EVAL_BATCH
        ids = torch.tensor(sentence)
        answers.append(net(ids, length))
    return answers


def predict_tiles(net, image, stride):
    for top in range(10):  # role: OTHER
        for left in range(10):  # role: EVAL_BATCH
            tile = image[top : top + stride, left : left + stride]
            image[top, left] = net(tile)
    for k in range(10):  # role: OTHER
        image = image + net(image, k)
    return image


def trained_with_its_own_answers(net, state, steps):
    for i in range(steps):  # role: OTHER
        state = net(state, table[i])
    return state


def of_unknown_purpose(net, images):
    for image in images:  # role: OTHER
        yield net(image)


def scales(net, test_loader, sizes):
    net.eval()
    for x, y in test_loader:  # role: EVAL_BATCH
        for size in sizes:  # role: OTHER
            net(resize(x, size))


def named_loaders(net, train_loader, val_loader):
    for name, batches in [("train", train_loader), ("val", val_loader)]:  # role: OTHER
        with torch.no_grad():
            for x, y in batches:  # role: EVAL_BATCH; kind x: TENSOR
                net(x)


def evaluate_text(net, data, criterion, hidden):
    net.eval()
    total = 0.0
    for i in range(0, len(data), 35):  # role: EVAL_BATCH
        words, targets = chunk(data, i)
        output, hidden = net(words, hidden)
        total += criterion(output, targets).item()  # frequency: every_pass
    return total
