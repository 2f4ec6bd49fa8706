# accelerator: yes
# framework: none
import os

import torch

local_rank = int(os.environ["LOCAL_RANK"])
model = torch.nn.Linear(3, 3).to(local_rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(dataset, batch_size=16):  # role: TRAIN_BATCH
    loss = torch.nn.functional.mse_loss(model(x.to(local_rank)), y.to(local_rank))  # kind: LOSS
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
