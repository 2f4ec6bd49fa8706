"""Training scripts on DataParallel in the shapes that people write them in."""

from __future__ import annotations

from typing import Final

__all__ = ["CIFAR", "IMAGENET"]

CIFAR: Final = '''\
"""Train on small pictures."""
import argparse
import os
import sys

import torch
import torch.nn as nn
import torch.optim as optim
import torch.backends.cudnn as cudnn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description="PyTorch CIFAR10 Training")
parser.add_argument("--lr", default=0.5, type=float, help="learning rate")
parser.add_argument("--epochs", default=4, type=int)
parser.add_argument("--resume", "-r", action="store_true", help="resume from checkpoint")
args = parser.parse_args()

torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
best_acc = 0  # best test accuracy
start_epoch = 0  # start from epoch 0 or last checkpoint epoch

print("==> Preparing data..")
points = torch.randn(96, 6)
classes = (points @ torch.randn(6, 4)).argmax(1)
trainset = TensorDataset(points, classes)
trainloader = DataLoader(trainset, batch_size=32, shuffle=False, num_workers=0)
testset = TensorDataset(points[:41], classes[:41])
testloader = DataLoader(testset, batch_size=10, shuffle=False, num_workers=0)

print("==> Building model..")
net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
net = net.to(device)
net = torch.nn.DataParallel(net)
if device == "cuda":
    cudnn.benchmark = True

if args.resume:
    print("==> Resuming from checkpoint..")
    checkpoint = torch.load("./checkpoint/ckpt.pth")
    net.load_state_dict(checkpoint["net"])
    best_acc = checkpoint["acc"]
    start_epoch = checkpoint["epoch"] + 1

criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=args.lr)
results = []


def progress_bar(current, total, msg=None):
    sys.stdout.write("%d/%d %s\\n" % (current + 1, total, msg))


def train(epoch):
    print("\\nEpoch: %d" % epoch)
    net.train()
    train_loss = 0
    correct = 0
    total = 0
    for batch_idx, (inputs, targets) in enumerate(trainloader):
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()

        train_loss += loss.item()
        _, predicted = outputs.max(1)
        total += targets.size(0)
        correct += predicted.eq(targets).sum().item()

        progress_bar(batch_idx, len(trainloader), "Loss: %.3f | Acc: %.3f%% (%d/%d)"
                     % (train_loss / (batch_idx + 1), 100.0 * correct / total, correct, total))
    print("trained on", total)


def test(epoch):
    global best_acc
    net.eval()
    test_loss = 0
    correct = 0
    total = 0
    with torch.no_grad():
        for batch_idx, (inputs, targets) in enumerate(testloader):
            inputs, targets = inputs.to(device), targets.to(device)
            outputs = net(inputs)
            loss = criterion(outputs, targets)

            test_loss += loss.item()
            _, predicted = outputs.max(1)
            total += targets.size(0)
            correct += predicted.eq(targets).sum().item()

            progress_bar(batch_idx, len(testloader), "Loss: %.3f | Acc: %.3f%% (%d/%d)"
                         % (test_loss / (batch_idx + 1), 100.0 * correct / total, correct, total))

    # Save checkpoint.
    acc = 100.0 * correct / total
    results.extend([test_loss / len(testloader), acc])
    if acc > best_acc:
        print("Saving..")
        state = {
            "net": net.state_dict(),
            "acc": acc,
            "epoch": epoch,
        }
        if not os.path.isdir("checkpoint"):
            os.mkdir("checkpoint")
        torch.save(state, "./checkpoint/ckpt.pth")
        best_acc = acc


for epoch in range(start_epoch, args.epochs):
    train(epoch)
    test(epoch)
print("losses:", results)
print("start:", start_epoch)
'''


IMAGENET: Final = '''\
import argparse
import shutil

import torch
import torch.nn as nn
import torch.utils.data

parser = argparse.ArgumentParser(description="PyTorch ImageNet Training")
parser.add_argument("--epochs", default=4, type=int)
parser.add_argument("-b", "--batch-size", default=24, type=int)
parser.add_argument("-p", "--print-freq", default=2, type=int)
parser.add_argument("--resume", action="store_true")

best_acc1 = 0


class AverageMeter(object):
    """Computes and stores the average and current value"""

    def __init__(self, name, fmt=":f"):
        self.name = name
        self.fmt = fmt
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        fmtstr = "{name} {val" + self.fmt + "} ({avg" + self.fmt + "})"
        return fmtstr.format(**self.__dict__)


def accuracy(output, target, topk=(1,)):
    """Computes the accuracy over the k top predictions for the specified values of k"""
    with torch.no_grad():
        maxk = max(topk)
        batch_size = target.size(0)

        _, pred = output.topk(maxk, 1, True, True)
        pred = pred.t()
        correct = pred.eq(target.view(1, -1).expand_as(pred))

        res = []
        for k in topk:
            correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
            res.append(correct_k.mul_(100.0 / batch_size))
        return res


def train(train_loader, model, criterion, optimizer, epoch, args):
    losses = AverageMeter("Loss", ":.4e")
    top1 = AverageMeter("Acc@1", ":6.2f")
    top3 = AverageMeter("Acc@3", ":6.2f")
    model.train()
    for i, (images, target) in enumerate(train_loader):
        output = model(images)
        loss = criterion(output, target)

        acc1, acc3 = accuracy(output, target, topk=(1, 3))
        losses.update(loss.item(), images.size(0))
        top1.update(acc1[0].item(), images.size(0))
        top3.update(acc3[0].item(), images.size(0))

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        if i % args.print_freq == 0:
            print("Epoch [%d][%d/%d]" % (epoch, i, len(train_loader)), losses, top1, top3)
    return losses.avg, top1.avg, top3.avg


def validate(val_loader, model, criterion, args):
    losses = AverageMeter("Loss", ":.4e")
    top1 = AverageMeter("Acc@1", ":6.2f")
    model.eval()
    with torch.no_grad():
        for i, (images, target) in enumerate(val_loader):
            output = model(images)
            acc1, acc3 = accuracy(output, target, topk=(1, 3))
            losses.update(criterion(output, target).item(), images.size(0))
            top1.update(acc1[0].item(), images.size(0))
    print(" * Acc@1 {top1.avg:.3f}".format(top1=top1))
    return top1.avg, losses.avg


def save_checkpoint(state, is_best, filename="checkpoint.pth.tar"):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, "model_best.pth.tar")


def main():
    global best_acc1
    args = parser.parse_args()
    torch.manual_seed(4)
    images = torch.randn(96, 6)
    labels = (images @ torch.randn(6, 5)).argmax(1)
    train_dataset = torch.utils.data.TensorDataset(images, labels)
    val_dataset = torch.utils.data.TensorDataset(images[:37], labels[:37])
    train_loader = torch.utils.data.DataLoader(
        train_dataset, batch_size=args.batch_size, num_workers=0, drop_last=True)
    val_loader = torch.utils.data.DataLoader(
        val_dataset, batch_size=args.batch_size, shuffle=False)

    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 5))
    model = torch.nn.DataParallel(model)
    if torch.cuda.is_available():
        model = model.cuda()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    start_epoch = 0
    if args.resume:
        checkpoint = torch.load("checkpoint.pth.tar")
        start_epoch = checkpoint["epoch"]
        best_acc1 = checkpoint["best_acc1"]
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])

    results = []
    waited = 0
    for epoch in range(start_epoch, args.epochs):
        print(train(train_loader, model, criterion, optimizer, epoch, args))
        acc1, val_loss = validate(val_loader, model, criterion, args)
        scheduler.step(val_loss)
        results += [acc1, val_loss]
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        save_checkpoint({
            "epoch": epoch + 1,
            "state_dict": model.state_dict(),
            "best_acc1": best_acc1,
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
        }, is_best)
        if is_best:
            waited = 0
        else:
            waited += 1
            if waited > 5:
                break
    print("losses:", results)
    print("start:", start_epoch)


if __name__ == "__main__":
    main()
'''
"""Meters, top-k accuracies, a plateau scheduler, early stopping, the best model copied."""
