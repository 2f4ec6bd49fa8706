import torch
from torch.autograd import Variable
from torch.utils.data import DataLoader

loader = DataLoader(data)
for batch in loader:
    a, b = map(Variable, (p, q))
    print(a)  # kind a: TENSOR
    c, d = map(lambda t: t.to(device), batch)
    print(c)  # kind c: TENSOR
    e, f = [t.to(device) for t in batch]
    print(f)  # kind f: TENSOR
    moved = tuple(t.to(device) for t in batch)
    g, h = moved
    print(h)  # kind h: TENSOR
for batch in loader:
    for key in batch:
        print(key)  # kind key: UNKNOWN
        print(batch[key])
