# accelerator: yes
# framework: none
import torch
import torch.nn as nn
import torchvision
import torchvision.transforms as transforms

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # kind: DEVICE
num_epochs = 5

train_dataset = torchvision.datasets.MNIST(root="../../data", train=True, transform=transforms.ToTensor())  # kind: DATASET
test_dataset = torchvision.datasets.MNIST(root="../../data", train=False, transform=transforms.ToTensor())

train_loader = torch.utils.data.DataLoader(dataset=train_dataset, batch_size=100, shuffle=True)  # kind: LOADER; arg num_workers: absent; arg batch_size: 100; arg shuffle: True
test_loader = torch.utils.data.DataLoader(dataset=test_dataset, batch_size=100, shuffle=False)  # kind: LOADER; name: torch.utils.data.DataLoader


class ConvNet(nn.Module):
    def __init__(self, num_classes=10):
        super(ConvNet, self).__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU())  # kind: MODULE
        self.fc = nn.Linear(7 * 7 * 32, num_classes)  # kind: MODULE; arg bias: absent

    def forward(self, x):
        out = self.layer1(x)  # kind: TENSOR
        out = out.reshape(out.size(0), -1)  # kind: TENSOR
        return self.fc(out)  # kind: TENSOR


model = ConvNet(10).to(device)  # kind: MODULE
criterion = nn.CrossEntropyLoss()  # kind: CRITERION
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)  # kind: OPTIMIZER

total_step = len(train_loader)  # kind: NUMBER
for epoch in range(num_epochs):  # role: EPOCH
    for i, (images, labels) in enumerate(train_loader):  # role: TRAIN_BATCH; kind i: NUMBER; kind images: TENSOR; kind labels: TENSOR
        images = images.to(device)  # kind: TENSOR; grad: on; frequency: every_pass
        labels = labels.to(device)
        outputs = model(images)  # kind: TENSOR
        loss = criterion(outputs, labels)  # kind: LOSS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # frequency: every_pass

        if (i + 1) % 100 == 0:  # frequency: every_pass
            print("Epoch [{}/{}], Loss: {:.4f}".format(epoch + 1, num_epochs, loss.item()))  # frequency: rare

model.eval()
with torch.no_grad():
    correct = 0
    total = 0
    for images, labels in test_loader:  # role: EVAL_BATCH; grad: off
        images = images.to(device)
        outputs = model(images)  # kind: TENSOR; frequency: every_pass
        _, predicted = torch.max(outputs.data, 1)  # kind predicted: TENSOR
        total += labels.size(0)  # kind: NUMBER
        correct += (predicted == labels).sum().item()  # kind: NUMBER; frequency: every_pass; grad: off

print("Accuracy: {} %".format(100 * correct / total))  # frequency: unknown; grad: on
torch.save(model.state_dict(), "model.ckpt")
