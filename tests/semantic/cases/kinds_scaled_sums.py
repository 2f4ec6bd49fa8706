# accelerator: no
# framework: none
import torch.nn.functional as F


def weighted(a, b, weight):
    total = 0.0
    total += F.mse_loss(a, b)
    total *= weight
    shown = total  # kind: LOSS
    return total


def counted(weight):
    total = 0.0
    total += weight
    total *= weight
    shown = total  # kind: UNKNOWN
    return total
