# accelerator: yes
# framework: none
import torch
from torch.utils.data import DataLoader


class Net(torch.nn.Module):
    def forward(self, x):
        return x

    def backward(self, loss):
        loss.backward()


model = Net().cuda()
for x, y in DataLoader(images):  # role: TRAIN_BATCH
    model.backward(criterion(model(x.cuda()), y.cuda()))
    optimizer.step()
