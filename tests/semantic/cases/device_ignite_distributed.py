# accelerator: yes
# framework: ignite
import ignite.distributed as idist
from ignite.engine import create_supervised_trainer
from torch import nn
from torch.optim import SGD

net = idist.auto_model(nn.Linear(3, 1))
device = idist.device()
trainer = create_supervised_trainer(net, SGD(net.parameters(), 0.1), nn.MSELoss(), device=device)
