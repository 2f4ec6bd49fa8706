# accelerator: no
"""A star import of somebody's own module may bring anything; what is defined here wins."""
from torch.utils.data import *
from utils import *


class DataLoader:
    def __iter__(self):
        return iter([1, 2, 3])


for number in DataLoader():  # name: ?; role: OTHER
    print(number)

subset = Subset(dataset, [0, 1])  # name: torch.utils.data.Subset; kind: DATASET
helper(subset)  # name: ?
