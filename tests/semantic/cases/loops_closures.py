# accelerator: yes
# framework: none
"""Training inside closures, nested functions, methods, and under a main guard."""
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


def make_trainer(model, criterion, optimizer):
    def train_step(x, y):
        model.train()
        loss = criterion(model(x), y)  # kind: LOSS
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()  # kind: NUMBER

    return train_step


def experiment(X, Y):
    dataset = TensorDataset(X, Y)  # kind: DATASET
    loader = DataLoader(dataset, 32, True)  # arg batch_size: 32; arg shuffle: True; arg num_workers: absent
    model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 1)).cuda()  # kind: MODULE
    optimizer = optim.SGD(model.parameters(), 0.1, 0.9)  # arg lr: 0.1; arg momentum: 0.9
    loss_fn = nn.MSELoss()  # kind: CRITERION

    def loss_batch(x, y, opt=None):
        loss = loss_fn(model(x), y)  # kind: LOSS
        if opt is not None:
            loss.backward()
            opt.step()
            opt.zero_grad()
        return loss.item(), len(x)

    def validate():
        model.eval()
        total = 0.0
        for x, y in loader:  # role: EVAL_BATCH; grad: on
            total += loss_fn(model(x.cuda()), y.cuda()).item()  # kind: NUMBER
        return total

    for epoch in range(10):  # role: EPOCH
        for x, y in loader:  # role: TRAIN_BATCH; kind x: TENSOR; kind y: TENSOR
            loss_batch(x.cuda(), y.cuda(), optimizer)
        print(validate())


def second_order(model, loader, criterion):
    optimizer = optim.LBFGS(model.parameters(), max_iter=20)  # kind: OPTIMIZER; name: torch.optim.LBFGS
    for x, y in loader:  # role: TRAIN_BATCH

        def closure():
            optimizer.zero_grad()
            loss = criterion(model(x), y)  # kind: LOSS; grad: on
            loss.backward()
            return loss

        optimizer.step(closure)  # frequency: every_pass


if __name__ == "__main__":
    experiment(torch.randn(100, 10), torch.randn(100, 1))
    net = nn.Linear(10, 1).to("cuda")
    sgd = optim.SGD(net.parameters(), lr=0.1)
    data = DataLoader(TensorDataset(torch.randn(64, 10), torch.randn(64, 1)), batch_size=8)  # kind: LOADER
    for _ in range(3):  # role: EPOCH
        for batch in data:  # role: TRAIN_BATCH
            objective = (net(batch[0].cuda()) - batch[1].cuda()).pow(2).mean()  # kind: TENSOR
            sgd.zero_grad()
            objective.backward()  # kind objective: LOSS
            sgd.step()
