# accelerator: yes
# framework: none
import torch
from timm.utils import NativeScaler

loss_scaler = NativeScaler()


def train_one_epoch(model, criterion, data_loader, optimizer, device, accum_iter):
    for step, (samples, targets) in enumerate(data_loader):  # role: TRAIN_BATCH
        samples = samples.to(device)
        loss = criterion(model(samples), targets) / accum_iter
        loss_scaler(loss, optimizer, update_grad=(step + 1) % accum_iter == 0)  # frequency: every_pass


def train(model, data_loader, optimizer):
    for epoch in range(3):  # role: EPOCH
        train_one_epoch(model, torch.nn.L1Loss(), data_loader, optimizer, "cuda", 2)
