# accelerator: no
# framework: ignite
from ignite.engine import create_supervised_trainer
from torch import nn
from torch.optim import SGD

net = nn.Linear(3, 1)
device = "cpu"
trainer = create_supervised_trainer(net, SGD(net.parameters(), 0.1), nn.MSELoss(), device=device)
