# accelerator: yes
# framework: none
import argparse

import torch
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torchvision import datasets, transforms

from net import Net


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):  # role: TRAIN_BATCH; kind train_loader: LOADER
        data, target = data.to(device), target.to(device)  # kind data: TENSOR; kind target: TENSOR
        optimizer.zero_grad()
        output = model(data)  # kind: TENSOR; grad: on
        loss = F.nll_loss(output, target)  # kind: LOSS; name: torch.nn.functional.nll_loss
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print("Train Epoch: {} Loss: {:.6f}".format(epoch, loss.item()))  # frequency: rare
            if args.dry_run:  # frequency: rare
                break


def test(model, device, test_loader):
    model.eval()
    test_loss = 0  # kind: NUMBER
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:  # role: EVAL_BATCH
            data, target = data.to(device), target.to(device)
            output = model(data)  # grad: off
            test_loss += F.nll_loss(output, target, reduction="sum").item()  # kind: NUMBER; frequency: every_pass
            pred = output.argmax(dim=1, keepdim=True)  # kind: TENSOR
            correct += pred.eq(target.view_as(pred)).sum().item()  # kind: NUMBER
    test_loss /= len(test_loader.dataset)


def main():
    parser = argparse.ArgumentParser(description="PyTorch MNIST Example")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--no-cuda", action="store_true", default=False)
    args = parser.parse_args()
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    device = torch.device("cuda" if use_cuda else "cpu")

    train_kwargs = {"batch_size": args.batch_size}
    test_kwargs = {"batch_size": args.test_batch_size}
    if use_cuda:
        cuda_kwargs = {"num_workers": 1, "pin_memory": True, "shuffle": True}
        train_kwargs.update(cuda_kwargs)
        test_kwargs.update(cuda_kwargs)

    dataset1 = datasets.MNIST("../data", train=True, download=True, transform=transforms.ToTensor())
    dataset2 = datasets.MNIST("../data", train=False, transform=transforms.ToTensor())  # kind: DATASET
    train_loader = torch.utils.data.DataLoader(dataset1, **train_kwargs)  # kind: LOADER; arg num_workers: decided; arg batch_size: decided; arg persistent_workers: absent; arg sampler: absent
    test_loader = torch.utils.data.DataLoader(dataset2, **test_kwargs)  # arg pin_memory: decided

    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)  # kind: OPTIMIZER; name: torch.optim.Adadelta; arg lr: decided
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)  # kind: SCHEDULER
    for epoch in range(1, args.epochs + 1):  # role: EPOCH
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()  # frequency: unknown


if __name__ == "__main__":
    main()
