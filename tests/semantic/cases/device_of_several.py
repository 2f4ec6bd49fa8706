# accelerator: yes
import torch
from mine import options

# The dictionary holds a device for each network.
net = torch.nn.Linear(4, 2)
net.to(options.devices["net"])
