# accelerator: no
from torch import *
from torch.nn import *
from torch.optim import *
from torch.utils.data import *
from mylib.layers import *

loader = DataLoader(ds, batch_size=8)  # name: torch.utils.data.DataLoader; kind: LOADER
layer = Linear(3, 3)  # name: torch.nn.Linear; kind: MODULE
conv = Conv2d(3, 8, 3)  # name: torch.nn.Conv2d
loss_fn = CrossEntropyLoss()  # name: torch.nn.CrossEntropyLoss; kind: CRITERION
opt = Adam(layer.parameters())  # name: torch.optim.Adam; kind: OPTIMIZER
ds = TensorDataset(x, y)  # name: torch.utils.data.TensorDataset
block = FancyBlock(3)  # name: ?
with no_grad():  # name: torch.no_grad
    out = layer(tensor([1.0]))  # grad: off
