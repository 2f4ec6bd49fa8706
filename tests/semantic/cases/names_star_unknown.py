# accelerator: yes
# framework: none
"""A star import of the project brings torch and its like under the names that all use."""
from utils import *

device = torch.device("cuda")  # name: torch.device
loader = torch.utils.data.DataLoader(dataset)  # name: torch.utils.data.DataLoader; kind: LOADER
for x in loader:  # role: OTHER
    np.zeros(3)  # name: numpy.zeros
    nn.Linear(3, 3)  # name: torch.nn.Linear
    helper(x)  # name: ?
    DataLoader(x)  # name: ?
