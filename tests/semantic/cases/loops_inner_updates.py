# accelerator: yes
# framework: none
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

model = torch.nn.Linear(3, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(dataset, batch_size=8)


def attack(x, y):
    delta = torch.zeros_like(x, requires_grad=True)
    own = torch.optim.Adam([delta])
    for _ in range(5):
        F.cross_entropy(model(x + delta), y).backward()
        own.step()
    return delta.detach()


for epoch in range(10):  # role: EPOCH
    for x, y in loader:  # role: TRAIN_BATCH
        x, y = x.cuda(), y.cuda()
        for _ in range(4):  # role: TRAIN_BATCH
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()

for x, y in loader:  # role: TRAIN_BATCH
    x, y = x.cuda(), y.cuda()
    delta = attack(x, y)
    F.cross_entropy(model(x + delta), y).backward()
    optimizer.step()

for x, y in loader:  # role: EPOCH
    x, y = x.cuda(), y.cuda()
    delta = attack(x, y)
    correct = model(x + delta).argmax(1).eq(y).sum()

for domain in loader:  # role: EPOCH
    for x, y in loader:  # role: TRAIN_BATCH
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
