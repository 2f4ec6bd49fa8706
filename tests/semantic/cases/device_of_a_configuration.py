# accelerator: yes
# framework: none
import torch

from settings import cfg

# What it was before comes from elsewhere.
cfg.device = torch.device(cfg.device)
model = torch.nn.Linear(3, 3).to(cfg.device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(dataset, batch_size=16):  # role: TRAIN_BATCH
    loss = torch.nn.functional.mse_loss(model(x.to(cfg.device)), y.to(cfg.device))  # kind: LOSS
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
