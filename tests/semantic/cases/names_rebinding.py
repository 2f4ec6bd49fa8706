# accelerator: no
"""Names that are bound again, by assignment, in a branch, in a scope of their own."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader

try:
    from torch.amp import autocast
except ImportError:
    from torch.cuda.amp import autocast

try:
    import apex
    from apex.parallel import DistributedDataParallel as DDP
except ImportError:
    from torch.nn.parallel import DistributedDataParallel as DDP

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None

BN = nn.BatchNorm2d
Norm = BN
Conv = torch.nn.Conv2d
make_loader = DataLoader

BN(8)  # name: torch.nn.BatchNorm2d; kind: MODULE
Norm(8)  # name: torch.nn.BatchNorm2d
Conv(3, 8, 3)  # name: torch.nn.Conv2d
make_loader(ds)  # name: torch.utils.data.DataLoader; kind: LOADER
autocast("cuda")  # name: ?
DDP(net)  # name: ?
tqdm(range(3))  # name: tqdm.tqdm


def normalised(kind):
    if kind == "batch":
        layer = nn.BatchNorm2d
    else:
        layer = nn.InstanceNorm2d
    return layer(8)  # name: ?


def same_either_way(kind):
    if kind == "a":
        layer = nn.BatchNorm2d
    else:
        layer = BN
    return layer(8)  # name: torch.nn.BatchNorm2d


def norm_by_argument(norm_layer=nn.BatchNorm2d):
    return norm_layer(8)  # name: ?


def norm_by_default(norm_layer=None):
    if norm_layer is None:
        norm_layer = nn.BatchNorm2d
    return norm_layer(8)  # name: ?


def shadowed(DataLoader, torch):
    DataLoader(ds)  # name: ?
    return torch.zeros(3)  # name: ?


def local_class():
    class DataLoader:
        def __init__(self, ds):
            self.ds = ds

    return DataLoader(ds)  # name: ?; kind: UNKNOWN


def local_import():
    from torch.utils.data import DataLoader as DL

    return DL(ds)  # name: torch.utils.data.DataLoader


def out_of_scope():
    return DL(ds)  # name: ?


def rebound_later():
    dl = DataLoader(ds)  # name: torch.utils.data.DataLoader
    dl = list(dl)  # name: builtins.list; kind: SEQUENCE
    return dl


def looped():
    for nn in range(3):
        pass
    return nn.Linear(3, 3)  # name: ?


def comprehension():
    made = [torch.nn.Linear(3, 3) for torch in modules]  # name: ?
    return made, torch.zeros(3)


class Net(nn.Module):
    Layer = nn.Linear

    def __init__(self, act=nn.ReLU):
        super().__init__()
        self.norm = nn.LayerNorm
        self.first = self.Layer(3, 3)  # name: torch.nn.Linear; kind: MODULE
        self.second = self.norm(3)  # name: torch.nn.LayerNorm; kind: MODULE
        self.act = act()  # name: ?


def print(*args):
    pass


print("ours")  # name: ?


class DistributedSampler:
    """Our own, that shadows nothing."""


sampler = DistributedSampler()  # name: ?; kind: UNKNOWN
