# accelerator: no
# framework: none
import torch

torch.set_default_device("cpu")
model = torch.nn.Linear(3, 3)
loss_fn = torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches:
    loss = loss_fn(model(x), y)  # kind: LOSS
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
