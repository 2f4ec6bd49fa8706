# accelerator: yes
# framework: none
import copy
import time

import torch
from torch.utils.data import DataLoader
from torchvision import datasets, models

data_dir = "data/hymenoptera_data"
image_datasets = {x: datasets.ImageFolder(f"{data_dir}/{x}", None) for x in ["train", "val"]}  # kind: MAPPING
dataloaders = {x: DataLoader(image_datasets[x], batch_size=4, shuffle=True, num_workers=4) for x in ["train", "val"]}  # kind: MAPPING
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def train_model(model, criterion, optimizer, scheduler, num_epochs=25):
    since = time.time()  # kind: NUMBER
    best_model_wts = copy.deepcopy(model.state_dict())
    best_acc = 0.0  # kind: NUMBER
    for epoch in range(num_epochs):  # role: EPOCH
        for phase in ["train", "val"]:  # role: OTHER
            if phase == "train":
                model.train()
            else:
                model.eval()
            running_loss = 0.0
            running_corrects = 0
            for inputs, labels in dataloaders[phase]:  # role: TRAIN_BATCH; kind inputs: TENSOR
                inputs = inputs.to(device)  # kind: TENSOR; grad: on
                labels = labels.to(device)
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)  # kind: TENSOR; grad: unknown; frequency: every_pass
                    _, preds = torch.max(outputs, 1)  # kind preds: TENSOR
                    loss = criterion(outputs, labels)  # kind: LOSS; grad: unknown
                    if phase == "train":
                        loss.backward()  # frequency: every_pass
                        optimizer.step()
                running_loss += loss.item() * inputs.size(0)  # frequency: every_pass; kind: NUMBER; grad: on
                running_corrects += torch.sum(preds == labels.data)  # kind: TENSOR
            if phase == "train":
                scheduler.step()
            epoch_loss = running_loss / len(image_datasets[phase])  # kind: NUMBER
            if phase == "val" and best_acc < epoch_loss:
                best_model_wts = copy.deepcopy(model.state_dict())
    model.load_state_dict(best_model_wts)
    return model


model_ft = models.resnet18(weights="IMAGENET1K_V1")  # kind: MODULE
model_ft = model_ft.to(device)  # kind: MODULE
