# accelerator: yes
import torch
from mine import choose_device, read

# The name says that it is a device.
net = torch.nn.Linear(4, 2)
device = choose_device("auto")
data = read()
net.to(device)
