# accelerator: yes
"""Every way to spell an import."""
import torch
import torch as th
import torch.nn as nn
import torch.nn as tnn, torch.nn.functional as F
import torch.utils.data
import torch.utils.data as td
import torch.optim as optim
import torch.optim.lr_scheduler as lrs
import torch.backends.cudnn as cudnn
import torch.multiprocessing as mp
import numpy
import numpy as np
import torchvision.transforms as T
from torch import nn as layers, optim as optimizers
from torch.autograd import Variable
from torch.cuda import amp
from torch.nn import functional, init
from torch.nn.parallel import DataParallel as DP, DistributedDataParallel as DDP
from torch.optim import adam
from torch.utils import data
from torch.utils.data import DataLoader as Loader, dataset
from torch.utils.data.dataloader import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets as dset

torch.utils.data.DataLoader(ds)  # name: torch.utils.data.DataLoader
th.utils.data.DataLoader(ds)  # name: torch.utils.data.DataLoader
td.DataLoader(ds)  # name: torch.utils.data.DataLoader
data.DataLoader(ds)  # name: torch.utils.data.DataLoader
data.dataloader.DataLoader(ds)  # name: torch.utils.data.DataLoader
Loader(ds)  # name: torch.utils.data.DataLoader; kind: LOADER
DataLoader(ds)  # name: torch.utils.data.DataLoader
dataset.TensorDataset(x, y)  # name: torch.utils.data.TensorDataset; kind: DATASET
DistributedSampler(ds)  # name: torch.utils.data.DistributedSampler; kind: SAMPLER
td.distributed.DistributedSampler(ds)  # name: torch.utils.data.DistributedSampler
torch.nn.DataParallel(net)  # name: torch.nn.DataParallel; kind: MODULE
nn.parallel.DataParallel(net)  # name: torch.nn.DataParallel
DP(net)  # name: torch.nn.DataParallel
DDP(net)  # name: torch.nn.parallel.DistributedDataParallel
tnn.Conv2d(3, 8, 3)  # name: torch.nn.Conv2d; arg kernel_size: 3; arg bias: absent
layers.modules.conv.Conv2d(3, 8, 3, bias=False)  # name: torch.nn.Conv2d; arg bias: False
optim.Adam(params)  # name: torch.optim.Adam
optimizers.SGD(params, lr=0.1)  # name: torch.optim.SGD
adam.Adam(params)  # name: torch.optim.Adam
torch.optim.adamw.AdamW(params)  # name: torch.optim.AdamW
lrs.StepLR(opt, 30)  # name: torch.optim.lr_scheduler.StepLR; kind: SCHEDULER
F.cross_entropy(a, b)  # name: torch.nn.functional.cross_entropy; kind: LOSS
functional.relu(a)  # name: torch.nn.functional.relu; kind: TENSOR
init.xavier_uniform_(w)  # name: torch.nn.init.xavier_uniform_
amp.autocast()  # name: torch.cuda.amp.autocast
amp.GradScaler()  # name: torch.cuda.amp.GradScaler
torch.autocast("cuda")  # name: torch.amp.autocast
torch.amp.autocast_mode.autocast("cuda")  # name: torch.amp.autocast
torch.GradScaler()  # name: torch.amp.GradScaler; kind: SCALER
torch.nn.utils.clip_grad.clip_grad_norm_(p, 1.0)  # name: torch.nn.utils.clip_grad_norm_
torch.autograd.set_detect_anomaly(True)  # name: torch.autograd.set_detect_anomaly
Variable(x)  # name: torch.autograd.Variable; kind: TENSOR
mp.spawn(main, nprocs=4)  # name: torch.multiprocessing.spawn
cudnn.flags(True)  # name: torch.backends.cudnn.flags
np.array([1.0])  # name: numpy.array; kind: NDARRAY
numpy.zeros(3)  # name: numpy.zeros; kind: NDARRAY
T.Compose([T.ToTensor()])  # name: torchvision.transforms.Compose
dset.CIFAR10("data")  # name: torchvision.datasets.CIFAR10; kind: DATASET
print("hello")  # name: builtins.print
undefined_helper(1)  # name: ?
