# accelerator: no
# framework: none
import torch

model = torch.nn.Linear(3, 3)
loss_fn = torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(dataset, batch_size=16):  # role: TRAIN_BATCH
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = loss_fn(model(x), y)  # kind: LOSS
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
